//! What the cases about signals, deadlines, children and operators share.

use std::time::Duration;

use durable_core::store::{
    ClaimRequest, ClaimedInstance, CommitFate, Committed, Delivered, Expired, NewInstance, NewSignal,
    Operated, Operation, OperationFate, Signal, SignalFate, Target, Transition,
};
use durable_core::{
    Child, DeduplicationKey, Failure, FailureKind, InstanceId, QueueName, SignalName, Status,
};

use super::scene::{HOUR, Scene, cancelled, done, entry, failed, json, later, outcome, queue};

impl Scene {
    pub(super) async fn deliver(&self, signals: Vec<NewSignal>) -> Delivered {
        self.store.deliver(signals).await.expect("delivered")
    }

    /// Sends one signal to an instance, which must be there to receive it; the queues that were woken.
    pub(super) async fn send(&self, id: InstanceId, name: &'static str) -> Vec<QueueName> {
        let delivered = self.deliver(vec![signal(id, name)]).await;
        assert_eq!(delivered.fates, [SignalFate::Stored(id)]);
        delivered.woken
    }

    pub(super) async fn expire(&self, limit: usize) -> Expired {
        self.store.expire(limit).await.expect("expired")
    }

    pub(super) async fn operate(&self, targets: Vec<Target>, operation: Operation) -> Operated {
        self.store.operate(targets, operation).await.expect("operated")
    }

    /// One operation on one instance; the queues that were woken are compared too.
    pub(super) async fn operate_one(
        &self,
        id: InstanceId,
        operation: Operation,
        woken: &[QueueName],
    ) -> OperationFate {
        let operated = self.operate(vec![id.into()], operation).await;
        assert_eq!(operated.woken, woken);
        assert_eq!(operated.fates.len(), 1);
        operated.fates[0]
    }

    pub(super) async fn unfinished_children(&self, parents: &[InstanceId]) -> Vec<InstanceId> {
        let unfinished = self.store.unfinished_children(parents.to_vec());
        unfinished.await.expect("read")
    }

    /// Commits one transition for each of the claimed, all of which must stand.
    pub(super) async fn committed(&self, claimed: &[ClaimedInstance], transition: Transition) -> Committed {
        let outcomes = claimed.iter().map(|one| outcome(one, transition.clone()));
        let committed = self.try_commit_and_wake(self.worker, outcomes.collect(), Vec::new());
        let committed = committed.await.expect("the commit is answered");
        assert!(
            committed.fates.iter().all(|fate| *fate == CommitFate::Committed),
            "{committed:?}"
        );
        committed
    }

    /// The one instance of the default queue that may be claimed.
    pub(super) async fn claim_one(&self) -> ClaimedInstance {
        let mut claimed = self.claim(10).await;
        assert_eq!(claimed.len(), 1, "{claimed:?}");
        claimed.remove(0)
    }

    pub(super) async fn claim_children(&self, limit: usize) -> Vec<ClaimedInstance> {
        let request = ClaimRequest {
            queue: queue("children"),
            ..self.ask(limit)
        };
        self.answer(request).await.instances
    }

    /// Claims one child and ends it; the queues that were woken.
    pub(super) async fn end_child(&self, end: Transition) -> Vec<QueueName> {
        let claimed = self.claim_children(1).await;
        assert_eq!(claimed.len(), 1, "a child is there");
        self.committed(&claimed, end).await.woken
    }

    /// A new instance that waits. Nothing else of its queue may be due.
    pub(super) async fn parked(&self, names: &[&'static str], timeout: Option<Duration>) -> InstanceId {
        let id = self.insert_plain(1).await[0];
        let claimed = self.claim_one().await;
        self.committed(&[claimed], await_signals(names, timeout)).await;
        assert_eq!(self.status(id).await, Status::AwaitingSignal);
        id
    }

    /// A new instance with these children, and those of them that were inserted. Nothing else of its queue may be due.
    pub(super) async fn with_children(
        &self,
        children: Vec<NewInstance>,
        needed: Option<u32>,
    ) -> (InstanceId, Vec<InstanceId>) {
        let id = self.insert_plain(1).await[0];
        let claimed = self.claim_one().await;
        self.committed(&[claimed], fan_out(children, needed, None)).await;
        (id, self.unfinished_children(&[id]).await)
    }

    pub(super) async fn status(&self, id: InstanceId) -> Status {
        self.snapshot(id).await.status
    }

    /// Number and name of what is in the inbox.
    pub(super) async fn inbox(&self, id: InstanceId) -> Vec<(u32, String)> {
        numbered(&self.snapshot(id).await.inbox)
    }
}

/// One instance in each status that an operator may find.
pub(super) struct Statuses {
    pub(super) postponed: InstanceId,
    pub(super) executing: InstanceId,
    pub(super) awaiting_signal: InstanceId,
    pub(super) awaiting_children: InstanceId,
    pub(super) done: InstanceId,
    pub(super) failed: InstanceId,
    pub(super) cancelled: InstanceId,
}

impl Statuses {
    pub(super) async fn of(scene: &Scene) -> Self {
        let awaiting_signal = scene.parked(&["a"], Some(HOUR)).await;
        let (awaiting_children, _) = scene.with_children(vec![child()], None).await;
        let postponed = scene.insert_one(later()).await;
        let others = scene.insert_plain(4).await;
        let claimed = scene.claim(4).await;
        for (one, end) in claimed.iter().zip([done(), failed(), cancelled()]) {
            scene.committed(std::slice::from_ref(one), end).await;
        }
        Self {
            postponed,
            executing: others[3],
            awaiting_signal,
            awaiting_children,
            done: others[0],
            failed: others[1],
            cancelled: others[2],
        }
    }
}

pub(super) fn numbered(inbox: &[Signal]) -> Vec<(u32, String)> {
    inbox
        .iter()
        .map(|signal| (signal.number, signal.name.to_string()))
        .collect()
}

/// What [`numbered`] answers for these.
pub(super) fn expected(signals: &[(u32, &str)]) -> Vec<(u32, String)> {
    signals
        .iter()
        .map(|(number, name)| (*number, (*name).to_owned()))
        .collect()
}

pub(super) fn name(text: &'static str) -> SignalName {
    SignalName::new(text).expect("a valid name")
}

pub(super) fn names(texts: &[&'static str]) -> Vec<SignalName> {
    texts.iter().map(|text| name(text)).collect()
}

pub(super) fn signal(target: impl Into<Target>, text: &'static str) -> NewSignal {
    NewSignal {
        target: target.into(),
        name: name(text),
        payload: json("null"),
        deduplication_key: None,
    }
}

pub(super) fn once(target: impl Into<Target>, text: &'static str, key: &'static str) -> NewSignal {
    NewSignal {
        deduplication_key: Some(DeduplicationKey::new(key).expect("a valid key")),
        ..signal(target, text)
    }
}

pub(super) fn await_signals(texts: &[&'static str], timeout: Option<Duration>) -> Transition {
    Transition::Await {
        step: "woken".to_owned(),
        state: json("2"),
        signals: names(texts),
        timeout,
    }
}

pub(super) fn fan_out(
    children: Vec<NewInstance>,
    needed: Option<u32>,
    timeout: Option<Duration>,
) -> Transition {
    Transition::ScheduleChildren {
        step: "joined".to_owned(),
        state: json("3"),
        children,
        needed,
        timeout,
    }
}

/// A child, in a queue of its own.
pub(super) fn child() -> NewInstance {
    NewInstance {
        queue: queue("children"),
        ..entry()
    }
}

pub(super) fn cancel(text: &str) -> Operation {
    Operation::Cancel {
        failure: Failure::new(FailureKind::Cancelled, text),
    }
}

/// The queue of all but the children.
pub(super) fn default_queue() -> [QueueName; 1] {
    [queue("default")]
}

/// The children that a step sees, and how they stand.
pub(super) fn seen(children: &[Child]) -> Vec<(InstanceId, Status)> {
    children.iter().map(|child| (child.id, child.status)).collect()
}
