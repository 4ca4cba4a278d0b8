//! The conformance suite of the [`Limiter`] border: what every backend must answer, case by case (rule LIM-9).
//!
//! A backend runs all of it with one type and one line:
//!
//! ```text
//! use durable_testing::limiter_conformance::LimiterSubject;
//!
//! struct Memory(MemoryLimiter);
//!
//! impl LimiterSubject for Memory {
//!     async fn fresh() -> Self { Memory(MemoryLimiter::new()) }
//!     fn limiter(&self) -> Arc<dyn Limiter> { Arc::new(self.0.clone()) }
//! }
//!
//! durable_testing::limiter_conformance_tests!(Memory);
//! ```
//!
//! [`limiter_conformance_tests!`](crate::limiter_conformance_tests) makes a test of each case, in one module per
//! subject. A case panics where a limiter breaks a rule. No case depends on how long a call takes: a period is
//! an hour, or so short that the case waits for what it has to bring, and a lease is an hour, or over as soon
//! as it begins.

#![expect(clippy::expect_used, reason = "a panic is how a case fails")]

pub mod both;
pub mod gates;
pub mod histories;
pub mod holders;
pub mod policies;
pub mod races;
pub mod rates;
mod scene;
pub mod shards;
pub mod sweep;

use std::future::Future;
use std::sync::Arc;

use durable_core::Limiter;

/// A backend under test: one fresh limiter, and whatever must live as long as it.
pub trait LimiterSubject: Sized {
    /// Makes a limiter in which nothing is spent. Panics when it cannot.
    fn fresh() -> impl Future<Output = Self>;

    /// The limiter.
    fn limiter(&self) -> Arc<dyn Limiter>;
}

/// Makes a test of each case of the conformance suite, for a type that implements
/// [`LimiterSubject`](crate::limiter_conformance::LimiterSubject) and is in scope where this stands. The crate needs
/// `tokio` with its macros.
#[macro_export]
macro_rules! limiter_conformance_tests {
    ($subject:ident) => {
        $crate::limiter_conformance_tests! { @tests $subject
            gates {
                a_gate_admits_as_many_as_it_has_slots
                a_slot_that_is_given_back_is_free_again
                a_slot_is_given_back_once
                each_key_of_a_gate_has_slots_of_its_own
                all_holders_share_one_gate
                slots_of_one_holder_never_have_the_same_number
                an_empty_call_does_nothing
                usage_tells_who_holds_how_many
            }
            rates {
                a_new_key_has_its_whole_burst
                tokens_are_never_given_back
                a_weight_takes_so_many_tokens
                a_light_request_does_not_overtake_a_heavy_one_of_its_key
                a_weight_above_the_burst_is_too_heavy_and_holds_up_nothing
                tokens_come_back_with_time
                more_than_the_burst_is_never_kept
                a_denial_says_when_to_look_again
                a_rate_of_zero_never_refills
                a_slow_rate_is_counted_to_the_fraction
            }
            both {
                neither_is_charged_when_the_gate_denies
                neither_is_charged_when_the_rate_denies
                the_gate_denies_when_neither_has_room
                who_is_denied_by_one_does_not_hold_up_the_other
                what_is_too_heavy_takes_no_slot
                gates_and_rates_of_one_name_are_apart
            }
            holders {
                slots_of_a_holder_whose_lease_has_ended_are_had_back
                a_slot_that_was_had_back_is_not_given_back_again
                a_renewal_says_what_is_lost_once
                a_holder_that_was_lost_goes_on_with_its_next_renewal
                a_live_holder_keeps_its_slots
                a_renewal_does_not_bring_back_what_was_given_back
                leaving_gives_everything_back
                a_holder_that_has_left_admits_nothing
            }
            policies {
                a_gate_that_grows_admits_more
                a_gate_that_shrinks_admits_none_until_it_has_drained
                a_burst_that_changes_leaves_what_is_spent_spent
                a_rate_that_changes_refills_by_the_new_one
                an_older_policy_never_undoes_a_newer_one
                within_one_call_the_newest_policy_counts
                what_is_too_heavy_is_decided_by_the_newest_policy
            }
            shards {
                the_shards_together_are_the_limit
                a_lone_holder_can_use_all_shards
                a_weight_may_take_several_shards_together
                fractions_of_all_shards_count
                the_number_of_shards_changes_without_loss
                a_sharded_gate_that_shrinks_drains_first
            }
            sweep {
                what_is_in_use_is_never_forgotten
                what_is_forgotten_has_its_whole_budget
                what_has_refilled_may_be_forgotten
                policies_survive_while_something_is_spent
            }
            races {
                racing_holders_never_have_more_than_the_slots
                racing_holders_spend_each_token_once
                racing_calls_with_many_keys_take_all_there_is
                credits_race_with_the_end_of_a_lease
            }
            histories {
                random_calls_are_answered_as_by_the_model
            }
        }
    };
    (@tests $subject:ident $($group:ident { $($case:ident)* })*) => {
        $(
            mod $group {
                $(
                    #[tokio::test]
                    async fn $case() {
                        use $crate::limiter_conformance::LimiterSubject as _;
                        let subject = super::$subject::fresh().await;
                        $crate::limiter_conformance::$group::$case(subject.limiter()).await;
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
            include_str!("both.rs"),
            include_str!("gates.rs"),
            include_str!("histories.rs"),
            include_str!("holders.rs"),
            include_str!("policies.rs"),
            include_str!("races.rs"),
            include_str!("rates.rs"),
            include_str!("shards.rs"),
            include_str!("sweep.rs"),
        ];
        for line in groups.iter().flat_map(|group| group.lines()) {
            if let Some(rest) = line.strip_prefix("pub async fn ") {
                let case = rest.split('(').next().unwrap_or(rest);
                let listed = list.lines().any(|line| line.trim() == case);
                assert!(listed, "the case {case} is missing in limiter_conformance_tests!");
            }
        }
    }
}
