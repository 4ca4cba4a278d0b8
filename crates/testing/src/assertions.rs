//! Assertions about one instance, whose messages show the whole of it.
//!
//! ```
//! # use durable_core::{Client, InstanceId};
//! use durable_testing::assert_instance;
//!
//! # async fn test(client: Client, id: InstanceId) {
//! assert_instance(&client, id)
//!     .await
//!     .is_done_with(&"order 7 shipped".to_owned());
//! assert_instance(&client, "order-8") // by its correlation key, while it holds it
//!     .await
//!     .is_at_step("ship")
//!     .has_attempt(1);
//! # }
//! ```

use std::fmt::{self, Debug, Display};
use std::future::Future;
use std::panic::Location;

use durable_core::{Client, InstanceId, Json, Snapshot, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Which instance is meant: its id, or the correlation key that it holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The instance with this id.
    Id(InstanceId),
    /// The instance that holds this correlation key.
    Key(String),
}

impl From<InstanceId> for Target {
    fn from(id: InstanceId) -> Self {
        Self::Id(id)
    }
}

impl From<&str> for Target {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<String> for Target {
    fn from(key: String) -> Self {
        Self::Key(key)
    }
}

impl Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(formatter, "instance {id}"),
            Self::Key(key) => write!(formatter, "an instance that holds the correlation key \"{key}\""),
        }
    }
}

/// Reads an instance, to assert things about it as it stands at this moment.
///
/// # Panics
/// When it is not there, or the store cannot be read. An instance that has left the scope of its correlation key
/// (by default: that is finished) is not found by the key, only by its id.
#[track_caller]
pub fn assert_instance<T: Into<Target>>(
    client: &Client,
    target: T,
) -> impl Future<Output = AssertInstance> + Send + use<'_, T> {
    // An async fn would not know its caller.
    read(client, target.into(), Location::caller())
}

#[expect(clippy::panic, reason = "an assertion fails by a panic")]
async fn read(client: &Client, target: Target, caller: &Location<'_>) -> AssertInstance {
    let found = match &target {
        Target::Id(id) => client.snapshot(*id).await.map_err(|error| error.to_string()),
        Target::Key(key) => by_key(client, key).await,
    };
    match (found, target) {
        (Ok(Some(snapshot)), _) => AssertInstance { snapshot },
        (Ok(None), target @ Target::Id(_)) => panic!("{caller}: there should be {target}, but there is none"),
        (Ok(None), target @ Target::Key(_)) => panic!(
            "{caller}: there should be {target}, but there is none; a finished instance has let go of its key, \
             unless its scope is Scope::UNTIL_REMOVED: ask for it by its id"
        ),
        (Err(error), target) => panic!("{caller}: {target} cannot be read: {error}"),
    }
}

async fn by_key(client: &Client, key: &str) -> Result<Option<Snapshot>, String> {
    let found = client
        .find(key.to_owned())
        .await
        .map_err(|error| error.to_string())?;
    match found {
        Some(id) => client.snapshot(id).await.map_err(|error| error.to_string()),
        None => Ok(None),
    }
}

/// An instance as it stood when it was read; from [`assert_instance`].
///
/// Each check returns it again, so that checks can follow each other.
///
/// # Panics
/// Each check panics when it does not hold, with a message that shows the whole instance.
#[derive(Clone, Debug)]
pub struct AssertInstance {
    snapshot: Snapshot,
}

impl AssertInstance {
    /// It is done.
    #[track_caller]
    pub fn is_done(&self) -> &Self {
        self.has_status(Status::Done)
    }

    /// It is done, with this result.
    #[track_caller]
    pub fn is_done_with<R: DeserializeOwned + PartialEq + Debug>(&self, result: &R) -> &Self {
        let found: R = self.is_done().result();
        self.check(found == *result, format_args!("be done with {result:?}"))
    }

    /// It is failed.
    #[track_caller]
    pub fn is_failed(&self) -> &Self {
        self.has_status(Status::Failed)
    }

    /// It is failed, and the message of its failure holds this text.
    #[track_caller]
    pub fn is_failed_with(&self, text: &str) -> &Self {
        self.is_failed().has_failure(text)
    }

    /// It is cancelled.
    #[track_caller]
    pub fn is_cancelled(&self) -> &Self {
        self.has_status(Status::Cancelled)
    }

    /// It is cancelled, and the reason holds this text.
    #[track_caller]
    pub fn is_cancelled_with(&self, text: &str) -> &Self {
        self.is_cancelled().has_failure(text)
    }

    /// It is runnable, and due: it would be claimed now.
    #[track_caller]
    pub fn is_due(&self) -> &Self {
        let due = self.snapshot.due_in.is_zero();
        self.has_status(Status::Runnable)
            .check(due, format_args!("be due"))
    }

    /// It is runnable, and waits for its time.
    #[track_caller]
    pub fn is_scheduled(&self) -> &Self {
        let waits = !self.snapshot.due_in.is_zero();
        self.has_status(Status::Runnable)
            .check(waits, format_args!("wait for its time"))
    }

    /// It has this status.
    #[track_caller]
    pub fn has_status(&self, status: Status) -> &Self {
        self.check(self.snapshot.status == status, format_args!("be {status}"))
    }

    /// Its current or last step is this one: a step of the machine, or its stored name.
    #[track_caller]
    pub fn is_at_step(&self, step: impl Serialize) -> &Self {
        let step = match serde_json::to_value(step) {
            Ok(serde_json::Value::String(name)) => name,
            Ok(other) => format!("{other} (which is no name of a step)"),
            Err(error) => format!("a step that cannot be encoded ({error})"),
        };
        self.check(self.snapshot.step == step, format_args!("be at step {step}"))
    }

    /// Its current or last step was tried this often before: 0 on the first try.
    #[track_caller]
    pub fn has_attempt(&self, attempt: u32) -> &Self {
        let right = self.snapshot.attempt == attempt;
        self.check(right, format_args!("be at attempt {attempt}"))
    }

    /// The message of its last failure, of the step that is being retried or for good, holds this text.
    #[track_caller]
    pub fn has_failure(&self, text: &str) -> &Self {
        let failure = self.snapshot.failure.as_ref();
        let holds = failure.is_some_and(|failure| failure.message.contains(text));
        self.check(holds, format_args!("have a failure that says \"{text}\""))
    }

    /// Its state is one for which this holds: `has_state(|order: &Order| order.charged)`.
    #[track_caller]
    pub fn has_state<S: DeserializeOwned>(&self, holds: impl FnOnce(&S) -> bool) -> &Self {
        let right = holds(&self.state());
        self.check(right, format_args!("have a state that passes the given check"))
    }

    /// Its state.
    #[must_use]
    #[track_caller]
    pub fn state<S: DeserializeOwned>(&self) -> S {
        self.decode("state", Some(&self.snapshot.state))
    }

    /// Its result.
    #[must_use]
    #[track_caller]
    pub fn result<R: DeserializeOwned>(&self) -> R {
        self.decode("result", self.snapshot.result.as_ref())
    }

    /// All that is known of it.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    #[track_caller]
    fn check(&self, holds: bool, expected: fmt::Arguments<'_>) -> &Self {
        assert!(holds, "instance {} should {expected}\n{self}", self.snapshot.id);
        self
    }

    #[track_caller]
    #[expect(clippy::panic, reason = "an assertion fails by a panic")]
    fn decode<T: DeserializeOwned>(&self, what: &str, json: Option<&Json>) -> T {
        let id = self.snapshot.id;
        match json.map(Json::decode) {
            Some(Ok(value)) => value,
            Some(Err(error)) => panic!(
                "instance {id} should have a {what} that fits {}: {error}\n{self}",
                std::any::type_name::<T>()
            ),
            None => panic!("instance {id} should have a {what}\n{self}"),
        }
    }
}

/// The whole instance, one property per line.
impl Display for AssertInstance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let it = &self.snapshot;
        let due = match (it.status, it.due_in.is_zero()) {
            (Status::Runnable, true) => ", due now".to_owned(),
            (Status::Runnable, false) => format!(", due in {:?}", it.due_in),
            _ => String::new(),
        };
        writeln!(formatter, "  machine: {}, queue {}", it.machine, it.queue)?;
        writeln!(formatter, "  status:  {}{due}", it.status)?;
        let (step, attempt, crashes) = (&it.step, it.attempt, it.crashes);
        writeln!(
            formatter,
            "  step:    {step}, attempt {attempt}, crashes {crashes}"
        )?;
        match &it.failure {
            Some(failure) => writeln!(formatter, "  failure: {:?}: {failure}", failure.kind)?,
            None => writeln!(formatter, "  failure: none")?,
        }
        if let Some(key) = &it.correlation_key {
            writeln!(formatter, "  key:     {key}")?;
        }
        if let Some(result) = &it.result {
            writeln!(formatter, "  result:  {}", shown(result))?;
        }
        write!(formatter, "  state:   {}", shown(&it.state))
    }
}

/// The longest JSON that a message shows, in bytes.
const MAX_SHOWN: usize = 2000;

fn shown(json: &Json) -> String {
    let text = json.as_str();
    if text.len() <= MAX_SHOWN {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_SHOWN);
    format!("{} ... ({} bytes in all)", &text[..end], text.len())
}
