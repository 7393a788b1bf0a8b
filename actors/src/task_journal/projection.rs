//! Converts the events of a run to lines of its task journal, and the lines back to the goal tree
//! (TASK-1).
//!
//! Pure: the same events always give the same lines, so a file can be continued or rewritten by
//! line numbers.
//!
//! Invariants:
//! - `wal_seq` counts 1, 2, 3 …
//! - The first line is `task_created`, and the last line is the end of the run.
//!
//! Not in this module: reading events, writing files.

use soong_protocol::{
    Event, EventRecord, GoalEvent, GoalId, GoalTree, MessageEvent, RunEvent, SubAgentEvent,
};
use soong_storage::store::PendingTaskJournal;

use super::line::{TaskCreated, TaskEvent, TaskLine};

/// Creates the lines of one run's journal in order.
pub(super) struct Projection {
    start: PendingTaskJournal,
    /// Number of the last line.
    wal_seq: u64,
}

impl Projection {
    pub(super) fn new(begin: PendingTaskJournal) -> Self {
        Self {
            start: begin,
            wal_seq: 0,
        }
    }

    /// Returns the line of an event; `None` if the event is not part of the journal.
    ///
    /// Must be called with the run's events in order, from the one that started it.
    pub(super) fn line(&mut self, record: &EventRecord) -> Option<TaskLine> {
        if record.run_id.as_ref() != Some(&self.start.run.run_id)
            || record.event_id < self.start.first_event_id
        {
            return None;
        }
        let (event, goal_id) = match &record.event {
            Event::Run(event) => (self.run_line(event, record.event_id)?, None),
            Event::Goal(event) => goal_line(event),
            Event::SubAgent(event) => child_line(event)?,
            Event::Message(MessageEvent::Rewind {
                head_sequence,
                goal_tree,
                ..
            }) => (
                TaskEvent::GoalsRewound {
                    after_sequence: *head_sequence,
                    goal_tree: goal_tree.clone(),
                },
                None,
            ),
            // `HeadSwitched` only occurs while no run is live.
            Event::Message(MessageEvent::Added { .. } | MessageEvent::HeadSwitched { .. })
            | Event::Model(_)
            | Event::Tool(_)
            | Event::Artifact(_)
            | Event::Context(_)
            | Event::Budget(_)
            | Event::Permission(_)
            | Event::Hook(_)
            | Event::Memory(_)
            | Event::Unknown { .. } => return None,
        };
        self.wal_seq += 1;
        Some(TaskLine {
            wal_seq: self.wal_seq,
            session_id: record.session_id.clone(),
            run_id: self.start.run.run_id.clone(),
            goal_id,
            event,
            created_at: record.ts,
        })
    }

    fn run_line(&self, event: &RunEvent, event_id: u64) -> Option<TaskEvent> {
        Some(match event {
            // A later `LoopStarted` only continues the run.
            RunEvent::LoopStarted {
                mode,
                agent_type,
                model,
            } if event_id == self.start.first_event_id => {
                TaskEvent::TaskCreated(Box::new(TaskCreated {
                    mission: self.start.goals.mission.clone(),
                    task: self.start.run.task.clone(),
                    mode: *mode,
                    model: model.clone(),
                    agent_type: agent_type.clone(),
                    project_dir: self.start.project_dir.clone().into(),
                    goal_tree: self.start.goals.clone(),
                }))
            }
            RunEvent::Completed { summary, stats } => TaskEvent::TaskCompleted {
                summary: summary.clone(),
                stats: *stats,
            },
            RunEvent::Failed {
                error,
                end_reason,
                stats,
            } => TaskEvent::TaskFailed {
                error: error.clone(),
                end_reason: *end_reason,
                stats: *stats,
            },
            RunEvent::Cancelled {
                end_reason, stats, ..
            } => TaskEvent::TaskCancelled {
                end_reason: *end_reason,
                stats: *stats,
            },
            RunEvent::LoopStarted { .. }
            | RunEvent::Queued { .. }
            | RunEvent::Dequeued { .. }
            | RunEvent::CancelRequested {}
            | RunEvent::CancelTimeout { .. }
            | RunEvent::Recovered { .. }
            | RunEvent::SessionForked { .. }
            | RunEvent::Waiting { .. }
            | RunEvent::Resumed { .. }
            | RunEvent::Stuck { .. }
            | RunEvent::Ending { .. }
            | RunEvent::ActorRestarted { .. } => return None,
        })
    }
}

fn goal_line(event: &GoalEvent) -> (TaskEvent, Option<GoalId>) {
    let (event, goal_id) = match event {
        GoalEvent::Added { goal, after } => (
            TaskEvent::GoalAdded {
                goal: goal.clone(),
                after: after.clone(),
            },
            goal.id.clone(),
        ),
        GoalEvent::Updated {
            goal_id,
            changes,
            affected_goals,
        } => {
            let changes = changes.clone();
            let affected_goals = affected_goals.clone();
            (
                TaskEvent::GoalUpdated {
                    goal_id: goal_id.clone(),
                    changes,
                    affected_goals,
                },
                goal_id.clone(),
            )
        }
        GoalEvent::Focused { goal_id } => (
            TaskEvent::GoalFocused {
                goal_id: goal_id.clone(),
            },
            goal_id.clone(),
        ),
    };
    (event, Some(goal_id))
}

fn child_line(event: &SubAgentEvent) -> Option<(TaskEvent, Option<GoalId>)> {
    match event.clone() {
        SubAgentEvent::Started {
            sub_trace_id,
            run_id,
            mode,
            agent_type,
            task,
            parent_goal_id,
            ..
        } => Some((
            TaskEvent::ChildStarted {
                sub_trace_id,
                run_id,
                mode,
                agent_type,
                task,
            },
            parent_goal_id,
        )),
        SubAgentEvent::Completed {
            sub_trace_id,
            run_id,
            status,
            summary,
            stats,
            artifacts,
        } => Some((
            TaskEvent::ChildCompleted {
                sub_trace_id,
                run_id,
                status,
                summary,
                stats,
                artifacts,
            },
            None,
        )),
        SubAgentEvent::CollaboratorUpdated { .. }
        | SubAgentEvent::Delivered { .. }
        | SubAgentEvent::QuestionAsked { .. }
        | SubAgentEvent::QuestionAnswered { .. } => None,
    }
}

/// Rebuilds the goal tree from the lines of a journal; `None` if they do not begin with
/// `task_created`.
///
/// The tree has only the sub-traces that this run started, and no stats, because the lines do not
/// contain them.
pub fn goal_tree<'a>(lines: impl IntoIterator<Item = &'a TaskLine>) -> Option<GoalTree> {
    let mut lines = lines.into_iter();
    let TaskEvent::TaskCreated(created) = &lines.next()?.event else {
        return None;
    };
    let mut tree = created.goal_tree.clone();
    for line in lines {
        match &line.event {
            TaskEvent::GoalAdded { goal, after } => {
                tree.apply(&GoalEvent::Added {
                    goal: goal.clone(),
                    after: after.clone(),
                });
            }
            TaskEvent::GoalUpdated {
                goal_id,
                changes,
                affected_goals,
            } => tree.apply(&GoalEvent::Updated {
                goal_id: goal_id.clone(),
                changes: changes.clone(),
                affected_goals: affected_goals.clone(),
            }),
            TaskEvent::GoalFocused { goal_id } => tree.apply(&GoalEvent::Focused {
                goal_id: goal_id.clone(),
            }),
            TaskEvent::GoalsRewound { goal_tree, .. } => tree.restore(GoalTree::clone(goal_tree)),
            TaskEvent::ChildStarted { sub_trace_id, .. } => {
                let served = tree
                    .goals
                    .iter_mut()
                    .find(|goal| Some(&goal.id) == line.goal_id.as_ref());
                // A continued child has several lines.
                if let Some(goal) = served.filter(|goal| !goal.sub_trace_ids.contains(sub_trace_id))
                {
                    goal.sub_trace_ids.push(sub_trace_id.clone());
                }
            }
            TaskEvent::TaskCreated(_)
            | TaskEvent::ChildCompleted { .. }
            | TaskEvent::TaskCompleted { .. }
            | TaskEvent::TaskFailed { .. }
            | TaskEvent::TaskCancelled { .. } => {}
        }
    }
    Some(tree)
}

#[cfg(test)]
mod tests;
