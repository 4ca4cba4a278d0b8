//! Inserts a batch: one statement, one array per column (rule INS-3).

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use durable_core::store::{Eligible, NewInstance};
use durable_core::{Inserted, InstanceId, Scope, Status};
use sqlx::{PgConnection, Row as _};

use crate::connect::Shared;
use crate::error::uncertain;
use crate::limits::limit_columns;
use crate::statements::Statements;
use crate::values::microseconds;

/// Counter: entries of inserts that lost a race for a correlation key (rule CORE-5). The winner's commit came
/// between the look and the insert, and the unique index refused the second.
pub const INSERT_RACES: &str = "durable_insert_races_total";

/// How often entries that lost a race for a key, whose winner then vanished, are inserted again.
const TRIES: usize = 10;
const LOST_TOO_OFTEN: &str = "at each of 10 tries somebody else took a correlation key of the batch and freed it \
    again; its other entries are inserted";

/// The scope as the literal of a text array; `None` for the default.
fn scope_literal(scope: Scope) -> Option<String> {
    if scope == Scope::UNTIL_TERMINAL {
        return None;
    }
    let names: Vec<&str> = Status::ALL
        .into_iter()
        .filter(|status| scope.contains(*status))
        .map(Status::as_str)
        .collect();
    Some(format!("{{{}}}", names.join(",")))
}

/// The first answer of [`insert`] for one entry.
#[derive(Clone, Copy)]
enum Answer {
    Known(Inserted),
    /// Somebody else's insert of the same key was committed meanwhile.
    LostRace,
}

/// The parent of the children of one fan-out.
#[derive(Clone, Copy)]
pub(crate) struct Parent {
    pub(crate) id: i64,
    pub(crate) fan_out: i32,
}

/// What is inserted: entries, and for each its lane and, if all of them are children, its parent.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) entries: &'a [NewInstance],
    pub(crate) lanes: &'a [i32],
    pub(crate) parents: Option<&'a [Parent]>,
}

/// Inserts a batch on a connection of the pool.
pub(crate) async fn insert_batch(
    shared: &Shared,
    entries: &[NewInstance],
) -> Result<Vec<Inserted>, sqlx::Error> {
    let lanes = entries.iter().map(|entry| (&entry.queue, &entry.machine));
    let lanes = shared.lanes.ids(shared, lanes).await?;
    let mut connection = shared.connection().await?;
    let batch = Batch {
        entries,
        lanes: &lanes,
        parents: None,
    };
    insert(&mut connection, &shared.statements, batch).await
}

/// Inserts entries whose lanes are known, on any connection; the answers stand in the order of the entries.
pub(crate) async fn insert(
    connection: &mut PgConnection,
    statements: &Statements,
    batch: Batch<'_>,
) -> Result<Vec<Inserted>, sqlx::Error> {
    let mut answers = vec![Answer::LostRace; batch.entries.len()];
    insert_once(connection, statements, batch, &mut answers).await?;
    for _ in 1..TRIES {
        let lost = answers
            .iter()
            .filter(|answer| matches!(answer, Answer::LostRace))
            .count();
        if lost == 0 {
            break;
        }
        metrics::counter!(INSERT_RACES).increment(lost as u64);
        // From here on a part of the batch may be committed: no error may say that nothing was.
        find_winners(connection, statements, batch.entries, &mut answers)
            .await
            .map_err(uncertain)?;
        insert_once(connection, statements, batch, &mut answers)
            .await
            .map_err(uncertain)?;
    }
    let known = answers.into_iter().map(|answer| match answer {
        Answer::Known(inserted) => Ok(inserted),
        Answer::LostRace => Err(uncertain(LOST_TOO_OFTEN)),
    });
    known.collect()
}

/// Inserts the entries that have no answer yet.
async fn insert_once(
    connection: &mut PgConnection,
    statements: &Statements,
    batch: Batch<'_>,
    answers: &mut [Answer],
) -> Result<(), sqlx::Error> {
    let Batch {
        entries,
        lanes,
        parents,
    } = batch;
    let open: Vec<usize> = (0..entries.len())
        .filter(|&at| matches!(answers.get(at), Some(Answer::LostRace)))
        .collect();
    if open.is_empty() {
        return Ok(());
    }
    let chosen: Vec<(&NewInstance, i32)> = open
        .iter()
        .filter_map(|&at| Some((entries.get(at)?, *lanes.get(at)?)))
        .collect();
    // What has limits stands in the limited half of its lane.
    let lane_ids: Vec<i32> = chosen
        .iter()
        .map(|(entry, lane)| if entry.limits.is_empty() { *lane } else { -*lane })
        .collect();
    let limits = limit_columns(chosen.iter().map(|(entry, _)| &entry.limits));
    let priorities: Vec<i16> = chosen.iter().map(|(entry, _)| entry.priority).collect();
    let (delays, instants): (Vec<Option<i64>>, Vec<Option<i64>>) =
        chosen.iter().map(|(entry, _)| eligible(entry.eligible)).unzip();
    let steps: Vec<&str> = chosen.iter().map(|(entry, _)| entry.step.as_str()).collect();
    let states: Vec<&str> = chosen.iter().map(|(entry, _)| entry.state.as_str()).collect();
    let keys: Vec<Option<&str>> = chosen
        .iter()
        .map(|(entry, _)| entry.correlation.as_ref().map(|(key, _)| key.as_str()))
        .collect();
    let scopes: Vec<Option<String>> = chosen
        .iter()
        .map(|(entry, _)| {
            entry
                .correlation
                .as_ref()
                .and_then(|(_, scope)| scope_literal(*scope))
        })
        .collect();
    let parents = parents.map(|parents| {
        let chosen = open.iter().filter_map(|&at| parents.get(at));
        chosen
            .map(|parent| (parent.id, parent.fan_out))
            .unzip::<i64, i32, Vec<i64>, Vec<i32>>()
    });
    let (parent_ids, fan_outs) = parents.unzip();
    let row = sqlx::query(statements.insert.text())
        .bind(lane_ids)
        .bind(priorities)
        .bind(delays)
        .bind(instants)
        .bind(steps)
        .bind(states)
        .bind(&keys)
        .bind(scopes)
        .bind(parent_ids)
        .bind(fan_outs)
        .bind(limits.concurrency)
        .bind(limits.rates)
        .bind(limits.weights)
        .fetch_one(connection)
        .await?;
    let ids: Vec<i64> = row.try_get("ids")?;
    let Some(holders) = row.try_get::<Option<Vec<Option<i64>>>, _>("holders")? else {
        for (&at, id) in open.iter().zip(ids) {
            if let Some(slot) = answers.get_mut(at) {
                *slot = Answer::Known(Inserted::New(InstanceId::new(id)));
            }
        }
        return Ok(());
    };
    let inserted: Option<Vec<i64>> = row.try_get("inserted")?;
    let inserted: HashSet<i64> = inserted.unwrap_or_default().into_iter().collect();
    let mut firsts: HashMap<&str, i64> = HashMap::new();
    for (id, key) in ids.iter().zip(&keys) {
        if let (Some(key), true) = (key, inserted.contains(id)) {
            firsts.insert(key, *id);
        }
    }
    for (((&at, id), holder), key) in open.iter().zip(&ids).zip(&holders).zip(&keys) {
        let duplicate = holder.or_else(|| key.and_then(|key| firsts.get(key).copied()));
        let answer = if key.is_none() || inserted.contains(id) {
            Answer::Known(Inserted::New(InstanceId::new(*id)))
        } else if let Some(holder) = duplicate {
            Answer::Known(Inserted::Duplicate(InstanceId::new(holder)))
        } else {
            Answer::LostRace
        };
        if let Some(slot) = answers.get_mut(at) {
            *slot = answer;
        }
    }
    Ok(())
}

/// Looks up, with a new snapshot, who won the races; a winner that is gone again leaves its entry open.
async fn find_winners(
    connection: &mut PgConnection,
    statements: &Statements,
    entries: &[NewInstance],
    answers: &mut [Answer],
) -> Result<(), sqlx::Error> {
    let lost: Vec<(usize, &str)> = entries
        .iter()
        .enumerate()
        .filter(|(at, _)| matches!(answers.get(*at), Some(Answer::LostRace)))
        .filter_map(|(at, entry)| Some((at, entry.correlation.as_ref()?.0.as_str())))
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    let keys: Vec<&str> = lost.iter().map(|(_, key)| *key).collect();
    let rows = sqlx::query(statements.find_holders.text())
        .bind(keys)
        .fetch_all(connection)
        .await?;
    for row in rows {
        let place: i64 = row.try_get("place")?;
        let index = usize::try_from(place - 1).map_err(|error| sqlx::Error::Decode(error.into()))?;
        let holder: i64 = row.try_get("id")?;
        if let Some(slot) = lost.get(index).and_then(|(at, _)| answers.get_mut(*at)) {
            *slot = Answer::Known(Inserted::Duplicate(InstanceId::new(holder)));
        }
    }
    Ok(())
}

/// A delay from the database's now, or an instant, in microseconds.
fn eligible(eligible: Eligible) -> (Option<i64>, Option<i64>) {
    match eligible {
        Eligible::In(delay) => (Some(microseconds(delay)), None),
        Eligible::At(instant) => {
            let since = instant.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            (None, Some(microseconds(since)))
        }
    }
}
