//! The calls that wake, end and look at instances from outside.

use std::fmt::Write as _;

use durable_core::InstanceId;
use durable_core::StoreError;
use durable_core::store::{OperationFate, Settlement, SignalFate, Target};

use super::told::told_woken;
use super::{MOST_ROUNDS, Player};
use crate::histories::call::{Act, Sent, Whom};
use crate::histories::vocabulary::{correlation_key, new_signal, operation, value};

impl Player {
    /// Nobody as long as there is no such instance.
    fn target(&self, whom: Whom) -> Result<Option<Target>, StoreError> {
        let from_newest = |all: &[InstanceId], position: usize| {
            let last = all.len().checked_sub(1)?;
            all.get(last - position % all.len()).copied()
        };
        let id = match whom {
            Whom::Instance(position) => from_newest(&self.instances, position),
            Whom::Parked(position) => from_newest(&self.parked, position),
            Whom::Ended(position) => from_newest(&self.ended, position),
            Whom::Claimed(position) => {
                let claimed: Vec<InstanceId> = self.fences.iter().map(|given| given.id).collect();
                from_newest(&claimed, position)
            }
            Whom::Key(key) => return Ok(Some(correlation_key(key)?.into())),
        };
        Ok(id.map(Target::Id))
    }

    pub(super) async fn deliver(&self, signals: &[Sent]) -> Result<String, StoreError> {
        let mut sent = Vec::new();
        for signal in signals {
            if let Some(target) = self.target(signal.whom)? {
                sent.push(new_signal(target, *signal)?);
            }
        }
        let delivered = self.store.deliver(sent).await?;
        let mut said = format!("{} answers", delivered.fates.len());
        for fate in delivered.fates {
            let _ = match fate {
                SignalFate::Stored(id) => write!(said, "\nstored for {}", self.name(id)),
                SignalFate::Duplicate(id) => write!(said, "\nduplicate for {}", self.name(id)),
                SignalFate::NoTarget => write!(said, "\nno target"),
            };
        }
        said.push_str(&told_woken(&delivered.woken));
        Ok(said)
    }

    pub(super) async fn operate(&mut self, whom: &[Whom], act: Act) -> Result<String, StoreError> {
        let mut targets = Vec::new();
        for one in whom {
            targets.extend(self.target(*one)?);
        }
        let operated = self.store.operate(targets, operation(act)).await?;
        let mut said = format!("{} answers to {act:?}", operated.fates.len());
        for fate in operated.fates {
            let _ = match fate {
                OperationFate::Applied(id) => {
                    if matches!(act, Act::Cancel { .. }) {
                        self.ended.push(id);
                    }
                    write!(said, "\napplied to {}", self.name(id))
                }
                OperationFate::Requested(id) => write!(said, "\nrequested of {}", self.name(id)),
                OperationFate::Unchanged(id, status) => {
                    write!(said, "\nunchanged {} is {status}", self.name(id))
                }
                OperationFate::Duplicate(id) => write!(said, "\nduplicate of {}", self.name(id)),
                OperationFate::NotFound => write!(said, "\nnot found"),
                other => write!(said, "\n{other:?}"),
            };
        }
        said.push_str(&told_woken(&operated.woken));
        Ok(said)
    }

    pub(super) async fn expire(&self, limit: usize) -> Result<String, StoreError> {
        let mut said = String::from("expired");
        for _ in 0..MOST_ROUNDS {
            let round = self.store.expire(limit).await?;
            let _ = write!(said, " {}{}", round.instances, told_woken(&round.woken));
            if !round.more {
                said.push_str(if round.next.is_some() {
                    ", some later"
                } else {
                    ", nothing later"
                });
                return Ok(said);
            }
        }
        Ok("says more for ever".to_owned())
    }

    pub(super) async fn settlements(&self) -> Result<String, StoreError> {
        let settlements = self.store.settlements(self.instances.clone()).await?;
        let mut said = format!("{} instances", settlements.len());
        for (position, settlement) in settlements.into_iter().enumerate() {
            let text = match settlement {
                None => "removed".to_owned(),
                Some(Settlement::Busy) => "busy".to_owned(),
                Some(Settlement::Parked) => "parked".to_owned(),
                Some(Settlement::Done(result)) => format!("done {}", value(&result)),
                Some(Settlement::Failed(failure)) => format!("failed {failure}"),
                Some(Settlement::Cancelled(failure)) => format!("cancelled {failure}"),
            };
            let _ = write!(said, "\n#{position} {text}");
        }
        Ok(said)
    }

    pub(super) async fn unfinished_children(&self) -> Result<String, StoreError> {
        let unfinished = self.store.unfinished_children(self.instances.clone()).await?;
        let names: Vec<String> = unfinished.into_iter().map(|id| self.name(id)).collect();
        Ok(format!("{} children {}", names.len(), names.join(" ")))
    }
}
