//! Contract of every store, as checks that any test can call (DUR-7).
//!
//! [`check`] runs all of them, each with a new, empty store. They panic if the store violates the
//! contract, and are independent of SQL.

#![expect(
    clippy::unwrap_used,
    reason = "a check says what must hold by panicking where it does not"
)]

mod appending;
mod artifacts;
mod events;
mod fork;
mod keyed_requests;
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

/// All checks.
const CHECKS: &[fn(TestStore)] = &[
    appending::cursors_have_no_gaps_per_trace_run_and_session,
    appending::session_events_are_found_by_session_seq,
    appending::event_on_another_timeline_counts_for_its_run,
    appending::stale_incarnation_is_rejected,
    appending::repeated_append_is_acknowledged_and_not_applied_again,
    appending::run_can_be_created_opened_and_started_in_one_append,
    appending::rejected_append_writes_nothing_and_affects_no_other,
    appending::missing_references_are_rejected,
    appending::append_sees_earlier_appends_of_the_batch,
    events::events_are_read_back_byte_by_byte_from_every_cursor,
    events::goals_at_an_lsn_end_within_an_append,
    events::collaborators_and_forks_end_within_an_append,
    events::unreadable_event_leaves_others_readable,
    rows::run_row_follows_its_events,
    rows::run_row_has_its_current_permission_mode,
    rows::trace_row_follows_its_runs,
    rows::trace_has_settings_of_its_last_run,
    rows::one_unknown_price_makes_costs_unknown,
    rows::ended_run_is_not_changed_by_later_events,
    rows::trace_is_running_while_any_of_its_runs_is,
    rows::session_counts_live_runs_and_tracks_its_last_event,
    rows::lists_are_paged_newest_first_and_filtered,
    rows::runs_are_found_by_trace_parent_and_status,
    owners::lists_and_usage_can_be_filtered_by_user,
    usage::run_names_the_model_that_it_started_with,
    usage::trace_names_the_tools_that_its_last_run_offers,
    usage::usage_is_summed_once,
    usage::run_counts_for_model_and_time_of_its_start,
    usage::run_started_in_the_batch_of_a_deletion_is_counted,
    usage::usage_of_two_users_is_separate_after_a_deletion,
    usage::sums_saturate,
    tree::messages_round_trip,
    tree::main_path_leads_from_first_message_to_head,
    tree::summary_replaces_covered_messages,
    tree::summary_keeps_a_request_only_if_no_later_one_precedes_it,
    tree::head_moves_only_between_resume_points,
    tree::partial_message_never_becomes_head,
    tree::messages_are_read_by_sequence,
    tree::messages_count_for_the_writing_run,
    fork::fork_reads_like_its_source_without_usage,
    fork::invalid_fork_is_rejected,
    fork::sub_traces_of_the_source_are_linked,
    fork::copied_artifacts_are_found_by_original_ids,
    plans::goals_follow_their_events,
    plans::trace_without_goals_has_its_task_as_mission,
    plans::goal_stats_sum_messages_children_and_sub_traces,
    plans::collaborators_are_ordered_by_first_appearance,
    plans::child_results_are_ordered_by_start,
    artifacts::versions_are_numbered_without_gaps,
    artifacts::artifact_name_is_unique_in_its_scope,
    artifacts::edits_are_kept_in_order_and_flushed_as_versions,
    artifacts::text_is_rebuilt_from_edits,
    artifacts::version_is_rejected_while_edits_are_unflushed,
    artifacts::deleted_artifact_leaves_intents_for_its_blobs,
    artifacts::recent_artifacts_are_listed_with_counts,
    artifacts::unnamed_artifacts_are_found_by_id,
    removal::session_being_deleted_is_invisible_and_read_only,
    removal::session_with_live_run_is_not_deleted,
    removal::cancelled_deletion_restores_session,
    removal::rows_are_deleted_in_pieces,
    removal::session_with_a_used_id_counts_on,
    removal::append_for_a_deleted_session_is_rejected,
    questions::question_is_answered_once_or_withdrawn_with_its_run,
    keyed_requests::begun_request_is_known_until_it_is_withdrawn,
    keyed_requests::keyed_request_is_kept_for_its_lifetime,
    permissions::permission_is_decided_once_or_withdrawn_with_its_run,
    task_journals::journal_starts_with_its_run_and_is_listed_until_completed,
    task_journals::journal_has_the_goals_at_the_start_of_its_run,
    task_journals::only_model_driven_orchestrator_runs_of_users_have_journal,
    artifacts::intent_ends_with_registration_or_deletion,
];

/// Checks that a store and its reader keep the contract.
///
/// `make` returns a new, empty store at each call, with a reader of the same data.
///
/// # Panics
/// If the contract is violated; the message names the rule.
pub fn check(make: impl Fn() -> (Box<dyn Store>, Box<dyn Reader>)) {
    for run in CHECKS {
        let (store, reader) = make();
        run(TestStore::new(store, reader));
    }
}
