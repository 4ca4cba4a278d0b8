//! What tells one process of a machine from every other, so that a restarted worker can prove that its
//! predecessor is dead (rule LEASE-3).

use std::fs;

use serde::{Deserialize, Serialize};

/// A process, told apart by what cannot repeat: the boot of the kernel, the process-id namespace, the process
/// id, and the time at which the process started.
///
/// A host name and a process id are no proof: two containers can share both. Known only on Linux; elsewhere
/// recovery waits for the lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The kernel's random identity of this boot.
    pub boot: String,
    /// The process-id namespace.
    pub namespace: String,
    /// The process id within it.
    pub pid: u32,
    /// When the process started, in clock ticks since boot.
    pub started: u64,
}

impl ProcessIdentity {
    /// This process, or `None` where the system does not tell.
    #[must_use]
    pub fn current() -> Option<Self> {
        let pid = std::process::id();
        Some(Self {
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .ok()?
                .trim()
                .to_owned(),
            namespace: fs::read_link("/proc/self/ns/pid").ok()?.to_str()?.to_owned(),
            pid,
            started: start_time(pid)?,
        })
    }

    /// Whether another process can be looked up in the same process table as this one.
    #[must_use]
    pub fn shares_process_table(&self, other: &Self) -> bool {
        self.boot == other.boot && self.namespace == other.namespace
    }

    /// Whether `other` is proven dead, as seen from this process: both share a process table, in which no
    /// living process has its id and start time. `false` means only that there is no proof.
    #[must_use]
    pub fn proves_dead(&self, other: &Self) -> bool {
        self.shares_process_table(other)
            && fs::exists("/proc/self/stat").unwrap_or(false)
            && start_time(other.pid) != Some(other.started)
    }
}

/// When a living process started, in clock ticks since boot. A zombie counts as dead.
fn start_time(pid: u32) -> Option<u64> {
    parse_start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_start_time(stat: &str) -> Option<u64> {
    // The name stands in parentheses and may itself hold parentheses and spaces; fields follow the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_proven_dead() {
        // contract: LEASE-3
        if let Some(me) = ProcessIdentity::current() {
            assert!(!me.proves_dead(&me));
            let predecessor = ProcessIdentity {
                started: me.started + 1,
                ..me.clone()
            };
            assert!(
                me.proves_dead(&predecessor),
                "same pid, other start time: the old process is gone"
            );
        }
    }

    #[test]
    fn another_container_with_the_same_pid_is_no_proof() {
        // contract: LEASE-3
        if let Some(me) = ProcessIdentity::current() {
            let container = ProcessIdentity {
                namespace: "pid:[1]".into(),
                started: 7,
                ..me.clone()
            };
            assert!(!me.proves_dead(&container));
            let machine = ProcessIdentity {
                boot: "another".into(),
                started: 7,
                ..me.clone()
            };
            assert!(!me.proves_dead(&machine));
        }
    }

    #[test]
    fn the_start_time_is_field_22_and_names_may_hold_parentheses() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        assert_eq!(parse_start_time(stat), Some(777));
        assert_eq!(parse_start_time(&stat.replace(" S ", " Z ")), None);
    }
}
