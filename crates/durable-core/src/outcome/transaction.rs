//! Committing an outcome in a transaction of the step's own.

use super::Outcome;
use crate::machine::{Machine, StepResult};
use crate::store::OutcomeTransaction;

/// Commits the outcome of a step in a transaction that the step has opened in the store's own database: what the step
/// wrote and what follows are committed both or neither (rule OPS-8). A store's crate says how to make the
/// transaction.
///
/// Such a step holds a connection from its first write to the commit, and its outcome is committed alone, so use it
/// for steps that write, and open the transaction late. An error as `outcome` rolls the transaction back and goes to
/// the error handler. If the claim was lost, the transaction is rolled back; if the database was busy, it is rolled
/// back and the step runs again. A step that says [`ahead`](super::Next::ahead) goes through the queue.
///
/// # Errors
/// Those of `outcome`; an outcome that already carries a transaction.
pub fn with_transaction<M: Machine>(
    transaction: impl OutcomeTransaction + 'static,
    outcome: StepResult<M>,
) -> StepResult<M> {
    match outcome? {
        Outcome::WithTransaction(_) => {
            Err("the outcome already carries a transaction; it can be committed in one only".into())
        }
        outcome => Ok(Outcome::WithTransaction(WithTransaction {
            transaction: Box::new(transaction),
            outcome: Box::new(outcome),
        })),
    }
}

/// See [`with_transaction`].
pub struct WithTransaction<M: Machine> {
    pub(crate) transaction: Box<dyn OutcomeTransaction>,
    pub(crate) outcome: Box<Outcome<M>>,
}
