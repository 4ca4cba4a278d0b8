//! Gives outcomes that are blocked their place behind the key that has no room, in the same transaction (rule LIM-7).

use durable_core::store::{CommitFate, CommitRequest, Committed, Transition};
use sqlx::PgConnection;

use crate::connect::Shared;
use crate::values::microseconds;

pub(super) async fn set_aside(
    connection: &mut PgConnection,
    shared: &Shared,
    request: &CommitRequest,
    committed: &Committed,
) -> Result<(), sqlx::Error> {
    let (mut ids, mut kinds, mut looks) = (Vec::new(), Vec::new(), Vec::new());
    for (outcome, fate) in request.outcomes.iter().zip(&committed.fates) {
        if let (Transition::Blocked { by, look_in }, CommitFate::Committed) = (&outcome.transition, fate) {
            ids.push(outcome.id.get());
            kinds.push(by.as_str());
            looks.push(microseconds(*look_in));
        }
    }
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query(shared.statements.set_aside.text())
        .bind(ids)
        .bind(kinds)
        .bind(looks)
        .execute(connection)
        .await?;
    Ok(())
}
