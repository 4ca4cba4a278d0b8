//! Asks the limiter for what steps need before they start: what queues up behind a running call is the next one, in the
//! order in which it was asked.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::permit::{Permit, Permits};
use super::policies::PolicySet;
use super::{Backend, Shared};
use crate::error::{Failure, FailureKind};
use crate::limiter::{Admission, AdmitRequest, GateUse, LimitKind, RateUse};
use crate::observe;
use crate::store::RateDemand;
use crate::types::ConcurrencyKey;

/// How many steps one call asks for at most.
const LARGEST_CALL: usize = 500;
/// While the limiter fails, it is asked this often; steps that need it wait (rule LIM-10).
const PAUSE: Duration = Duration::from_secs(1);

/// What one step needs.
pub(crate) struct Asked {
    pub(crate) gate: Option<ConcurrencyKey>,
    pub(crate) rate: Option<RateDemand>,
    /// The version of the policies under which it was claimed.
    pub(crate) version: i64,
    pub(crate) answer: oneshot::Sender<Decision>,
}

/// What one step gets.
pub(crate) enum Decision {
    /// It may start, with this permit if it asked for a slot.
    Go(Option<Permit>),
    /// It waits for this limit; somebody should look after a while.
    Wait { by: LimitKind, look_in: Duration },
    /// It can never start as it is; nobody else is held up.
    Unusable(Failure),
}

impl Asked {
    fn wait(self, look_in: Duration) {
        let by = if self.gate.is_some() {
            LimitKind::Gate
        } else {
            LimitKind::Rate
        };
        self.answer(Decision::Wait { by, look_in });
    }

    fn answer(self, decision: Decision) {
        // A step that was given up in between drops its permit here.
        let _ = self.answer.send(decision);
    }

    /// The request, or what its step gets without one.
    fn request(&self, policies: &PolicySet) -> Result<AdmitRequest, Decision> {
        let mut request = AdmitRequest {
            gate: None,
            rate: None,
        };
        if let Some(key) = &self.gate {
            // The gate was removed since the claim: the next one takes the key as one without a gate.
            let gone = Decision::Wait {
                by: LimitKind::Gate,
                look_in: Duration::ZERO,
            };
            let policy = policies.gate(key.limit_name()).ok_or(gone)?;
            request.gate = Some(GateUse {
                key: key.clone(),
                policy: Arc::clone(policy),
            });
        }
        if let Some(demand) = &self.rate {
            let name = demand.key.limit_name();
            let gone =
                || format!("no rate limit \"{name}\" is configured any more; configure it, and it starts");
            let policy = policies.rate(name).ok_or_else(|| unusable(gone()))?;
            request.rate = Some(RateUse {
                key: demand.key.clone(),
                policy: Arc::clone(policy),
                weight: demand.weight,
            });
        }
        Ok(request)
    }
}

fn unusable(message: String) -> Decision {
    Decision::Unusable(Failure::new(FailureKind::Limit, message))
}

pub(super) struct Admitter {
    shared: Arc<Shared>,
    permits: Arc<Permits>,
    /// The limiter has failed, and is asked again from then on.
    not_before: Option<Instant>,
    told: bool,
}

impl Admitter {
    pub(super) fn new(shared: &Arc<Shared>, permits: &Arc<Permits>) -> Self {
        Self {
            shared: Arc::clone(shared),
            permits: Arc::clone(permits),
            not_before: None,
            told: false,
        }
    }

    pub(super) async fn run(mut self, mut receiver: mpsc::UnboundedReceiver<Asked>) {
        let mut batch = Vec::new();
        while receiver.recv_many(&mut batch, LARGEST_CALL).await > 0 {
            self.decide(std::mem::take(&mut batch)).await;
        }
    }

    async fn decide(&mut self, batch: Vec<Asked>) {
        let Some(backend) = self.shared.backend.clone() else {
            if !std::mem::replace(&mut self.told, true) {
                tracing::error!(
                    "steps with a gate or a rate limit were claimed, but this engine has no limiter; give it one, \
                     or do not let it serve their queue"
                );
            }
            batch.into_iter().for_each(|asked| asked.wait(PAUSE));
            return;
        };
        if self.not_before.is_some_and(|instant| Instant::now() < instant) {
            batch.into_iter().for_each(|asked| asked.wait(PAUSE));
            return;
        }
        let version = batch.iter().map(|asked| asked.version).max().unwrap_or(0);
        let policies = match self.shared.policies.at_least(version).await {
            Ok(policies) => policies,
            Err(error) => {
                observe::store_error("limits", &error);
                batch.into_iter().for_each(|asked| asked.wait(PAUSE));
                return;
            }
        };
        let (mut requests, mut waiting) = (Vec::new(), Vec::new());
        for asked in batch {
            match asked.request(&policies) {
                Ok(request) => {
                    requests.push(request);
                    waiting.push(asked);
                }
                Err(decision) => {
                    if matches!(decision, Decision::Unusable(_)) {
                        observe::limit_unusable();
                    }
                    asked.answer(decision);
                }
            }
        }
        if !requests.is_empty() {
            self.admit(&backend, requests, waiting).await;
        }
    }

    async fn admit(&mut self, backend: &Backend, requests: Vec<AdmitRequest>, waiting: Vec<Asked>) {
        let admitted = async {
            let holder = backend.holder().await?;
            holder.admit(requests.clone()).await
        };
        match admitted.await {
            Ok(admissions) => {
                self.not_before = None;
                for ((asked, request), admission) in waiting.into_iter().zip(&requests).zip(admissions) {
                    observe::admission(request, &admission);
                    let decision = self.decision(&asked, admission);
                    asked.answer(decision);
                }
            }
            Err(error) => {
                observe::limiter_error("admit", &error);
                self.not_before = Some(Instant::now() + PAUSE);
                waiting.into_iter().for_each(|asked| asked.wait(PAUSE));
            }
        }
    }

    fn decision(&self, asked: &Asked, admission: Admission) -> Decision {
        match admission {
            Admission::Admitted(slot) => Decision::Go(slot.map(|slot| self.permits.hold(slot))),
            Admission::Denied { by, look_in } => Decision::Wait {
                by,
                // Room may have come between the denial and the wait: of that nobody else would tell.
                look_in: look_in.unwrap_or(match by {
                    LimitKind::Gate => Duration::ZERO,
                    LimitKind::Rate => LONG,
                }),
            },
            Admission::TooHeavy { burst } => {
                observe::limit_unusable();
                let weight = asked.rate.as_ref().map_or(0, |demand| demand.weight);
                unusable(format!(
                    "its weight {weight} is above the burst of its rate limit, which is {burst}; raise the burst, and it \
                     starts"
                ))
            }
        }
    }
}

/// When to look at a rate limit that never refills: its policy may change.
const LONG: Duration = Duration::from_secs(5);
