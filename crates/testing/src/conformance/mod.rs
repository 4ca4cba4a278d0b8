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

pub mod ahead;
pub mod cancellation;
pub mod children;
pub mod claim;
pub mod collection;
pub mod commit;
pub mod concurrency;
pub mod deadlines;
pub mod insert;
pub mod joins;
pub mod keys;
pub mod leases;
pub mod limits;
pub mod members;
pub mod operations;
pub mod reading;
pub mod recovery;
mod scene;
pub mod signals;
mod waiting;
pub mod waits;

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
                waiting_outside_of_the_scope_frees_the_key
                a_child_cannot_take_the_key_of_its_parent
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
            concurrency {
                one_at_a_time_holds_over_all_workers
                every_end_of_an_execution_frees_the_key
                what_comes_back_frees_the_key
                running_ahead_keeps_the_key_that_is_kept
                those_who_wait_come_back_in_order
                other_work_does_not_wait_for_a_backlog
                an_outcome_takes_changes_and_gives_up_a_key
                one_that_waits_can_be_cancelled
                a_requested_cancellation_needs_no_key
                a_key_holds_wherever_an_instance_comes_from
                only_idle_keys_are_forgotten
            }
            limits {
                policies_have_one_rising_version
                a_gate_is_left_to_the_limiter
                what_is_blocked_waits_and_comes_back_in_order
                tokens_are_spent_in_order
                a_weight_above_the_burst_holds_up_nobody
                a_paused_key_lets_nothing_start
                keys_are_looked_at_in_time
                a_freed_key_that_nobody_told_of_is_found
                a_gate_that_comes_or_goes_changes_who_holds
                two_limits_are_waited_for_one_after_the_other
                limits_stand_as_they_were_given
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
            members {
                members_learn_of_each_other
                members_that_went_or_fell_silent_are_not_told_of
                secrets_are_shared_and_renewed
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
                a_child_is_kept_for_its_unfinished_parent
                kept_children_do_not_hold_up_the_collector
                what_was_restarted_is_not_collected
            }
            reading {
                snapshots_stand_in_the_callers_order
                find_names_the_holder_of_a_key
                make_due_moves_only_what_it_names
                durations_reach_a_hundred_years
                settlements_say_how_far_an_instance_is
                a_result_may_be_null
            }
            signals {
                a_signal_of_an_awaited_name_wakes
                any_name_of_a_set_wakes
                a_deduplication_key_makes_a_second_delivery_do_nothing
                a_signal_without_a_target_is_not_stored
                a_signal_may_name_a_correlation_key
                signals_of_one_call_keep_the_callers_order
                a_refused_payload_leaves_the_delivery_undone
                a_signal_only_waits_in_the_inbox_of_who_does_not_wait
            }
            waits {
                a_signal_that_came_before_the_wait_wakes
                what_was_given_as_awaited_does_not_wake_again
                what_was_not_given_as_awaited_wakes
                progress_removes_exactly_what_was_given
                what_comes_back_keeps_its_signals
                an_end_clears_the_inbox
                a_fence_from_before_the_wait_is_stale
            }
            deadlines {
                a_deadline_wakes_and_says_so
                a_later_deadline_waits_and_is_said
                deadlines_fire_in_their_order
                a_wake_takes_the_deadline_away
                a_wait_that_goes_on_at_once_has_no_deadline
                a_wait_after_a_deadline_begins_anew
                a_deadline_ends_a_wait_for_children
                a_join_takes_the_deadline_away
            }
            children {
                a_parent_waits_for_all_of_its_children
                without_children_the_parent_goes_on_at_once
                duplicates_are_not_waited_for
                children_are_seen_until_progress
                a_child_stands_as_it_was_given
                a_refused_child_leaves_the_commit_undone
                a_stale_outcome_inserts_no_children
                a_child_may_outlive_its_parent
                unfinished_children_are_those_that_may_still_run
            }
            joins {
                siblings_that_end_together_wake_their_parent_once
                enough_children_wake_their_parent
                the_number_of_needed_children_is_bounded
                late_children_of_an_earlier_fan_out_count_for_nothing
                only_an_end_counts
                trees_nest
                a_signal_does_not_end_a_wait_for_children
            }
            cancellation {
                a_cancellation_ends_what_does_not_execute
                a_cancellation_frees_the_key_and_keeps_the_attempt
                a_cancelled_child_counts
                a_requested_cancellation_is_final
                a_requested_cancellation_stays_with_what_comes_back
                a_requested_cancellation_counts_once_it_is_done
            }
            operations {
                retry_now_makes_due_what_waits_for_its_time
                wake_ends_a_wait
                fire_ends_a_wait_that_has_a_deadline
                restart_runs_the_last_step_again
                restart_takes_the_key_again
                a_restarted_child_counts_once
                a_restarted_instance_receives_again
                a_target_that_is_named_twice_is_taken_once
            }
            ahead {
                what_runs_ahead_is_claimed_again
                what_runs_ahead_consumes_its_signals
                running_ahead_needs_a_number
                only_what_runs_ahead_is_claimed
                a_number_without_an_outcome_leaves_no_claim
                what_runs_ahead_comes_back_from_a_lost_worker
                what_runs_ahead_may_be_given_back
                running_ahead_is_resolved
                a_requested_cancellation_stops_a_run
                a_refused_step_is_not_run_ahead
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
            include_str!("ahead.rs"),
            include_str!("cancellation.rs"),
            include_str!("children.rs"),
            include_str!("claim.rs"),
            include_str!("collection.rs"),
            include_str!("commit.rs"),
            include_str!("deadlines.rs"),
            include_str!("insert.rs"),
            include_str!("joins.rs"),
            include_str!("keys.rs"),
            include_str!("leases.rs"),
            include_str!("members.rs"),
            include_str!("operations.rs"),
            include_str!("reading.rs"),
            include_str!("recovery.rs"),
            include_str!("signals.rs"),
            include_str!("waits.rs"),
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
