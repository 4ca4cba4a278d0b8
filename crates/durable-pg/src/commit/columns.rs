//! Outcomes as the statement takes them: one array per column.

use std::collections::BTreeSet;

use durable_core::store::{Commit, Transition};
use durable_core::{Failure, InstanceId, Json, SignalName};

use crate::values::{decode_error, microseconds};

/// One array per column of a commit.
#[derive(Default)]
pub(super) struct Columns<'a> {
    pub(super) ids: Vec<i64>,
    pub(super) numbers: Vec<Option<i64>>,
    pub(super) seqs: Vec<i32>,
    pub(super) kinds: Vec<&'static str>,
    pub(super) rows: Vec<Written<'a>>,
    pub(super) parents: Vec<Option<i64>>,
    pub(super) received: Vec<i32>,
    /// The parents of those that end, each once.
    pub(super) ended_parents: BTreeSet<i64>,
}

/// What one outcome writes.
#[derive(Default)]
pub(super) struct Written<'a> {
    pub(super) step: Option<&'a str>,
    pub(super) state: Option<&'a str>,
    pub(super) delay: Option<i64>,
    pub(super) result: Option<&'a str>,
    pub(super) failure: Option<&'a Failure>,
    pub(super) awaits: Option<Vec<&'a str>>,
    pub(super) timeout: Option<i64>,
    pub(super) needed: Option<i32>,
}

impl<'a> Written<'a> {
    pub(super) fn of(transition: &'a Transition) -> Self {
        let none = Self::default();
        match transition {
            Transition::Next { step, state, delay } => Self {
                step: Some(step),
                state: Some(state.as_str()),
                delay: Some(microseconds(*delay)),
                ..none
            },
            Transition::Ahead { step, state } => Self {
                step: Some(step),
                state: Some(state.as_str()),
                ..none
            },
            Transition::Await {
                step,
                state,
                signals,
                timeout,
            } => Self {
                step: Some(step),
                state: Some(state.as_str()),
                awaits: Some(signals.iter().map(SignalName::as_str).collect()),
                timeout: timeout.map(microseconds),
                ..none
            },
            Transition::ScheduleChildren {
                step,
                state,
                needed,
                timeout,
                ..
            } => Self {
                step: Some(step),
                state: Some(state.as_str()),
                timeout: timeout.map(microseconds),
                needed: needed.map(|needed| i32::try_from(needed).unwrap_or(i32::MAX)),
                ..none
            },
            Transition::Retry {
                state,
                delay,
                failure,
            } => Self {
                state: state.as_ref().map(Json::as_str),
                delay: Some(microseconds(*delay)),
                failure: failure.as_ref(),
                ..none
            },
            Transition::Done { result } => Self {
                result: Some(result.as_str()),
                ..none
            },
            Transition::Failed { failure } | Transition::Cancelled { failure } => Self {
                failure: Some(failure),
                ..none
            },
            // What is given back or blocked stays as it is.
            _ => none,
        }
    }

    pub(super) fn failure(&self) -> Result<Option<String>, sqlx::Error> {
        let encoded = self.failure.map(Json::encode::<Failure>).transpose();
        Ok(encoded
            .map_err(decode_error)?
            .map(|json| json.as_str().to_owned()))
    }
}

impl<'a> Columns<'a> {
    pub(super) fn of(outcomes: &'a [Commit], claimed: bool) -> Self {
        let mut columns = Self::default();
        for outcome in outcomes {
            columns.ids.push(outcome.id.get());
            columns.numbers.push(claimed.then(|| outcome.fence.claim.get()));
            columns.seqs.push(outcome.fence.seq);
            columns.kinds.push(outcome.transition.as_str());
            columns.rows.push(Written::of(&outcome.transition));
            let parent = outcome.parent.map(InstanceId::get);
            columns.parents.push(parent);
            columns
                .received
                .push(i32::try_from(outcome.received).unwrap_or(i32::MAX));
            if outcome.transition.is_terminal() {
                columns.ended_parents.extend(parent);
            }
        }
        columns
    }

    pub(super) fn column<T>(&self, of: impl Fn(&Written<'a>) -> T) -> Vec<T> {
        self.rows.iter().map(of).collect()
    }

    /// The same, or nothing at all when no outcome has a value: a shorter array is filled up by the database.
    pub(super) fn rare<T>(&self, of: impl Fn(&Written<'a>) -> Option<T>) -> Option<Vec<Option<T>>> {
        let column = self.column(of);
        column.iter().any(Option::is_some).then_some(column)
    }
}

/// The literal of a text array: unnest would flatten an array of arrays.
pub(super) fn array_literal(names: &[&str]) -> String {
    let quoted = names.iter().map(|name| {
        let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{escaped}\"")
    });
    format!("{{{}}}", quoted.collect::<Vec<_>>().join(","))
}
