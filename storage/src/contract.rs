//! Contract of every store, as checks that any test can call (DUR-7).
//!
//! [`check`] runs all of them, each with a new, empty store. They panic if the store violates the contract, and are
//! independent of SQL.

#![expect(clippy::unwrap_used, reason = "a check says what must hold by panicking where it does not")]

mod appending;
mod artifacts;
mod fork;
mod owners;
mod permissions;
mod plans;
mod questions;
mod removal;
mod rows;
mod task_journals;
mod tree;
mod usage;
mod world;

#[cfg(test)]
pub(crate) use removal::remove_one_of_two;

use crate::store::{Reader, Store};
use world::TestStore;

/// Checks that a store and its reader keep the contract.
///
/// `make` returns a new, empty store at each call, with a reader of the same data.
///
/// # Panics
/// If the contract is violated; the message names the rule.
pub fn check(make: impl Fn() -> (Box<dyn Store>, Box<dyn Reader>)) {
    let checks: &[fn(TestStore)] = &[
        appending::cursors_have_no_gaps_per_trace_run_and_session,
        appending::a_sessions_events_are_found_by_their_session_seq,
        appending::an_event_on_another_timeline_counts_for_the_run_that_acts,
        appending::a_stale_incarnation_is_refused,
        appending::a_repeated_number_is_acknowledged_and_not_repeated,
        appending::a_run_can_be_made_opened_and_started_in_one_append,
        appending::a_refused_append_writes_nothing_and_leaves_its_neighbours_alone,
        appending::what_refers_to_nothing_is_missing,
        appending::an_append_sees_what_the_ones_before_it_in_the_batch_wrote,
        rows::a_run_follows_its_events,
        rows::a_trace_follows_its_runs,
        rows::a_trace_shows_the_settings_of_its_last_run,
        rows::one_unknown_price_makes_the_sums_unknown,
        rows::a_run_that_ended_stays_as_it_ended,
        rows::a_trace_runs_as_long_as_one_of_its_runs_does,
        rows::a_session_counts_its_live_runs_and_shows_its_last_event,
        rows::lists_are_paged_newest_first_and_filtered,
        rows::runs_are_found_by_trace_parent_and_status,
        owners::lists_and_sums_can_be_of_one_user_alone,
        usage::what_was_used_is_summed_and_nothing_is_counted_twice,
        usage::a_run_counts_for_the_model_and_the_time_of_its_start,
        usage::run_that_starts_in_the_batch_of_a_removal_is_counted,
        usage::sessions_of_two_users_are_counted_apart_after_a_deletion,
        usage::what_is_more_than_fits_counts_as_the_most_that_does,
        tree::a_message_comes_back_as_it_was_written,
        tree::the_main_path_leads_from_the_first_message_to_the_head,
        tree::a_summary_stands_for_what_it_covers_and_nothing_is_rewritten,
        tree::the_head_moves_only_from_where_it_is_to_where_somebody_can_go_on,
        tree::a_partial_message_never_becomes_head,
        tree::messages_are_read_by_their_sequences,
        tree::messages_count_for_the_run_that_writes_them,
        fork::a_fork_reads_as_its_source_did_up_to_its_head_and_costs_nothing,
        fork::a_fork_that_cannot_be_is_refused_and_writes_nothing,
        fork::what_lay_below_the_source_by_then_is_linked_as_long_as_it_is_there,
        fork::copied_artifacts_are_found_by_the_ids_that_they_had,
        plans::goals_follow_their_events,
        plans::a_trace_without_goals_has_its_task_as_mission,
        plans::goals_add_up_messages_children_and_sub_traces,
        plans::collaborators_keep_the_order_of_their_first_appearance,
        plans::what_children_brought_back_is_read_in_the_order_of_their_start,
        artifacts::versions_follow_one_another_without_gap,
        artifacts::a_name_is_unique_in_its_scope,
        artifacts::edits_are_kept_in_order_and_become_versions_with_gaps,
        artifacts::a_text_can_be_read_from_its_edits,
        artifacts::a_version_is_not_put_over_edits_that_are_none_yet,
        artifacts::a_removed_artifact_leaves_intents_for_its_blobs,
        artifacts::those_changed_last_are_read_with_their_number,
        artifacts::what_has_no_name_is_found_by_its_id_and_listed_last,
        removal::a_session_that_is_being_removed_is_there_for_nobody_and_takes_nothing_in,
        removal::a_session_with_a_run_that_has_not_ended_is_not_removed,
        removal::a_session_that_stays_after_all_is_as_it_was,
        removal::rows_go_in_pieces_and_the_session_with_the_last,
        questions::a_question_is_decided_once_by_an_answer_or_by_the_end_of_its_run,
        permissions::a_permission_is_decided_once_or_withdrawn_with_its_run,
        task_journals::a_journal_begins_with_its_run_and_stays_until_it_is_done,
        task_journals::a_journal_holds_the_goals_as_they_stood_when_its_run_began,
        task_journals::only_a_users_orchestrator_run_that_a_model_leads_has_a_journal,
        artifacts::an_intent_stands_until_its_blob_is_registered_or_gone,
    ];
    for run in checks {
        let (store, reader) = make();
        run(TestStore::new(store, reader));
    }
}
