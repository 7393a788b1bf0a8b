//! Effects of an event: its numbers, and the rows that change with it.
//!
//! Elsewhere: the arithmetic on the rows of runs and traces (`row_updates.rs`).

use rusqlite::Connection;
use soong_protocol::{
    Event, EventDraft, GoalTree, MessageEvent, ModelEvent, PermissionEvent, RunEvent,
    SubAgentEvent, Timestamp,
};

use super::{
    WriteError, collaborators, event_rows, goals, main_path, permissions, questions, row_updates,
    runs::{self, RunRow},
    sessions::SessionRow,
    task_journals,
    traces::{self, TraceRow},
};
use crate::store::EventIds;

/// The rows that an event belongs to.
pub(super) struct EventRows<'r> {
    pub(super) trace: &'r mut TraceRow,
    pub(super) session: &'r mut SessionRow,
    pub(super) run: Option<&'r mut RunRow>,
}

impl EventRows<'_> {
    /// Returns the next ids of the rows, and marks them as used.
    pub(super) fn assign_ids(&mut self, lsn: u64, at: Timestamp) -> EventIds {
        let Self {
            trace,
            session,
            run,
        } = self;
        trace.last_event_id += 1;
        session.last_seq += 1;
        session.last_lsn = lsn;
        if session.first_lsn == 0 {
            session.first_lsn = lsn;
        }
        session.updated_at = at;
        let run_seq = run.as_mut().map_or(0, |run| {
            run.position.last_seq += 1;
            run.position.last_seq
        });
        EventIds {
            lsn,
            event_id: trace.last_event_id,
            run_seq,
            session_id: trace.session_id.clone(),
            session_seq: session.last_seq,
        }
    }

    pub(super) fn owners(&self) -> event_rows::Owners {
        let run_key = self.run.as_ref().map(|run| run.key);
        event_rows::Owners {
            trace_key: self.trace.key,
            run_key,
            session_key: self.session.key,
        }
    }

    /// Applies an event to its rows, and to the rows that depend on it, such as goals and
    /// questions.
    pub(super) fn apply(
        self,
        conn: &Connection,
        draft: &EventDraft,
        event_id: u64,
    ) -> Result<(), WriteError> {
        let Self {
            trace,
            session,
            run,
        } = self;
        match &draft.event {
            Event::Run(event) => {
                apply_run_event(conn, event, draft.ts, event_id, trace, run)?;
            }
            Event::Model(event) => {
                if let Some(run) = run {
                    row_updates::apply_model_event(event, run, trace);
                }
                // The call may end after its run: then the event has no run.
                if let ModelEvent::NamingEnded {
                    name: Some(name), ..
                } = event
                {
                    traces::rename(conn, trace.key, session.key, name)?;
                }
            }
            Event::Tool(event) => {
                if let Some(run) = run {
                    row_updates::apply_tool_event(event, run, trace);
                }
            }
            Event::Context(event) => {
                if let Some(run) = run {
                    row_updates::apply_context_event(event, run, trace);
                }
            }
            Event::Memory(event) => {
                if let Some(run) = run {
                    row_updates::apply_memory_event(event, run, trace);
                }
            }
            Event::Goal(event) => change_goals(conn, trace, |tree| tree.apply(event))?,
            Event::Message(event) => move_head(conn, event, trace)?,
            Event::Permission(event) => apply_permission_event(conn, event, run)?,
            Event::SubAgent(event) => {
                apply_sub_agent_event(conn, event, draft.ts, trace, session, run)?;
            }
            // Versions are separate writes.
            Event::Artifact(_) => {}
            Event::Budget(_) | Event::Hook(_) | Event::Unknown { .. } => {}
        }
        Ok(())
    }
}

fn apply_run_event(
    conn: &Connection,
    event: &RunEvent,
    at: Timestamp,
    event_id: u64,
    trace: &mut TraceRow,
    run: Option<&mut RunRow>,
) -> Result<(), WriteError> {
    if let RunEvent::SessionForked { goal_tree, .. } = event {
        change_goals(conn, trace, |tree| tree.restore(GoalTree::clone(goal_tree)))?;
        return Ok(());
    }
    let Some(run) = run else {
        return Ok(());
    };
    if row_updates::starts_task_journal(event, run) {
        task_journals::begin(conn, run.key, event_id, goal_tree(conn, trace)?)?;
    }
    row_updates::apply_run_event(event, at, run, trace);
    if event.is_terminal() {
        questions::withdraw(conn, run.key, at)?;
        permissions::withdraw(conn, run.key, at)?;
    }
    Ok(())
}

/// Sets the permission mode of a run that has not ended. Requests and decisions are separate writes.
fn apply_permission_event(
    conn: &Connection,
    event: &PermissionEvent,
    run: Option<&mut RunRow>,
) -> Result<(), WriteError> {
    match event {
        PermissionEvent::ModeChanged { mode } => {
            if let Some(run) = run
                && !run.status.is_terminal()
            {
                runs::set_permission_mode(conn, run.key, *mode)?;
            }
        }
        PermissionEvent::Requested { .. } | PermissionEvent::Decided { .. } => {}
    }
    Ok(())
}

/// Saves a question or a collaborator. Results of sub-agents are separate writes.
fn apply_sub_agent_event(
    conn: &Connection,
    event: &SubAgentEvent,
    at: Timestamp,
    trace: &TraceRow,
    session: &SessionRow,
    run: Option<&mut RunRow>,
) -> Result<(), WriteError> {
    match event {
        SubAgentEvent::CollaboratorUpdated { collaborator } => {
            collaborators::save(conn, trace.key, collaborator)?;
        }
        SubAgentEvent::QuestionAsked {
            question_id,
            question,
            to,
            ..
        } => {
            if let Some(run) = run {
                let new_question = questions::NewQuestion {
                    id: question_id,
                    question,
                    to: to.as_deref(),
                    at,
                };
                questions::insert(conn, run.key, session.key, &new_question)?;
            }
        }
        SubAgentEvent::Started { .. }
        | SubAgentEvent::Completed { .. }
        | SubAgentEvent::Delivered { .. }
        | SubAgentEvent::QuestionAnswered { .. } => {}
    }
    Ok(())
}

fn change_goals(
    conn: &Connection,
    trace: &mut TraceRow,
    change: impl FnOnce(&mut GoalTree),
) -> rusqlite::Result<()> {
    change(goal_tree(conn, trace)?);
    trace.goals_changed = true;
    Ok(())
}

/// Moves the head if the event says so, and restores the goals and collaborators of the new head
/// (MSG-4).
fn move_head(
    conn: &Connection,
    event: &MessageEvent,
    trace: &mut TraceRow,
) -> rusqlite::Result<()> {
    let (head, goal_tree, collaborators) = match event {
        // The row of the message was written before its event.
        MessageEvent::Added {
            sequence,
            replaces: Some(replaced),
            ..
        } if trace.head_sequence == *replaced => {
            main_path::make_head(conn, trace.key, *replaced, *sequence)?;
            trace.head_sequence = *sequence;
            return Ok(());
        }
        MessageEvent::Added { .. } => return Ok(()),
        MessageEvent::Rewind {
            head_sequence: head,
            goal_tree,
            collaborators,
            ..
        }
        | MessageEvent::HeadSwitched {
            sequence: head,
            goal_tree,
            collaborators,
            ..
        } => (*head, goal_tree, collaborators),
    };
    change_goals(conn, trace, |tree| tree.restore(GoalTree::clone(goal_tree)))?;
    if let Some(restored_collaborators) = collaborators {
        collaborators::replace(conn, trace.key, restored_collaborators)?;
    }
    main_path::make_head(conn, trace.key, trace.head_sequence, head)?;
    trace.head_sequence = head;
    Ok(())
}

fn goal_tree<'t>(conn: &Connection, trace: &'t mut TraceRow) -> rusqlite::Result<&'t mut GoalTree> {
    Ok(match &mut trace.goals {
        Some(tree) => tree,
        none => none.insert(Box::new(goals::load(conn, trace.key)?)),
    })
}
