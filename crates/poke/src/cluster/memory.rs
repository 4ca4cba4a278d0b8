//! What a node remembers of the others' datagrams, so that none counts twice (rule POKE-6).

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::datagram::Drop;

/// How far the time of a datagram may be from the receiver's idea of it, either way.
pub(super) const FRESH: Duration = Duration::from_secs(30);
/// How long a silent sender is remembered: whatever it sent before is stale by then.
const REMEMBERED: Duration = FRESH.saturating_mul(3);
/// How many numbers behind the highest are told apart.
const WINDOW: u64 = 128;

/// The senders that were heard lately. Only proven datagrams are noted, so they are no more than there are nodes.
#[derive(Default)]
pub(super) struct Memory {
    senders: HashMap<u64, Sender>,
}

struct Sender {
    highest: u64,
    /// Bit `n` is set if the number `highest - n` was here.
    seen: u128,
    heard: Instant,
}

impl Memory {
    /// Notes a datagram; refuses one that was here, or that is so far behind that it may have been.
    pub(super) fn note(&mut self, from: u64, number: u64, now: Instant) -> Result<(), Drop> {
        let Some(sender) = self.senders.get_mut(&from) else {
            // Rarely anybody new comes: a good moment to forget.
            self.senders.retain(|_, sender| now < sender.heard + REMEMBERED);
            let sender = Sender {
                highest: number,
                seen: 1,
                heard: now,
            };
            self.senders.insert(from, sender);
            return Ok(());
        };
        if number > sender.highest {
            let ahead = number - sender.highest;
            sender.seen = if ahead < WINDOW { sender.seen << ahead } else { 0 };
            sender.seen |= 1;
            sender.highest = number;
        } else {
            let behind = sender.highest - number;
            if behind >= WINDOW || sender.seen & (1 << behind) != 0 {
                return Err(Drop::Replayed);
            }
            sender.seen |= 1 << behind;
        }
        sender.heard = now;
        Ok(())
    }
}

/// Whether a datagram that was made then is fresh now; both in milliseconds of the store's clock.
pub(super) fn is_fresh(made_at: u64, now: u64) -> Result<(), Drop> {
    if u128::from(made_at.abs_diff(now)) <= FRESH.as_millis() {
        Ok(())
    } else {
        Err(Drop::Stale)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::rngs::SmallRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    #[test]
    fn each_number_counts_once_in_any_order() {
        // contract: POKE-6
        let (mut random, now) = (SmallRng::seed_from_u64(1), Instant::now());
        let (mut memory, mut accepted) = (Memory::default(), HashSet::new());
        let mut front = 1_000_u64;
        let mut taken = 0;
        for _ in 0..100_000 {
            front += random.random_range(0..2);
            let number = if random.random_ratio(1, 1_000) {
                front += random.random_range(0..500);
                front
            } else {
                front - random.random_range(0..150)
            };
            let from = random.random_range(0..3);
            if memory.note(from, number, now).is_ok() {
                taken += 1;
                assert!(accepted.insert((from, number)), "{number} twice");
            }
        }
        assert!(taken > 50_000, "{taken}");
        assert!(memory.note(0, u64::MAX, now).is_ok());
        assert_eq!(memory.note(0, u64::MAX, now), Err(Drop::Replayed));
        assert!(memory.note(0, u64::MAX - WINDOW + 1, now).is_ok());
        assert_eq!(memory.note(0, u64::MAX - WINDOW, now), Err(Drop::Replayed));
    }

    #[test]
    fn a_sender_is_forgotten_only_when_all_it_sent_is_stale() {
        // contract: POKE-6
        let (mut memory, start) = (Memory::default(), Instant::now());
        memory.note(1, 5, start).expect("new");
        // Made by a clock that is ahead as far as it may.
        let last_fresh = start + FRESH * 2;
        memory.note(2, 1, last_fresh).expect("new");
        assert_eq!(memory.note(1, 5, last_fresh), Err(Drop::Replayed));
        memory.note(3, 1, start + REMEMBERED).expect("new");
        assert_eq!(memory.senders.len(), 2, "the first is forgotten");
    }

    #[test]
    fn times_are_fresh_near_now() {
        // contract: POKE-6
        let now = 1_000_000;
        for made_at in [now, now - 30_000, now + 30_000] {
            assert_eq!(is_fresh(made_at, now), Ok(()));
        }
        for made_at in [now - 30_001, now + 30_001, 0, u64::MAX] {
            assert_eq!(is_fresh(made_at, now), Err(Drop::Stale));
        }
    }
}
