//! The spans that an engine opens (rule OPS-6).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use durable_core::{Context, Insert, Job, JobError};
use durable_testing::memory::MemoryStore;
use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::engine_rules::builder;

#[derive(Serialize, Deserialize)]
struct Traced;

impl Job for Traced {
    const NAME: &'static str = "traced";
    type Output = bool;

    async fn perform(&self, context: &Context) -> Result<bool, JobError> {
        if context.attempt() == 0 {
            return Err("once more".into());
        }
        Ok(true)
    }
}

type Fields = BTreeMap<&'static str, String>;

/// Keeps the fields of each span named `step`.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<Vec<Fields>>>);

/// The id of every span that is not of a step.
const OTHER: u64 = 1_000_000;

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Steps {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::new();
        span.record(&mut Reader(&mut fields));
        if span.metadata().name() != "step" {
            return Id::from_u64(OTHER);
        }
        let mut steps = self.0.lock().expect("no panic");
        steps.push(fields);
        Id::from_u64(steps.len() as u64)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn event(&self, _event: &Event<'_>) {}
    fn enter(&self, span: &Id) {
        let mut steps = self.0.lock().expect("no panic");
        if let Some(fields) = steps.get_mut(usize::try_from(span.into_u64()).expect("small") - 1) {
            fields.insert("entered", "yes".to_owned());
        }
    }
    fn exit(&self, _span: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn each_run_of_a_step_has_a_span_that_names_it() {
    // contract: OPS-6
    let steps = Steps::default();
    let _listening = tracing::subscriber::set_default(steps.clone());
    let store = MemoryStore::new();
    let engine = builder(&store).queue("default").job::<Traced>().start();
    let engine = engine.await.expect("started");
    let id = engine
        .client()
        .insert(Insert::job(Traced))
        .await
        .expect("inserted")
        .id();
    let result = engine
        .client()
        .result::<bool>(id, Duration::from_secs(3600))
        .await;
    assert!(result.expect("done"));
    engine.shutdown().await;
    let steps = steps.0.lock().expect("no panic");
    let instance = id.to_string();
    let named: Vec<_> = steps
        .iter()
        .map(|fields| ["step", "instance", "attempt"].map(|name| fields[name].as_str()))
        .collect();
    assert_eq!(
        named,
        [
            ["\"perform\"", instance.as_str(), "0"],
            ["\"perform\"", instance.as_str(), "1"]
        ]
    );
    assert!(
        steps.iter().all(|fields| fields.contains_key("entered")),
        "{steps:?}"
    );
    assert!(steps[0]["machine"].starts_with("traced"), "{steps:?}");
}
