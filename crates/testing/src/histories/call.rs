//! The calls of a history, without the ids and numbers that a store gives: those are named by when they came.

use std::fmt;

/// One call to a store. Workers, instances, claims and fences are named by position, counted around when
/// there are fewer: so every part of a history is a history, which is what makes shrinking possible.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// Inserts a batch.
    Insert(Vec<Entry>),
    /// Claims as a worker.
    Claim {
        /// Who claims.
        worker: usize,
        /// From which queue.
        queue: usize,
        /// For which machines, in the order of the request.
        machines: Vec<usize>,
        /// At most this many.
        limit: usize,
    },
    /// Commits outcomes as a worker.
    Commit {
        /// Who commits: a position among the workers that hold something.
        worker: usize,
        /// What, in the order of the batch.
        outcomes: Vec<Outcome>,
        /// Whether to close every claim of the worker of which nothing is left then.
        close: bool,
    },
    /// Asks what became of outcomes.
    Resolve {
        /// Who asks.
        worker: usize,
        /// Of which instances.
        picks: Vec<Pick>,
    },
    /// Gives claims back as a worker; claims of others are named too, and must not be given back.
    Release {
        /// Who releases.
        worker: usize,
        /// Positions among all claims of the history.
        claims: Vec<usize>,
    },
    /// Registers another worker, whose lease is an hour, or over as soon as it begins.
    Register {
        /// Whether the lease is over.
        ended: bool,
    },
    /// A heartbeat for an hour.
    Beat {
        /// Whose.
        worker: usize,
    },
    /// Declares a worker dead.
    DeclareDead {
        /// Whom.
        worker: usize,
    },
    /// Removes a worker.
    Retire {
        /// Whom.
        worker: usize,
    },
    /// Reaps, in rounds of a limit, until nothing is left.
    Reap {
        /// The limit of a round.
        limit: usize,
    },
    /// Collects, in rounds of a limit, until nothing is left. What is not named is kept for an hour.
    Collect {
        /// Whether done instances go at once.
        done: bool,
        /// Whether failed instances go at once.
        failed: bool,
        /// Whether cancelled instances go at once.
        cancelled: bool,
        /// The limit of a round.
        limit: usize,
    },
    /// Makes waiting instances due.
    MakeDue {
        /// Of which queue.
        queue: usize,
        /// Of which machines.
        machines: Vec<usize>,
    },
    /// Looks a key up.
    Find {
        /// Which.
        key: usize,
    },
    /// Sends signals.
    Deliver(Vec<Sent>),
    /// Does something to instances, as an operator.
    Operate {
        /// To whom.
        whom: Vec<Whom>,
        /// What.
        act: Act,
    },
    /// Fires deadlines, in rounds of a limit, until nothing is left.
    Expire {
        /// The limit of a round.
        limit: usize,
    },
    /// Asks how far every instance of the history is, removed ones too.
    Settlements,
    /// Asks for the children that are left, of all instances of the history.
    UnfinishedChildren,
    /// Reads every instance of the history, removed ones too.
    Snapshots,
}

/// Whom a signal or an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// An instance, counted from the newest.
    Instance(usize),
    /// An instance that was parked once, counted from the last that was.
    Parked(usize),
    /// An instance that was claimed once, counted from the last that was.
    Claimed(usize),
    /// An instance that failed or was cancelled once, counted from the last that did.
    Ended(usize),
    /// Who holds a key.
    Key(usize),
}

/// One signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Whom it is for.
    pub whom: Whom,
    /// Its name.
    pub name: usize,
    /// Its deduplication key.
    pub key: Option<usize>,
}

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is named after the operation that it stands for")]
pub enum Act {
    Cancel { reason: usize },
    RetryNow,
    Wake,
    FireDeadline,
    Restart,
}

/// How long a wait lasts at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// It has no end.
    None,
    /// It is over as soon as it begins.
    Zero,
    /// An hour.
    Hour,
}

/// One entry of an insert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its queue.
    pub queue: usize,
    /// Its machine.
    pub machine: usize,
    /// Its priority.
    pub priority: i16,
    /// Eligible in an hour, not now.
    pub later: bool,
    /// Its key and scope, as positions in the vocabulary of the player.
    pub key: Option<(usize, usize)>,
    /// A state that no store can keep.
    pub bad: bool,
}

/// One outcome of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of which instance, with which fence.
    pub pick: Pick,
    /// What it writes.
    pub change: Change,
}

/// A fence that a claim has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// One that the worker may still use.
    Open(usize),
    /// One of the worker's own, used or not, counted from the newest.
    Own(usize),
    /// Any, of any worker, of any time.
    Any(usize),
    /// One that the worker may still use, with an older fencing number.
    Older(usize),
    /// One that the worker may still use, in a claim that never was.
    Unclaimed(usize),
}

/// What an outcome writes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is named after the transition that it stands for"
)]
pub enum Change {
    Next {
        later: bool,
    },
    Retry {
        state: bool,
        later: bool,
        failure: bool,
    },
    GiveBack,
    Ahead,
    /// Names are positions in the vocabulary of the player.
    Await {
        names: Vec<usize>,
        timeout: Timeout,
    },
    ScheduleChildren {
        children: Vec<Entry>,
        needed: Option<u32>,
        timeout: Timeout,
    },
    Done,
    Failed,
    Cancelled,
    /// A next whose step no store can keep.
    Refused,
}

impl Call {
    /// The kind of call, in one word.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Insert(_) => "insert",
            Self::Claim { .. } => "claim",
            Self::Commit { .. } => "commit",
            Self::Resolve { .. } => "resolve",
            Self::Release { .. } => "release",
            Self::Register { .. } => "register",
            Self::Beat { .. } => "beat",
            Self::DeclareDead { .. } => "declare_dead",
            Self::Retire { .. } => "retire",
            Self::Reap { .. } => "reap",
            Self::Collect { .. } => "collect",
            Self::MakeDue { .. } => "make_due",
            Self::Find { .. } => "find",
            Self::Deliver(_) => "deliver",
            Self::Operate { .. } => "operate",
            Self::Expire { .. } => "expire",
            Self::Settlements => "settlements",
            Self::UnfinishedChildren => "unfinished_children",
            Self::Snapshots => "snapshots",
        }
    }

    /// The call, and each of its entries.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Insert(entries) => 1 + entries.len(),
            Self::Commit { outcomes, .. } => {
                1 + outcomes
                    .iter()
                    .map(|outcome| 1 + outcome.change.children())
                    .sum::<usize>()
            }
            Self::Deliver(signals) => 1 + signals.len(),
            Self::Operate { whom, .. } => 1 + whom.len(),
            _ => 1,
        }
    }

    /// The same call with one entry less, for each of its entries.
    pub(super) fn smaller(&self) -> Vec<Self> {
        match self {
            Self::Insert(entries) => one_less(entries).map(Self::Insert).collect(),
            Self::Commit {
                worker,
                outcomes,
                close,
            } => one_less(outcomes)
                .chain(one_child_less(outcomes))
                .map(|outcomes| Self::Commit {
                    worker: *worker,
                    outcomes,
                    close: *close,
                })
                .collect(),
            Self::Deliver(signals) => one_less(signals).map(Self::Deliver).collect(),
            Self::Operate { whom, act } => one_less(whom)
                .map(|whom| Self::Operate { whom, act: *act })
                .collect(),
            _ => Vec::new(),
        }
    }
}

impl Change {
    /// How many children it schedules.
    const fn children(&self) -> usize {
        match self {
            Self::ScheduleChildren { children, .. } => children.len(),
            _ => 0,
        }
    }

    /// The same with one child less, for each of its children.
    fn smaller(&self) -> Vec<Self> {
        match self {
            Self::ScheduleChildren {
                children,
                needed,
                timeout,
            } => one_less(children)
                .map(|children| Self::ScheduleChildren {
                    children,
                    needed: *needed,
                    timeout: *timeout,
                })
                .collect(),
            _ => Vec::new(),
        }
    }
}

fn one_child_less(outcomes: &[Outcome]) -> impl Iterator<Item = Vec<Outcome>> {
    outcomes.iter().enumerate().flat_map(move |(at, outcome)| {
        outcome.change.smaller().into_iter().map(move |change| {
            let mut all = outcomes.to_vec();
            all[at].change = change;
            all
        })
    })
}

fn one_less<T: Clone>(all: &[T]) -> impl Iterator<Item = Vec<T>> {
    (0..all.len()).map(|left_out| {
        let mut rest = all.to_vec();
        rest.remove(left_out);
        rest
    })
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Insert(entries) => {
                write!(formatter, "insert")?;
                for entry in entries {
                    write!(formatter, "\n      {entry:?}")?;
                }
                Ok(())
            }
            Self::Commit {
                worker,
                outcomes,
                close,
            } => {
                write!(formatter, "commit by worker {worker}, close {close}")?;
                for outcome in outcomes {
                    write!(formatter, "\n      {:?}: {:?}", outcome.pick, outcome.change)?;
                }
                Ok(())
            }
            Self::Deliver(signals) => {
                write!(formatter, "deliver")?;
                for signal in signals {
                    write!(formatter, "\n      {signal:?}")?;
                }
                Ok(())
            }
            other => write!(formatter, "{other:?}"),
        }
    }
}
