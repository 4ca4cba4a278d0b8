//! What a step reads of signals and children.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::Context;
use crate::error::Failure;
use crate::store::{Child, Coordination, Signal};
use crate::types::{InstanceId, MachineKey, Status};

/// Why a step did not get a signal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// No signal of this name is in the inbox.
    #[error("no signal \"{name}\" is in the inbox; {}", presence(.present, *.deadline_fired))]
    NotThere {
        /// The name that was asked for.
        name: String,
        /// The names that are there, each once, in order.
        present: Vec<String>,
        /// Whether the deadline of the wait fired: check [`Context::deadline_fired`] first.
        deadline_fired: bool,
    },
    /// The payload does not fit the type that was asked for.
    #[error("the payload of signal {number} \"{name}\" does not fit the type asked for: {source}")]
    Payload {
        /// The name of the signal.
        name: String,
        /// Its number in the inbox.
        number: u32,
        /// Why.
        source: serde_json::Error,
    },
}

fn presence(present: &[String], deadline_fired: bool) -> String {
    let names = if present.is_empty() {
        "it is empty".to_owned()
    } else {
        format!("there are signals \"{}\"", present.join("\", \""))
    };
    if deadline_fired {
        format!("{names}, and the deadline of the wait fired: look at context.deadline_fired() first")
    } else {
        names
    }
}

/// Why a child has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// It is not done.
    #[error("child {id} ({machine}) is {status}{}", reason(.failure.as_ref()))]
    NotDone {
        /// Which.
        id: InstanceId,
        /// Its machine.
        machine: MachineKey,
        /// Where it stands.
        status: Status,
        /// Why it failed or was cancelled, if it did.
        failure: Option<Failure>,
    },
    /// Its result does not fit the type that was asked for.
    #[error("the result of child {id} ({machine}) does not fit the type asked for: {source}")]
    Result {
        /// Which.
        id: InstanceId,
        /// Its machine.
        machine: MachineKey,
        /// Why.
        source: serde_json::Error,
    },
}

fn reason(failure: Option<&Failure>) -> String {
    failure.map(|failure| format!(": {failure}")).unwrap_or_default()
}

impl Child {
    /// Its result.
    ///
    /// # Errors
    /// [`ChildError`]: it is not done, with its failure; or its result does not fit the type.
    pub fn done<T: DeserializeOwned>(&self) -> Result<T, ChildError> {
        match (self.status, &self.result) {
            (Status::Done, Some(result)) => result.decode().map_err(|source| ChildError::Result {
                id: self.id,
                machine: self.machine.clone(),
                source,
            }),
            _ => Err(ChildError::NotDone {
                id: self.id,
                machine: self.machine.clone(),
                status: self.status,
                failure: self.failure.clone(),
            }),
        }
    }
}

impl Coordination {
    /// Whether the step is given this signal as awaited.
    fn is_awaited(&self, signal: &Signal) -> bool {
        signal.number <= self.received && self.awaited.contains(&signal.name)
    }

    /// What is known of signals and cancellation when a step runs ahead, on the claim of the one before: what it was
    /// given as awaited is consumed.
    pub(crate) fn ahead(&self, cancel_requested: bool) -> Self {
        let left = self.inbox.iter().filter(|signal| !self.is_awaited(signal));
        Self {
            parent: self.parent,
            received: self.received,
            inbox: left.cloned().collect(),
            cancel_requested,
            ..Self::default()
        }
    }
}

impl Context {
    /// Every signal in the inbox when the step was claimed, in the order in which they came, awaited or not. They stay
    /// until a step that was given them as awaited goes on with `next` or children (rule OUT-4).
    #[must_use]
    pub fn inbox(&self) -> &[Signal] {
        &self.instance.coordination.inbox
    }

    /// The signals that the step waited for, in the order in which they came. There may be several, and none when the
    /// deadline fired. They are deleted when the step goes on with `next` or children, and stay when it is retried or
    /// waits again.
    pub fn awaited_signals(&self) -> impl Iterator<Item = &Signal> {
        let coordination = &self.instance.coordination;
        coordination
            .inbox
            .iter()
            .filter(|signal| coordination.is_awaited(signal))
    }

    /// What all signals of this name say, in the order in which they came.
    ///
    /// # Errors
    /// [`SignalError::Payload`] for the first that does not fit the type.
    pub fn signals<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, SignalError> {
        let named = self.inbox().iter().filter(|signal| signal.name.as_str() == name);
        named.map(decode).collect()
    }

    /// What the first signal of this name says.
    ///
    /// # Errors
    /// [`SignalError`]: there is none, with the names that are there and whether the deadline fired; or it does not
    /// fit the type.
    pub fn signal<T: DeserializeOwned>(&self, name: &str) -> Result<T, SignalError> {
        match self.inbox().iter().find(|signal| signal.name.as_str() == name) {
            Some(signal) => decode(signal),
            None => {
                let present: BTreeSet<&str> =
                    self.inbox().iter().map(|signal| signal.name.as_str()).collect();
                Err(SignalError::NotThere {
                    name: name.to_owned(),
                    present: present.into_iter().map(str::to_owned).collect(),
                    deadline_fired: self.deadline_fired(),
                })
            }
        }
    }
}

fn decode<T: DeserializeOwned>(signal: &Signal) -> Result<T, SignalError> {
    signal.payload.decode().map_err(|source| SignalError::Payload {
        name: signal.name.as_str().to_owned(),
        number: signal.number,
        source,
    })
}
