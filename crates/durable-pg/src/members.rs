//! Processes that reach each other directly (rule POKE-2).

use std::collections::BTreeSet;
use std::time::Duration;

use durable_core::QueueName;
use durable_core::store::{Meeting, Member, Secret, Serves};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::connect::Shared;
use crate::values::{decode_error, microseconds, unsigned};

pub(crate) async fn meet(
    shared: &Shared,
    member: &Member,
    absent_after: Duration,
) -> Result<Meeting, sqlx::Error> {
    let queues: Vec<String> = member.serves.queues.iter().map(ToString::to_string).collect();
    let rows = sqlx::query(shared.statements.meet.text())
        .bind(member.id.cast_signed())
        .bind(member.version.cast_signed())
        .bind(member.serves.deadlines)
        .bind(member.address.to_string())
        .bind(queues)
        .bind(microseconds(absent_after))
        .fetch_all(&mut *shared.connection().await?)
        .await?;
    let first = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    Ok(Meeting {
        clock: Duration::from_micros(unsigned(first.try_get("clock")?)),
        secrets: secrets(first)?,
        others: rows
            .iter()
            .filter_map(|row| other(row).transpose())
            .collect::<Result<_, _>>()?,
    })
}

fn secrets(row: &PgRow) -> Result<Vec<Secret>, sqlx::Error> {
    let numbers: Vec<i64> = row.try_get("secret_numbers")?;
    let keys: Vec<Vec<u8>> = row.try_get("secrets")?;
    let ages: Vec<i64> = row.try_get("secret_ages")?;
    let together = numbers.into_iter().zip(keys).zip(ages);
    together
        .map(|((number, key), age)| {
            Ok(Secret {
                number: number.cast_unsigned(),
                key: key
                    .try_into()
                    .map_err(|_| sqlx::Error::Decode("a secret has another length than 32 bytes".into()))?,
                age: Duration::from_micros(unsigned(age)),
            })
        })
        .collect()
}

fn other(row: &PgRow) -> Result<Option<Member>, sqlx::Error> {
    let Some(id) = row.try_get::<Option<i64>, _>("id")? else {
        return Ok(None);
    };
    let address: String = row.try_get("address")?;
    let queues: Vec<String> = row.try_get("queues")?;
    let queues: Result<BTreeSet<QueueName>, _> = queues.into_iter().map(QueueName::new).collect();
    Ok(Some(Member {
        id: id.cast_unsigned(),
        version: row.try_get::<i64, _>("version")?.cast_unsigned(),
        address: address.parse().map_err(decode_error)?,
        serves: Serves {
            queues: queues.map_err(decode_error)?,
            deadlines: row.try_get("deadlines")?,
        },
    }))
}
