//! One try to commit outcomes, and what is known after it (rules OUT-3, RUN-1).

use std::time::Duration;

use tokio::time::Instant;

use super::finished::Finished;
use super::settler::Settler;
use crate::error::StoreError;
use crate::observe;
use crate::store::{CommitFate, CommitRequest, Patience, Resolution, Store, Transition};
use crate::types::ClaimNumber;

/// The first pause after a failed call; doubled up to [`LONGEST_PAUSE`].
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause after a failed call, and before a locked row is tried again.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What is known after one try.
pub(crate) enum Attempt {
    /// Some fates at least.
    Known {
        /// What became of each; `None` of one that was not committed and whose claim stands.
        fates: Vec<Option<CommitFate>>,
        /// The claim of those that run ahead.
        ahead: Option<ClaimNumber>,
    },
    /// Nothing was committed; the same may succeed later.
    NotNow,
    /// Nothing was committed, because of one of them.
    Refused(String),
}

/// Tries to commit outcomes of one worker together, and says what became of them, also when the answer is lost.
pub(crate) async fn commit_once(settler: &Settler, batch: &[Finished], patience: Patience) -> Attempt {
    let (store, local) = (settler.store.as_ref(), &settler.local);
    let Some(first) = batch.first() else {
        return Attempt::NotNow;
    };
    let (worker, claims) = (first.worker.id, &first.worker.claims);
    let runs_ahead = |one: &Finished| matches!(one.transition, Transition::Ahead { .. });
    let ahead = batch.iter().any(runs_ahead).then(|| claims.ask());
    let closed = claims.take_closed();
    let request = CommitRequest {
        ahead,
        patience,
        ..CommitRequest::new(
            worker,
            batch.iter().map(Finished::commit).collect::<Vec<_>>(),
            closed.clone(),
        )
    };
    let started = Instant::now();
    let attempt = match store.commit(request).await {
        Ok(committed) => {
            observe::commit(batch.len(), started.elapsed());
            committed.woken.iter().for_each(|queue| local.poke(queue));
            settler.limits.freed(committed.freed);
            let fates = committed.fates.into_iter().map(Some).collect();
            Attempt::Known { fates, ahead }
        }
        Err(error) => {
            claims.put_back(closed);
            observe::store_error("commit", &error);
            match error {
                StoreError::Refused { message } => Attempt::Refused(message),
                StoreError::WorkerDead => Attempt::Known {
                    fates: vec![Some(CommitFate::Stale); batch.len()],
                    ahead,
                },
                StoreError::Unknown { .. } => match resolve(store, batch).await {
                    Some(fates) => {
                        // Which parents it woke was in the answer, and which keys it freed.
                        local.poke_all();
                        settler.limits.look_at(Instant::now());
                        Attempt::Known { fates, ahead }
                    }
                    None => Attempt::NotNow,
                },
                StoreError::Transient { .. } | StoreError::Fatal { .. } => Attempt::NotNow,
            }
        }
    };
    match (&attempt, ahead) {
        (Attempt::Known { fates, .. }, Some(number)) => {
            let committed = |(one, fate): &(&Finished, &Option<CommitFate>)| {
                runs_ahead(one) && **fate == Some(CommitFate::Committed)
            };
            claims.answered(number, batch.iter().zip(fates).filter(committed).count());
        }
        (_, Some(number)) => claims.unanswered(number),
        (_, None) => {}
    }
    attempt
}

/// Says what became of outcomes whose commit gave no answer (rule OUT-3). It asks before it tries again, so that an
/// instance that runs ahead is known to be under the number of this try. `None` when the store cannot say.
pub(crate) async fn resolve(store: &dyn Store, batch: &[Finished]) -> Option<Vec<Option<CommitFate>>> {
    let worker = batch.first()?.worker.id;
    let asked: Vec<_> = batch
        .iter()
        .map(|one| (one.work.instance.id, one.work.instance.fence))
        .collect();
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match store.resolve(worker, asked.clone()).await {
            Ok(resolutions) => {
                let fate = |resolution| match resolution {
                    Resolution::Committed => Some(CommitFate::Committed),
                    Resolution::NotCommitted => None,
                    Resolution::Lost => Some(CommitFate::Stale),
                };
                return Some(resolutions.into_iter().map(fate).collect());
            }
            Err(error) => error,
        };
        observe::store_error("resolve", &error);
        if !error.is_transient() {
            return None;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
