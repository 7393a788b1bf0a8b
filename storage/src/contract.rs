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
pub(crate) use removal::delete_one_of_two_sessions;

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
        appending::event_on_another_timeline_counts_for_its_run,
        appending::a_stale_incarnation_is_refused,
        appending::a_repeated_number_is_acknowledged_and_not_repeated,
        appending::a_run_can_be_made_opened_and_started_in_one_append,
        appending::a_refused_append_writes_nothing_and_leaves_its_neighbours_alone,
        appending::missing_references_are_rejected,
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
        usage::usage_is_summed_once,
        usage::a_run_counts_for_the_model_and_the_time_of_its_start,
        usage::run_that_starts_in_the_batch_of_a_removal_is_counted,
        usage::sessions_of_two_users_are_counted_apart_after_a_deletion,
        usage::sums_saturate,
        tree::a_message_comes_back_as_it_was_written,
        tree::the_main_path_leads_from_the_first_message_to_the_head,
        tree::summary_replaces_covered_messages,
        tree::head_moves_only_between_resume_points,
        tree::a_partial_message_never_becomes_head,
        tree::messages_are_read_by_their_sequences,
        tree::messages_count_for_the_run_that_writes_them,
        fork::fork_reads_like_its_source_without_usage,
        fork::invalid_fork_is_rejected,
        fork::sub_traces_of_the_source_are_linked,
        fork::copied_artifacts_are_found_by_original_ids,
        plans::goals_follow_their_events,
        plans::a_trace_without_goals_has_its_task_as_mission,
        plans::goals_add_up_messages_children_and_sub_traces,
        plans::collaborators_keep_the_order_of_their_first_appearance,
        plans::child_results_are_ordered_by_start,
        artifacts::versions_follow_one_another_without_gap,
        artifacts::a_name_is_unique_in_its_scope,
        artifacts::edits_are_kept_in_order_and_become_versions_with_gaps,
        artifacts::a_text_can_be_read_from_its_edits,
        artifacts::version_is_rejected_while_edits_are_unflushed,
        artifacts::a_removed_artifact_leaves_intents_for_its_blobs,
        artifacts::recent_artifacts_are_listed_with_counts,
        artifacts::unnamed_artifacts_are_found_by_id,
        removal::session_being_deleted_is_invisible_and_read_only,
        removal::session_with_live_run_is_not_deleted,
        removal::cancelled_deletion_restores_session,
        removal::rows_are_deleted_in_pieces,
        questions::a_question_is_decided_once_by_an_answer_or_by_the_end_of_its_run,
        permissions::a_permission_is_decided_once_or_withdrawn_with_its_run,
        task_journals::a_journal_begins_with_its_run_and_stays_until_it_is_done,
        task_journals::a_journal_holds_the_goals_as_they_stood_when_its_run_began,
        task_journals::only_a_users_orchestrator_run_that_a_model_leads_has_a_journal,
        artifacts::intent_ends_with_registration_or_deletion,
    ];
    for run in checks {
        let (store, reader) = make();
        run(TestStore::new(store, reader));
    }
}
