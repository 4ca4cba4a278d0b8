//! What tells one process of a machine from every other, so that a restarted worker can prove that its
//! predecessor is dead (rule LEASE-3).

use std::fs;
use std::io::ErrorKind;

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
    /// This process, or `None` where the system does not tell, or tells of another process table.
    #[must_use]
    pub fn current() -> Option<Self> {
        let pid = std::process::id();
        if fs::read_link("/proc/self").ok()?.to_str()? != pid.to_string() {
            return None;
        }
        Some(Self {
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .ok()?
                .trim()
                .to_owned(),
            namespace: fs::read_link("/proc/self/ns/pid").ok()?.to_str()?.to_owned(),
            pid,
            started: match look(pid) {
                Look::Living(started) => started,
                Look::Gone | Look::Unknown => return None,
            },
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
        // The first process of the table always lives: where it is not shown, neither are others.
        self.shares_process_table(other)
            && matches!(look(1), Look::Living(_))
            && match look(other.pid) {
                Look::Living(started) => started != other.started,
                Look::Gone => true,
                Look::Unknown => false,
            }
    }
}

/// What the process table says of one process.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// When it started, in clock ticks since boot.
    Living(u64),
    /// It is not there, or a zombie.
    Gone,
    /// It may be there: not allowed to look, too many open files, a text that cannot be read.
    Unknown,
}

/// Linux's number for "no such process": the process ended while its file was open.
const NO_SUCH_PROCESS: i32 = 3;

fn look(pid: u32) -> Look {
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        Err(error) if error.kind() == ErrorKind::NotFound => return Look::Gone,
        Err(error) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => return Look::Gone,
        Err(_) => return Look::Unknown,
    };
    parse(&stat)
}

fn parse(stat: &str) -> Look {
    // The name stands in parentheses and may itself hold parentheses and spaces; fields follow the last one.
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return Look::Unknown;
    };
    let mut fields = fields.split_whitespace();
    if fields.next() == Some("Z") {
        return Look::Gone;
    }
    let started = fields.nth(18).and_then(|field| field.parse().ok());
    started.map_or(Look::Unknown, Look::Living)
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
        assert_eq!(parse(stat), Look::Living(777));
        assert_eq!(parse(&stat.replace(" S ", " Z ")), Look::Gone);
    }

    #[test]
    fn what_cannot_be_read_is_no_proof_of_death() {
        // contract: LEASE-3
        assert_eq!(parse(""), Look::Unknown);
        assert_eq!(parse("7 (a) S 1"), Look::Unknown);
        assert!(!matches!(look(std::process::id()), Look::Gone));
    }
}
