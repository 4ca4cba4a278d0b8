//! Waiting for instances.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout, timeout_at};

use super::Client;
use crate::error::{Failure, WaitError};
use crate::runtime::waiters::Look;
use crate::store::Settlement;
use crate::types::{InstanceId, Json, MAX_DURATION};

/// How an instance settled: it is finished, or waits for somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled<R> {
    /// It is done, with its result.
    Done(R),
    /// It failed.
    Failed(Failure),
    /// It was cancelled.
    Cancelled(Failure),
    /// It waits for signals or children.
    Parked,
}

/// How long the last look takes at most, when the limit of a wait has passed.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// The answers are always read from the store. What an engine of this process finishes or parks is answered at once,
/// what another one does within 25 ms: while anybody in this process waits, the store is asked once per 25 ms for all.
/// No engine is needed in the process. While the store is away, the wait goes on (rules WAIT-1, WAIT-2).
impl Client {
    /// Waits until an instance is finished or parked, at most for `limit`.
    ///
    /// # Errors
    /// [`WaitError`]: not found, still at work after `limit`, a result of another type, or the store.
    ///
    /// # Cancel safety
    /// Nothing is lost: the work goes on, and waiting again is the retry.
    pub async fn settled<R: DeserializeOwned>(
        &self,
        id: InstanceId,
        limit: Duration,
    ) -> Result<Settled<R>, WaitError> {
        Ok(match self.wait(id, limit, false).await? {
            Settlement::Done(result) => Settled::Done(decode(id, &result)?),
            Settlement::Failed(failure) => Settled::Failed(failure),
            Settlement::Cancelled(failure) => Settled::Cancelled(failure),
            Settlement::Parked | Settlement::Busy => Settled::Parked,
        })
    }

    /// Waits until an instance is done, at most for `limit`, and gives its result. It waits on while the instance is
    /// parked.
    ///
    /// # Errors
    /// [`WaitError`]: failed or cancelled, not found, still at work or parked after `limit`, a result of another
    /// type, or the store.
    ///
    /// # Cancel safety
    /// Nothing is lost: the work goes on, and waiting again is the retry.
    pub async fn result<R: DeserializeOwned>(&self, id: InstanceId, limit: Duration) -> Result<R, WaitError> {
        match self.wait(id, limit, true).await? {
            Settlement::Done(result) => decode(id, &result),
            Settlement::Failed(failure) | Settlement::Cancelled(failure) => {
                Err(WaitError::Failed { id, failure })
            }
            Settlement::Parked | Settlement::Busy => Err(WaitError::Busy { id, waited: limit }),
        }
    }

    /// Waits until an instance is finished, or parked unless it waits through that.
    async fn wait(&self, id: InstanceId, limit: Duration, through: bool) -> Result<Settlement, WaitError> {
        let deadline = Instant::now() + limit.min(MAX_DURATION);
        let mut waiter = self.local.waiters.join(id);
        let store = self.store.as_ref();
        loop {
            let (look, last) = match timeout_at(deadline, waiter.next(store)).await {
                Ok(look) => (Some(look), false),
                Err(_elapsed) => match timeout(LAST_LOOK, waiter.last_look(store)).await {
                    Ok(look) => (look?, true),
                    Err(_elapsed) => (None, true),
                },
            };
            match look {
                Some(Look::Found(Some(Settlement::Parked))) if through && !last => {}
                Some(Look::Found(Some(Settlement::Parked))) if through => {
                    return Err(WaitError::Busy { id, waited: limit });
                }
                Some(Look::Found(Some(settlement))) => return Ok(settlement),
                Some(Look::Found(None)) => return Err(WaitError::NotFound { id }),
                Some(Look::Failed(error)) => return Err(error.into()),
                None => return Err(WaitError::Busy { id, waited: limit }),
            }
        }
    }
}

fn decode<R: DeserializeOwned>(id: InstanceId, result: &Json) -> Result<R, WaitError> {
    result.decode().map_err(|source| WaitError::Decode { id, source })
}
