//! The store contract: what every store promises, whatever it keeps its rows in. Each case is a function of a
//! [`Hand`] on a fresh outbox; `store_contract!` makes a test of each for a [`Fixture`]. A case speaks to the store through
//! its public traits alone, and waits for states by the store's own clock, never for a fixed time.

pub mod cancel;
pub mod claim;
pub mod dead;
pub mod enqueue;
mod fixture;
mod hand;
pub mod lanes;
pub mod operate;
pub mod outcome;
pub mod read;
pub mod routes;
pub mod wake;
pub mod watch;
pub mod zombie;

pub use fixture::{Fixture, OnPostgres, OnSqlite};
pub use hand::Hand;

/// Makes one `#[tokio::test]` of each case of the contract, for a type that implements [`Fixture`].
#[macro_export]
macro_rules! store_contract {
    ($fixture:ty) => {
        $crate::contract_cases! { $crate::contract::Hand::on::<$fixture>(), contract enqueue,
            what_was_said_is_what_is_claimed
            a_known_key_returns_the_first_message
            a_mixed_batch_answers_in_input_order
            a_batch_is_written_as_a_whole
            limits_are_refused
            a_dedupe_key_belongs_to_its_tenant
            nobody_takes_the_key_of_a_tenant
            producers_of_one_lane_leave_no_hole
            producers_race_on_a_dedupe_key
            ids_keep_the_order_of_the_batch
            id_and_sequence_are_kept_for_ever
            routes_fan_out
            routes_come_and_go
        }
        $crate::contract_cases! { $crate::contract::Hand::on::<$fixture>(), contract claim,
            oldest_first
            priority_then_age_then_id
            a_small_batch_takes_the_best
            of_one_tenant_only
            a_shared_lane_keeps_its_order_under_a_tenant_filter
            a_lease_is_visible
            not_before_it_is_due
            what_is_not_due_does_not_hide_what_is
            a_paused_sink_hands_out_nothing
            a_paused_sink_keeps_its_other_settings
            hands_never_overlap
            a_lower_limit_buries
            wrong_arguments_are_refused
            a_claim_is_bounded_in_bytes
            large_lanes_and_others_take_turns
            a_large_head_holds_up_no_lane
            an_abandoned_claim_leaves_nothing
            content_is_read_by_itself
            what_is_due_can_be_asked
        }
        $crate::contract_cases! { $crate::contract::Hand::on::<$fixture>(), contract outcome,
            dispatched_ends_the_delivery
            an_attempt_records_everything
            what_was_said_too_much_is_cut
            a_retry_comes_after_its_delay
            failures_become_dead_letters
            mixed_outcomes_in_one_call
            a_message_named_twice_is_completed_once
            release_gives_the_attempt_back
            renew_and_release_return_what_changed
            redrive_starts_a_new_budget
            redrive_and_discard_of_one_sink
            discard_gives_up
            replay_delivers_again
            replay_by_time
            prune_leaves_what_is_undelivered
        }
        $crate::contract_cases! { $crate::contract::Hand::on::<$fixture>(), contract zombie,
            an_expired_lease_is_taken_over
            only_the_holder_completes
            a_stale_worker_is_refused_by_every_write
            a_renewed_lease_outlives_its_first_end
            a_killer_runs_out_of_attempts
            lost_leases_are_counted
            repair_ends_expired_leases
            repair_goes_in_batches
            unclaim_stuck_frees_and_fences
            an_outcome_races_an_unclaim
            a_takeover_races_a_takeover
        }
        $crate::contract_cases! { $crate::contract::Hand::on::<$fixture>(), contract lanes,
            a_run_is_in_sequence
            a_run_is_bounded
            one_hand_at_a_time
            a_failing_head_holds_its_lane
            backoff_holds_only_its_own_lane
            a_delivered_head_lets_the_rest_wait_for_its_hand
            a_dead_head_parks_until_redriven
            discarding_a_parked_head_frees_the_lane
            a_dead_head_is_skipped_by_choice
            a_discarded_skipped_head_leaves_the_lane_alone
            a_head_that_kills_its_workers_parks_its_lane
            a_spent_number_ends_a_run
            an_expired_run_is_taken_over_in_order
            a_partly_renewed_run_stays_in_one_hand
            a_replayed_number_waits_for_what_is_in_flight
            sinks_have_lanes_of_their_own
            every_lane_gets_its_turn
            lanes_and_others_share_a_batch
            one_at_a_time_takes_turns
            tenants_in_turn_starve_no_lane
            a_thorough_claim_passes_every_blocked_lane
            an_ordinary_claim_comes_to_every_lane_in_steps
            two_hands_keep_every_lane_in_order
        }
        $crate::contract_cases! { $crate::contract::Hand::on::<$fixture>(), contract read,
            status_adds_up
            the_oldest_pending_counts_whatever_it_waits_for
            every_state_is_listed
            a_page_ends_between_two_messages
            a_list_is_filtered
            a_message_is_shown
        }
        $crate::contract_cases! { $crate::contract::Hand::on::<$fixture>(), contract operate,
            every_action_is_written_down
            an_operators_message_is_written_down
            a_refused_action_leaves_no_trace
            a_redrive_goes_on_in_batches
            a_discard_goes_on_in_batches
            an_action_means_one_sink_of_a_message
            a_skipped_head_lets_its_lane_go_on
            a_replay_goes_on_at_its_rate
            a_replay_takes_what_is_meant
            leases_and_history_end_by_hand
            what_waits_is_due_at_once
            the_audit_is_read_in_pages
            two_operators_redrive_each_once
            a_replay_sends_what_was_delivered_before
            a_replay_by_id_leaves_neighbours_alone
            an_idle_prune_is_not_written_down
            what_ends_by_hand_is_counted_first
        }
        $crate::contract_cases! { $crate::contract::Hand::on::<$fixture>(), contract cancel,
            a_cancelled_delivery_is_never_handed_out
            every_field_of_a_filter_takes_its_own
            a_lane_goes_on_without_what_was_cancelled
            a_replay_is_taken_back
            ids_that_are_not_meant_are_told
        }
        $crate::contract_cases! { $crate::contract::Hand::on::<$fixture>(), contract routes,
            pending_deliveries_follow_the_routes
            the_last_delivery_stays
            lanes_follow_in_order
        }
        $crate::contract_cases! { $crate::contract::Hand::on::<$fixture>(), contract dead,
            every_field_of_a_filter_counts
            letters_without_a_code_are_a_kind
            dead_letters_are_listed_in_pages
            a_dead_letter_tells_its_story
            dead_letters_are_grouped
        }
        $crate::contract_cases! { $crate::contract::Hand::on::<$fixture>(), contract wake,
            a_sleeper_hears_an_enqueue
            what_came_meanwhile_is_one_news
            an_empty_claim_is_no_news
            what_makes_something_due_is_heard
        }
        $crate::contract_cases! { $crate::contract::Hand::on::<$fixture>(), contract watch,
            a_list_is_narrowed_by_namespace_and_time
            what_was_given_up_is_listed_so
            a_search_goes_on_where_it_stopped
            a_message_is_found_by_the_end_of_its_id
            a_message_is_found_by_its_dedupe_key
            a_topic_is_matched_as_in_a_route
            lanes_stand_in_order_of_need
            what_a_lane_head_holds_up_is_not_due
            a_sample_counts_the_interval
            one_of_many_measures
            relays_report_until_they_sign_off
            a_message_is_explained
            a_lane_is_explained
        }
    };
}

/// One module of tests: each case of a part of a contract gets what `$start` yields.
#[doc(hidden)]
#[macro_export]
macro_rules! contract_cases {
    ($start:expr, $contract:ident $part:ident, $($case:ident)*) => {
        mod $part {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    $crate::$contract::$part::$case($start.await).await;
                }
            )*
        }
    };
}

/// A case that nobody runs proves nothing: the macro of a contract names every case in its folder.
#[cfg(test)]
pub(crate) fn assert_every_case_is_listed(contract: &str) {
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(contract);
    let read = |path: &std::path::Path| std::fs::read_to_string(path).expect("a source can be read");
    let list = read(&sources.with_extension("rs"));
    let mut cases = 0;
    for part in std::fs::read_dir(&sources).expect("a contract has a folder") {
        let part = read(&part.expect("an entry can be read").path());
        for begin in part.split("\npub async fn ").skip(1) {
            let (name, arguments) = begin.split_once(['(', '<']).expect("a function");
            if !["hand: Hand)", "D: Destination>"].iter().any(|case| arguments.starts_with(case)) {
                continue;
            }
            cases += 1;
            assert!(list.lines().any(|line| line.trim() == name), "{name} is not in the macro of {contract}");
        }
    }
    assert!(cases >= 10, "only {cases} cases were found");
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_listed() {
        super::assert_every_case_is_listed("contract");
    }
}
