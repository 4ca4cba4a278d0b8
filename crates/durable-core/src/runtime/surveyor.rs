//! Looks now and then at what no claim shows: instances of machines that this process does not know (rule
//! FSM-5), and whether any live process reaps and collects (rule OPS-1).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::observe;
use crate::store::{Store, Survey};
use crate::types::{MachineKey, QueueName};

/// How often it looks; first after this long, when the other processes of a deployment have started too.
const INTERVAL: Duration = Duration::from_secs(60);

pub(crate) struct Surveyor {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queues: Vec<QueueName>,
    pub(crate) machines: Arc<[MachineKey]>,
    pub(crate) stop: CancellationToken,
}

impl Surveyor {
    pub(crate) async fn run(self) {
        let mut told = BTreeSet::new();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            let machines = Arc::clone(&self.machines);
            match self.store.survey(self.queues.clone(), machines).await {
                Ok(survey) => self.tell(survey, &mut told),
                Err(error) => observe::store_error("survey", &error),
            }
        }
    }

    fn tell(&self, survey: Survey, told: &mut BTreeSet<(QueueName, MachineKey)>) {
        if !survey.reaper {
            tracing::warn!("no live process has the reaper role: work of dead workers stays where it is");
        }
        if !survey.collector {
            tracing::warn!("no live process has the collector role: terminal instances are kept for ever");
        }
        for queue in &self.queues {
            let count = survey.unknown.iter().filter(|(of, _)| of == queue).count();
            observe::unknown_machines(queue, count);
        }
        for (queue, machine) in survey.unknown {
            if told.insert((queue.clone(), machine.clone())) {
                tracing::info!(%queue, %machine, "work of a machine that this process does not know is left alone");
            }
        }
    }
}
