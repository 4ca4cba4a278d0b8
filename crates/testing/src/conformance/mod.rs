//! The conformance suite of the [`Store`] border: what every store must answer, case by case.
//!
//! A backend runs all of it with one type and one line:
//!
//! ```text
//! use durable_testing::conformance::Subject;
//!
//! struct Memory(MemoryStore);
//!
//! impl Subject for Memory {
//!     async fn fresh() -> Self { Memory(MemoryStore::new()) }
//!     fn store(&self) -> Arc<dyn Store> { Arc::new(self.0.clone()) }
//! }
//!
//! durable_testing::conformance_tests!(Memory);
//! ```
//!
//! [`conformance_tests!`](crate::conformance_tests) makes a test of each case, in one module per subject; a
//! case that is added to its list is run by every backend. A case panics where a store breaks a rule, and
//! names its rules in its first line. No case depends on the time that passes: delays are zero or an hour,
//! and a lease is an hour, or over as soon as it begins. The store's clock must move on between two calls.

#![expect(clippy::expect_used, reason = "a panic is how a case fails")]

pub mod claim;
pub mod collection;
pub mod commit;
pub mod insert;
pub mod keys;
pub mod leases;
pub mod reading;
pub mod recovery;
mod scene;

use std::future::Future;
use std::sync::Arc;

use durable_core::Store;

/// A backend under test: one fresh store, and whatever must live as long as it.
pub trait Subject: Sized {
    /// Makes an empty store. Panics when it cannot.
    fn fresh() -> impl Future<Output = Self>;

    /// The store.
    fn store(&self) -> Arc<dyn Store>;
}

/// Makes a test of each case of the conformance suite, for a type that implements
/// [`Subject`](crate::conformance::Subject) and is in scope where this stands. The crate needs `tokio` with
/// its macros.
#[macro_export]
macro_rules! conformance_tests {
    ($subject:ident) => {
        $crate::conformance_tests! { @tests $subject
            insert {
                a_batch_of_any_size_is_answered_in_the_callers_order
                a_new_instance_stands_as_it_was_given
                an_instant_that_has_passed_means_now_and_a_later_one_waits
                a_refused_value_refuses_the_whole_batch
            }
            keys {
                a_taken_key_makes_a_duplicate_also_within_one_batch
                until_started_frees_the_key_at_the_first_claim
                until_terminal_frees_the_key_at_every_end_and_not_before
                until_removed_keeps_the_key_until_the_instance_is_collected
                a_scope_of_ones_own_decides_by_status
                a_key_once_released_is_never_taken_again
                a_key_is_held_while_its_instance_waits_for_its_time
            }
            claim {
                the_order_is_priority_then_time_then_insert
                the_machines_of_a_queue_share_one_order
                what_is_eligible_later_is_left_and_said_when_due
                unknown_machines_and_versions_are_left_alone
                other_queues_are_left_alone
                the_limit_is_kept
                an_empty_claim_leaves_nothing_behind
                what_is_claimed_is_not_claimed_again
                a_claim_brings_what_the_last_outcome_wrote
                what_comes_back_stands_behind_what_was_there
            }
            commit {
                next_begins_another_step
                retry_counts_an_attempt
                retry_without_a_state_keeps_the_stored_one
                give_back_changes_nothing
                each_end_writes_its_own
                a_delay_postpones
                only_the_fence_of_an_open_claim_commits
                a_second_outcome_of_one_instance_is_stale
                outcomes_of_several_claims_are_answered_in_the_callers_order
                an_empty_commit_does_nothing
                a_closed_claim_is_forgotten
                a_refused_outcome_leaves_its_batch_undone
                a_dead_worker_commits_until_its_work_is_taken_back
            }
            leases {
                a_beat_lists_the_open_claims
                a_worker_that_is_not_there_is_dead
                a_worker_that_was_declared_dead_claims_nothing
                only_a_lease_that_ended_costs_the_work
                a_beat_before_the_reaper_keeps_the_lease
                neighbours_are_the_live_workers_of_one_process_table
                only_a_worker_without_claims_retires
                a_survey_tells_of_maintenance_and_of_unknown_machines
            }
            recovery {
                reaped_work_counts_an_attempt_and_a_crash
                crashes_count_until_an_outcome
                the_reaper_takes_only_what_is_left
                the_reaper_works_in_rounds
                the_reaper_says_more_while_claims_of_the_dead_are_left
                a_release_counts_nothing
                a_release_takes_only_what_is_left_of_its_own_claims
                what_is_taken_back_keeps_its_place
                a_lost_answer_is_resolved
                a_claim_that_was_taken_back_resolves_as_lost
            }
            collection {
                each_status_is_kept_for_its_own_retention
                collection_is_bounded_and_says_when_it_is_done
                what_is_not_terminal_is_never_collected
            }
            reading {
                snapshots_stand_in_the_callers_order
                find_names_the_holder_of_a_key
                make_due_moves_only_what_it_names
                durations_reach_a_hundred_years
            }
        }
    };
    (@tests $subject:ident $($group:ident { $($case:ident)* })*) => {
        $(
            mod $group {
                $(
                    #[tokio::test]
                    async fn $case() {
                        use $crate::conformance::Subject as _;
                        let subject = super::$subject::fresh().await;
                        $crate::conformance::$group::$case(subject.store()).await;
                    }
                )*
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_in_the_list() {
        let list = include_str!("mod.rs");
        let groups = [
            include_str!("claim.rs"),
            include_str!("collection.rs"),
            include_str!("commit.rs"),
            include_str!("insert.rs"),
            include_str!("keys.rs"),
            include_str!("leases.rs"),
            include_str!("reading.rs"),
            include_str!("recovery.rs"),
        ];
        for line in groups.iter().flat_map(|group| group.lines()) {
            if let Some(rest) = line.strip_prefix("pub async fn ") {
                let case = rest.split('(').next().unwrap_or(rest);
                let listed = list.lines().any(|line| line.trim() == case);
                assert!(listed, "the case {case} is missing in conformance_tests!");
            }
        }
    }
}
