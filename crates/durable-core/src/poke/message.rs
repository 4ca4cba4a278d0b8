//! What a message says, and its form between processes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::store::Serves;
use crate::types::{InstanceId, MAX_DURATION, QueueName};

/// The most bytes that a message may have: a NOTIFY of Postgres takes less than 8,000.
pub const LARGEST_MESSAGE: usize = 7_900;

/// One hint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Poke {
    /// A queue has work, in so much time from now.
    Work {
        /// The queue.
        queue: QueueName,
        /// In how much time; zero is now.
        due: Duration,
    },
    /// Any queue may have work now.
    Anything,
    /// A deadline of a wait is due in so much time from now.
    Deadline {
        /// In how much time.
        due: Duration,
    },
    /// The cancellation of an instance that executes was asked for.
    Cancel {
        /// Which instance.
        id: InstanceId,
    },
}

impl Poke {
    /// Whether it is of any use to a process that serves so much.
    #[must_use]
    pub fn concerns(&self, serves: &Serves) -> bool {
        match self {
            Self::Work { queue, .. } => serves.queues.contains(queue),
            Self::Anything => !serves.queues.is_empty() || serves.deadlines,
            Self::Deadline { .. } => serves.deadlines,
            Self::Cancel { .. } => !serves.queues.is_empty(),
        }
    }
}

/// Hints of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// A random number of the process, so that it knows its own echo.
    pub from: u64,
    /// The hints.
    pub pokes: Vec<Poke>,
}

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message of pokes: {0}")]
pub struct Malformed(String);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    from: u64,
    pokes: Vec<WirePoke>,
}

/// Short names: what is sent most has the fewest bytes. Times are milliseconds.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WirePoke {
    Work(String),
    Due(String, u64),
    Anything,
    Deadline(u64),
    Cancel(i64),
}

/// Rounded up: who wakes too early finds nothing.
fn milliseconds(due: Duration) -> u64 {
    u64::try_from(due.min(MAX_DURATION).as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

fn duration(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).min(MAX_DURATION)
}

impl WirePoke {
    fn of(poke: &Poke) -> Self {
        match poke {
            Poke::Work { queue, due } if due.is_zero() => Self::Work(queue.to_string()),
            Poke::Work { queue, due } => Self::Due(queue.to_string(), milliseconds(*due)),
            Poke::Anything => Self::Anything,
            Poke::Deadline { due } => Self::Deadline(milliseconds(*due)),
            Poke::Cancel { id } => Self::Cancel(id.get()),
        }
    }

    fn read(self) -> Result<Poke, Malformed> {
        let work = |queue, due| match QueueName::new(queue) {
            Ok(queue) => Ok(Poke::Work { queue, due }),
            Err(error) => Err(Malformed(error.to_string())),
        };
        match self {
            Self::Work(queue) => work(queue, Duration::ZERO),
            Self::Due(queue, due) => work(queue, duration(due)),
            Self::Anything => Ok(Poke::Anything),
            Self::Deadline(due) => Ok(Poke::Deadline { due: duration(due) }),
            Self::Cancel(id) => Ok(Poke::Cancel {
                id: InstanceId::new(id),
            }),
        }
    }
}

impl Message {
    /// The message as text: JSON.
    #[must_use]
    pub fn encode(&self) -> String {
        let pokes = self.pokes.iter().map(WirePoke::of).collect();
        let wire = Wire {
            from: self.from,
            pokes,
        };
        // Numbers and strings: there is nothing that could fail.
        serde_json::to_string(&wire).unwrap_or_default()
    }

    /// Reads what came from outside. Total: any bytes are a message or refused.
    ///
    /// # Errors
    /// [`Malformed`]: too large, not of this form, or with a value out of range.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > LARGEST_MESSAGE {
            return Err(Malformed(format!("{} bytes", bytes.len())));
        }
        let wire: Wire = serde_json::from_slice(bytes).map_err(|error| Malformed(error.to_string()))?;
        let pokes = wire.pokes.into_iter().map(WirePoke::read);
        Ok(Self {
            from: wire.from,
            pokes: pokes.collect::<Result<_, _>>()?,
        })
    }

    /// The pokes of one process in messages of which none is too large.
    #[must_use]
    pub fn pack(from: u64, pokes: Vec<Poke>) -> Vec<Self> {
        Self::pack_within(LARGEST_MESSAGE, from, pokes)
    }

    /// The pokes of one process in messages of at most so many bytes; a single poke that takes more is a message of its
    /// own.
    #[must_use]
    pub fn pack_within(largest: usize, from: u64, pokes: Vec<Poke>) -> Vec<Self> {
        // What a message without pokes takes, generously.
        const FRAME: usize = 64;
        let mut messages: Vec<Self> = Vec::new();
        let mut room = 0;
        for poke in pokes {
            let size =
                serde_json::to_string(&WirePoke::of(&poke)).map_or(LARGEST_MESSAGE, |text| text.len()) + 1;
            match messages.last_mut() {
                Some(message) if size <= room => message.pokes.push(poke),
                _ => {
                    room = largest.saturating_sub(FRAME);
                    messages.push(Self {
                        from,
                        pokes: vec![poke],
                    });
                }
            }
            room = room.saturating_sub(size);
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    fn work(name: String, due: Duration) -> Poke {
        let queue = QueueName::new(name).expect("a name");
        Poke::Work { queue, due }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let message = Message {
            from: u64::MAX,
            pokes: vec![
                work("a \"queue\" ☃".to_owned(), Duration::ZERO),
                work("b".to_owned(), MAX_DURATION),
                Poke::Anything,
                Poke::Deadline {
                    due: Duration::from_millis(7),
                },
                Poke::Cancel {
                    id: InstanceId::new(i64::MAX),
                },
            ],
        };
        assert_eq!(Message::decode(message.encode().as_bytes()), Ok(message));
    }

    #[test]
    fn messages_of_many_pokes_are_small_enough_and_lose_none() {
        // The longest name, of characters that take the most room.
        let pokes: Vec<Poke> = (0..500)
            .map(|number| work(format!("{number:0>3}{}", "\"".repeat(252)), Duration::ZERO))
            .collect();
        let messages = Message::pack(u64::MAX, pokes.clone());
        assert!(messages.len() < 60);
        for message in &messages {
            assert!(message.encode().len() <= LARGEST_MESSAGE);
        }
        let together: Vec<Poke> = messages.into_iter().flat_map(|message| message.pokes).collect();
        assert_eq!(together, pokes);
    }

    #[test]
    fn nothing_that_comes_from_outside_does_harm() {
        let good = Message {
            from: 3,
            pokes: vec![work("queue".to_owned(), Duration::from_secs(3)), Poke::Anything],
        };
        let good = good.encode().into_bytes();
        let mut random = SmallRng::seed_from_u64(1);
        for _ in 0..50_000 {
            let mut bytes = good.clone();
            for _ in 0..random.random_range(1..6) {
                let at = random.random_range(0..bytes.len());
                match random.random_range(0..3) {
                    0 => bytes[at] = random.random(),
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, random.random()),
                }
            }
            if let Ok(message) = Message::decode(&bytes) {
                assert!(message.pokes.len() <= bytes.len());
            }
        }
        for bad in [
            "".to_owned(),
            "[".repeat(LARGEST_MESSAGE),
            format!(
                r#"{{"from":1,"pokes":["anything"]{}}}"#,
                " ".repeat(LARGEST_MESSAGE)
            ),
            r#"{"from":1,"pokes":[{"work":""}]}"#.to_owned(),
            r#"{"from":1,"pokes":[{"work":"a\u0000"}]}"#.to_owned(),
            r#"{"from":-1,"pokes":[]}"#.to_owned(),
        ] {
            assert!(Message::decode(bad.as_bytes()).is_err(), "{bad}");
        }
        let huge = format!(r#"{{"from":1,"pokes":[{{"deadline":{}}}]}}"#, u64::MAX);
        let read = Message::decode(huge.as_bytes()).expect("a message");
        assert_eq!(read.pokes, [Poke::Deadline { due: MAX_DURATION }], "rule OUT-5");
    }
}
