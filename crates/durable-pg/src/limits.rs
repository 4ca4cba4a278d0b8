//! Limits: their policies, the keys that instances wait for, and how instances carry them (rules LIM-1, LIM-7, LIM-8).

use std::sync::Arc;
use std::sync::PoisonError;
use std::time::Duration;

use durable_core::store::{
    BringBack, BroughtBack, DueKeys, KeyStanding, LimitKey, Limits, Policies, RateDemand,
};
use durable_core::{ConcurrencyKey, InstanceId, Limit, LimitKind, LimitName, LimitPolicy, RateKey};
use serde::Deserialize;
use sqlx::postgres::PgRow;
use sqlx::{Connection as _, Row as _};

use crate::connect::Shared;
use crate::values::{decode_error, microseconds, queues, unsigned};

/// What instances carry, one array per column; all of it `None` when none has any limit.
#[derive(Default)]
pub(crate) struct LimitColumns<'a> {
    pub(crate) concurrency: Option<Vec<Option<&'a str>>>,
    pub(crate) rates: Option<Vec<Option<&'a str>>>,
    pub(crate) weights: Option<Vec<Option<i32>>>,
}

pub(crate) fn limit_columns<'a>(limits: impl Iterator<Item = &'a Limits> + Clone) -> LimitColumns<'a> {
    if limits.clone().all(Limits::is_empty) {
        return LimitColumns::default();
    }
    let rate = |limits: &'a Limits| limits.rate.as_ref();
    LimitColumns {
        concurrency: Some(
            limits
                .clone()
                .map(|limits| limits.concurrency.as_ref().map(ConcurrencyKey::as_str))
                .collect(),
        ),
        rates: Some(
            limits
                .clone()
                .map(|limits| rate(limits).map(|rate| rate.key.as_str()))
                .collect(),
        ),
        weights: Some(
            limits
                .map(|limits| rate(limits).map(|rate| i32::try_from(rate.weight).unwrap_or(i32::MAX)))
                .collect(),
        ),
    }
}

/// What a claim says of an instance with limits.
#[derive(Deserialize)]
struct ClaimedLimits {
    concurrency_key: Option<String>,
    rate_key: Option<String>,
    weight: Option<i32>,
    gated: Option<bool>,
}

/// The limits of a claimed instance, and whether its concurrency key belongs to a gate.
pub(crate) fn limits(json: Option<String>) -> Result<(Limits, bool), sqlx::Error> {
    let Some(json) = json else {
        return Ok((Limits::default(), false));
    };
    let said: ClaimedLimits = serde_json::from_str(&json).map_err(decode_error)?;
    let limits = limits_of(said.concurrency_key, said.rate_key, said.weight)?;
    Ok((limits, said.gated.unwrap_or(false)))
}

pub(crate) fn limits_of(
    concurrency: Option<String>,
    rate: Option<String>,
    weight: Option<i32>,
) -> Result<Limits, sqlx::Error> {
    let rate = match rate {
        Some(key) => Some(RateDemand {
            key: RateKey::new(key).map_err(decode_error)?,
            weight: u32::try_from(weight.unwrap_or(1)).map_err(decode_error)?,
        }),
        None => None,
    };
    Ok(Limits {
        concurrency: concurrency
            .map(ConcurrencyKey::new)
            .transpose()
            .map_err(decode_error)?,
        rate,
    })
}

/// The keys that were freed, as a statement answers them.
pub(crate) fn freed(keys: Option<Vec<String>>) -> Result<Vec<ConcurrencyKey>, sqlx::Error> {
    keys.unwrap_or_default()
        .into_iter()
        .map(|key| ConcurrencyKey::new(key).map_err(decode_error))
        .collect()
}

/// The kind of a key, as its tables call it.
const fn key_kind(key: &LimitKey) -> &'static str {
    match key {
        LimitKey::Concurrency(_) => "concurrency",
        LimitKey::Rate(_) => "rate",
    }
}

fn read_key(kind: &str, key: String) -> Result<LimitKey, sqlx::Error> {
    match kind {
        "concurrency" => ConcurrencyKey::new(key).map(LimitKey::Concurrency),
        _ => RateKey::new(key).map(LimitKey::Rate),
    }
    .map_err(decode_error)
}

fn place(row: &PgRow) -> Result<usize, sqlx::Error> {
    usize::try_from(row.try_get::<i64, _>("place")? - 1).map_err(decode_error)
}

fn duration(microseconds: i64) -> Duration {
    Duration::from_micros(unsigned(microseconds))
}

pub(crate) async fn bring_back(shared: &Shared, keys: &[BringBack]) -> Result<Vec<BroughtBack>, sqlx::Error> {
    let mut brought = vec![BroughtBack::default(); keys.len()];
    if keys.is_empty() {
        return Ok(brought);
    }
    let rows = sqlx::query(shared.statements.bring_back.text())
        .bind(keys.iter().map(|one| key_kind(&one.key)).collect::<Vec<_>>())
        .bind(keys.iter().map(|one| one.key.as_str()).collect::<Vec<_>>())
        .bind(
            keys.iter()
                .map(|one| i32::try_from(one.room).unwrap_or(i32::MAX))
                .collect::<Vec<_>>(),
        )
        .bind(
            keys.iter()
                .map(|one| one.unit.map(microseconds))
                .collect::<Vec<_>>(),
        )
        .fetch_all(&mut *shared.connection().await?)
        .await?;
    for row in rows {
        if let Some(one) = brought.get_mut(place(&row)?) {
            *one = BroughtBack {
                instances: unsigned(row.try_get("instances")?),
                queues: queues(
                    row.try_get::<Option<Vec<String>>, _>("queues")?
                        .unwrap_or_default(),
                )?,
                look_in: row.try_get::<Option<i64>, _>("look_us")?.map(duration),
            };
        }
    }
    Ok(brought)
}

pub(crate) async fn due_keys(shared: &Shared, limit: usize) -> Result<DueKeys, sqlx::Error> {
    let rows = sqlx::query(shared.statements.due_keys.text())
        .bind(i32::try_from(limit).unwrap_or(i32::MAX))
        .fetch_all(&mut *shared.connection().await?)
        .await?;
    let mut due = DueKeys::default();
    for row in rows {
        due.next = row.try_get::<Option<i64>, _>("next_us")?.map(duration);
        due.limits_version = row.try_get("version")?;
        if let Some(kind) = row.try_get::<Option<String>, _>("kind")? {
            due.keys.push(read_key(&kind, row.try_get("key")?)?);
        }
    }
    Ok(due)
}

pub(crate) async fn set_limit(shared: &Shared, policy: &LimitPolicy) -> Result<i64, sqlx::Error> {
    let (capacity, allowed, period) = match policy.limit {
        Limit::Rate {
            allowed,
            period,
            burst,
        } => (burst, Some(allowed), Some(period)),
        Limit::Gate { capacity } => (capacity, None, None),
        _ => {
            return Err(sqlx::Error::Protocol(format!(
                "{:?} is not known here",
                policy.limit
            )));
        }
    };
    let mut connection = shared.connection().await?;
    let mut transaction = connection.begin().await?;
    sqlx::query(shared.statements.lock_limits.text())
        .execute(&mut *transaction)
        .await?;
    let version: i64 = sqlx::query_scalar(shared.statements.set_limit.text())
        .bind(policy.limit.kind().as_str())
        .bind(policy.name.as_str())
        .bind(i32::try_from(capacity).unwrap_or(i32::MAX))
        .bind(allowed.map(|allowed| i32::try_from(allowed).unwrap_or(i32::MAX)))
        .bind(period.map(microseconds))
        .bind(i16::try_from(policy.shards.max(1)).unwrap_or(i16::MAX))
        .fetch_one(&mut *transaction)
        .await?;
    look_again(&mut transaction, shared, policy.limit.kind(), &policy.name).await?;
    transaction.commit().await?;
    Ok(version)
}

pub(crate) async fn remove_limit(
    shared: &Shared,
    kind: LimitKind,
    name: &LimitName,
) -> Result<bool, sqlx::Error> {
    let mut connection = shared.connection().await?;
    let mut transaction = connection.begin().await?;
    sqlx::query(shared.statements.lock_limits.text())
        .execute(&mut *transaction)
        .await?;
    let version: Option<i64> = sqlx::query_scalar(shared.statements.remove_limit.text())
        .bind(kind.as_str())
        .bind(name.as_str())
        .fetch_optional(&mut *transaction)
        .await?;
    look_again(&mut transaction, shared, kind, name).await?;
    transaction.commit().await?;
    Ok(version.is_some())
}

async fn look_again(
    connection: &mut sqlx::PgConnection,
    shared: &Shared,
    kind: LimitKind,
    name: &LimitName,
) -> Result<(), sqlx::Error> {
    let keys = match kind {
        LimitKind::Gate => "concurrency",
        LimitKind::Rate => "rate",
    };
    sqlx::query(shared.statements.look_again.text())
        .bind(keys)
        .bind(name.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

pub(crate) async fn policies(shared: &Shared) -> Result<Policies, sqlx::Error> {
    let rows = sqlx::query(shared.statements.limits.text())
        .fetch_all(&mut *shared.connection().await?)
        .await?;
    let mut policies = Policies::default();
    for row in rows {
        policies.version = row.try_get("newest")?;
        let Some(kind) = row.try_get::<Option<String>, _>("kind")? else {
            continue;
        };
        let number = |column: &str| -> Result<u32, sqlx::Error> {
            u32::try_from(row.try_get::<i32, _>(column)?).map_err(decode_error)
        };
        let limit = match kind.as_str() {
            "gate" => Limit::gate(number("capacity")?),
            _ => Limit::rate(number("allowed")?, duration(row.try_get("period_us")?))
                .burst(number("capacity")?),
        };
        policies.limits.push(Arc::new(LimitPolicy {
            name: LimitName::new(row.try_get::<String, _>("name")?).map_err(decode_error)?,
            limit,
            shards: u16::try_from(row.try_get::<i16, _>("shards")?).map_err(decode_error)?,
            version: row.try_get("version")?,
        }));
    }
    Ok(policies)
}

pub(crate) async fn pause_key(
    shared: &Shared,
    key: &LimitKey,
    pause: Option<Duration>,
) -> Result<(), sqlx::Error> {
    sqlx::query(shared.statements.pause_key.text())
        .bind(key_kind(key))
        .bind(key.as_str())
        .bind(pause.map(microseconds))
        .execute(&mut *shared.connection().await?)
        .await?;
    Ok(())
}

pub(crate) async fn keys(shared: &Shared, keys: &[LimitKey]) -> Result<Vec<KeyStanding>, sqlx::Error> {
    let rows = sqlx::query(shared.statements.keys.text())
        .bind(keys.iter().map(key_kind).collect::<Vec<_>>())
        .bind(keys.iter().map(LimitKey::as_str).collect::<Vec<_>>())
        .fetch_all(&mut *shared.connection().await?)
        .await?;
    let mut standings = vec![KeyStanding::default(); keys.len()];
    for row in rows {
        let paused: Option<i64> = row.try_get("paused_us")?;
        if let Some(standing) = standings.get_mut(place(&row)?) {
            *standing = KeyStanding {
                waiting: unsigned(row.try_get::<i32, _>("waiting")?.into()),
                holder: row.try_get::<Option<i64>, _>("holder_id")?.map(InstanceId::new),
                paused_for: paused.map(duration).filter(|left| !left.is_zero()),
            };
        }
    }
    Ok(standings)
}

/// Goes through all keys, a batch per call, and begins anew at the end.
pub(crate) async fn forget_keys(shared: &Shared, limit: usize) -> Result<u64, sqlx::Error> {
    let mark = shared
        .forget_mark
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let (kind, key) = mark.unwrap_or_else(|| ("concurrency".to_owned(), String::new()));
    let row = sqlx::query(shared.statements.forget_keys.text())
        .bind(kind)
        .bind(key)
        .bind(i32::try_from(limit).unwrap_or(i32::MAX))
        .fetch_one(&mut *shared.connection().await?)
        .await?;
    let seen = unsigned(row.try_get("seen")?);
    let kind: Option<String> = row.try_get("kind")?;
    let key: Option<String> = row.try_get("key")?;
    let more = usize::try_from(seen).is_ok_and(|seen| seen >= limit);
    *shared.forget_mark.lock().unwrap_or_else(PoisonError::into_inner) = kind.zip(key).filter(|_| more);
    Ok(unsigned(row.try_get("forgotten")?))
}
