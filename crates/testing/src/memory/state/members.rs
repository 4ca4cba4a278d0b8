//! Members, and the secrets that they share.

use std::collections::BTreeMap;
use std::time::Duration;

use durable_core::store::{Meeting, Member, Secret};

/// How long a secret is kept once there is a newer one.
const KEPT: Duration = Duration::from_secs(3600);

pub(in crate::memory) struct Members {
    /// Each with when it was seen last.
    there: BTreeMap<u64, (Member, Duration)>,
    /// Each with when it was made. Never empty.
    secrets: BTreeMap<u64, ([u8; 32], Duration)>,
}

impl Default for Members {
    fn default() -> Self {
        Self {
            there: BTreeMap::new(),
            secrets: BTreeMap::from([(1, (rand::random(), Duration::ZERO))]),
        }
    }
}

impl Members {
    pub(in crate::memory) fn meet(
        &mut self,
        now: Duration,
        member: Member,
        absent_after: Duration,
    ) -> Meeting {
        let id = member.id;
        self.there.insert(id, (member, now));
        self.there.retain(|_, (_, seen)| *seen + absent_after >= now);
        let others = self.there.iter().filter(|(other, _)| **other != id);
        let secrets = self.secrets.iter();
        Meeting {
            clock: now,
            others: others.map(|(_, (member, _))| member.clone()).collect(),
            secrets: secrets
                .map(|(number, (key, made))| Secret {
                    number: *number,
                    key: *key,
                    age: now.saturating_sub(*made),
                })
                .collect(),
        }
    }

    pub(in crate::memory) fn part(&mut self, member: u64, version: u64) {
        self.there
            .retain(|id, (there, _)| *id != member || there.version != version);
    }

    pub(in crate::memory) fn renew_secret(&mut self, now: Duration) {
        let old = self
            .secrets
            .iter()
            .rev()
            .find(|(_, (_, made))| *made + KEPT < now);
        let oldest = old.map_or(0, |(number, _)| *number);
        self.secrets.retain(|number, _| *number >= oldest);
        let number = self.secrets.last_key_value().map_or(1, |(last, _)| last + 1);
        self.secrets.insert(number, (rand::random(), now));
    }
}
