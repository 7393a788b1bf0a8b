//! State of each run of a session, collected from events and from snapshots of the tree.
//!
//! Pure. Events are authoritative for the start, the end and the usage of a run. Snapshots of the
//! supervision tree show the current activity of a run, and may be newer than the last event.
//!
//! Invariants:
//! - The row of an ended run does not change.
//! - Usage that both the tree and an event report is counted once.
//!
//! Elsewhere: snapshots of the tree (`run_table/tree_snapshot.rs`), rendering (`lines.rs`), sums
//! over all runs (`totals.rs`).

mod tree_snapshot;

use std::collections::HashSet;

use soong_protocol::{
    Event, EventRecord, MemoryEvent, ModelEvent, PermissionEvent, Run, RunEvent, RunId, RunMode,
    RunStatus, SubAgentEvent, Timestamp, ToolEvent, Usage, Usd,
};

use crate::{spent::Spent, text};

/// State of a run, as shown on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisplayState {
    /// In the queue, or starting.
    Queued,
    /// Active.
    Active,
    /// Waiting for input or permission, or interrupted.
    Waiting,
    /// Completed.
    Done,
    /// Failed.
    Failed,
    /// Cancelled.
    Cancelled,
}

impl DisplayState {
    /// Returns whether the run has ended.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

impl From<RunStatus> for DisplayState {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Queued => Self::Queued,
            RunStatus::Running => Self::Active,
            RunStatus::Waiting | RunStatus::Interrupted => Self::Waiting,
            RunStatus::Completed => Self::Done,
            RunStatus::Failed => Self::Failed,
            RunStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// Usage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunUsage {
    /// Number of turns started.
    pub turn: u32,
    /// Tokens and cost.
    pub spent: Spent,
}

impl RunUsage {
    const NOTHING: Self = Self {
        turn: 0,
        spent: Spent::NOTHING,
    };

    fn add(&mut self, usage: &Usage, cost: Option<Usd>) {
        let spent = Spent {
            tokens: usage.total_tokens(),
            cost,
            estimated: usage.estimated,
        };
        self.spent = self.spent.plus(spent);
    }
}

/// A run in the table. Control characters are already removed from its texts.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// The run.
    pub run_id: RunId,
    /// Its parent run.
    pub parent: Option<RunId>,
    /// Agent type, or `orchestrator` for a run in that mode with the default agent type.
    pub agent_type: String,
    /// Task of the run.
    pub task: String,
    /// State of the run.
    pub state: DisplayState,
    /// Whether the run waits for input according to its events. While set, snapshots of the tree do
    /// not change its state and activity, because they may be older.
    pub(super) awaits_input: bool,
    /// Current activity; empty if unknown.
    pub activity: String,
    /// Goal in focus; empty if there is none.
    pub goal: String,
    /// Number of turns started.
    pub turn: u32,
    /// Tokens and cost.
    pub spent: Spent,
    /// Time of the start.
    pub started_at: Option<Timestamp>,
    /// Time of the end.
    pub ended_at: Option<Timestamp>,
    /// Usage that events reported, without snapshots of the tree.
    pub(super) event_usage: RunUsage,
}

impl RunRow {
    fn new(run_id: RunId, parent: Option<RunId>, kind: &str, task: &str) -> Self {
        Self {
            run_id,
            parent,
            agent_type: text::safe_line(kind),
            task: text::safe_line(task),
            state: DisplayState::Queued,
            awaits_input: false,
            activity: String::new(),
            goal: String::new(),
            turn: 0,
            spent: Spent::NOTHING,
            started_at: None,
            ended_at: None,
            event_usage: RunUsage::NOTHING,
        }
    }

    /// Raises the turn number and the tokens to those of `used`. Takes over its cost unless more
    /// tokens are already known.
    fn update_usage(&mut self, used: RunUsage) {
        self.turn = self.turn.max(used.turn);
        if used.spent.tokens >= self.spent.tokens {
            self.spent = used.spent;
        }
    }

    /// Adds what a failed model call used, if that is charged.
    fn add_lost_call(&mut self, usage: Option<&Usage>, cost: Option<Usd>) {
        if let Some(usage) = usage {
            self.event_usage.add(usage, cost);
            self.update_usage(self.event_usage);
        }
    }

    fn end(&mut self, state: DisplayState, at: Timestamp) {
        self.state = state;
        self.activity.clear();
        self.goal.clear();
        self.ended_at = Some(at);
    }
}

impl From<&Run> for RunRow {
    /// Creates a row from the record of a run.
    fn from(run: &Run) -> Self {
        let kind = match (run.mode, run.settings.agent_type.as_str()) {
            (RunMode::Orchestrator, "default") => "orchestrator",
            (_, kind) => kind,
        };
        let used = RunUsage {
            turn: run.turn,
            spent: Spent::from(&run.usage),
        };
        Self {
            state: run.status.into(),
            activity: if run.status == RunStatus::Interrupted {
                "interrupted".to_owned()
            } else {
                String::new()
            },
            turn: used.turn,
            spent: used.spent,
            event_usage: used,
            started_at: run.started_at,
            ended_at: run.completed_at,
            ..Self::new(
                run.run_id.clone(),
                run.parent_run_id.clone(),
                kind,
                &run.task,
            )
        }
    }
}

/// All known runs of a session, in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub struct RunTable {
    /// The runs.
    pub entries: Vec<RunRow>,
    /// Sub-agents that ended before they had a row. An older snapshot of the tree may still contain
    /// them.
    ended_without_row: HashSet<RunId>,
}

impl RunTable {
    /// Creates a table that contains the watched run.
    pub fn with_root(run_id: RunId, kind: &str, task: &str) -> Self {
        Self::of(vec![RunRow::new(run_id, None, kind, task)])
    }

    /// Creates a table of these runs.
    pub fn of(entries: Vec<RunRow>) -> Self {
        Self {
            entries,
            ended_without_row: HashSet::new(),
        }
    }

    /// Returns a run of the table.
    pub fn entry(&self, id: &RunId) -> Option<&RunRow> {
        self.entries.iter().find(|entry| entry.run_id == *id)
    }

    fn active_mut(&mut self, id: Option<&RunId>) -> Option<&mut RunRow> {
        let id = id?;
        self.entries
            .iter_mut()
            .find(|entry| entry.run_id == *id && !entry.state.has_ended())
    }

    /// Applies an event.
    pub fn apply(&mut self, record: &EventRecord) {
        if let Event::SubAgent(event) = &record.event {
            return self.apply_sub_agent(event, record);
        }
        let Some(entry) = self.active_mut(record.run_id.as_ref()) else {
            return;
        };
        match &record.event {
            Event::Run(RunEvent::LoopStarted { agent_type, .. }) => {
                entry.agent_type = text::safe_line(agent_type);
                entry.state = DisplayState::Active;
                entry.started_at = entry.started_at.or(Some(record.ts));
            }
            Event::Run(RunEvent::Waiting { .. }) => {
                entry.state = DisplayState::Waiting;
                entry.awaits_input = true;
            }
            Event::Run(RunEvent::Resumed { .. }) => {
                entry.awaits_input = false;
                entry.state = DisplayState::Active;
                entry.activity.clear();
            }
            Event::Run(RunEvent::CancelRequested {}) => entry.activity = "cancelling".to_owned(),
            Event::Run(RunEvent::Completed { .. }) => entry.end(DisplayState::Done, record.ts),
            Event::Run(RunEvent::Failed { .. }) => entry.end(DisplayState::Failed, record.ts),
            Event::Run(RunEvent::Cancelled { .. }) => entry.end(DisplayState::Cancelled, record.ts),
            Event::Model(ModelEvent::Started { attempt, .. }) => {
                entry.event_usage.turn += u32::from(*attempt == 1);
                entry.update_usage(entry.event_usage);
                entry.activity = "model call".to_owned();
            }
            Event::Model(ModelEvent::Waiting { reason, .. }) => {
                entry.activity = format_activity("waiting", reason)
            }
            Event::Model(ModelEvent::Retrying {
                attempt,
                usage,
                cost,
                ..
            }) => {
                entry.activity = format!("model call, attempt {}", attempt + 1);
                entry.add_lost_call(usage.as_ref(), *cost);
            }
            Event::Model(ModelEvent::Fallback {
                to, usage, cost, ..
            }) => {
                entry.activity = format_activity("model call with", to);
                entry.add_lost_call(usage.as_ref(), *cost);
            }
            Event::Model(ModelEvent::Completed { usage, cost, .. })
            | Event::Model(ModelEvent::Failed {
                usage: Some(usage),
                cost,
                ..
            }) => {
                entry.event_usage.add(usage, *cost);
                entry.update_usage(entry.event_usage);
            }
            Event::Model(ModelEvent::NamingEnded {
                usage: Some(usage),
                cost,
                ..
            })
            | Event::Memory(
                MemoryEvent::Injected {
                    usage: Some(usage),
                    cost,
                    ..
                }
                | MemoryEvent::ReflectionEnded {
                    usage: Some(usage),
                    cost,
                    ..
                },
            ) => {
                entry.event_usage.add(usage, *cost);
                entry.update_usage(entry.event_usage);
            }
            Event::Tool(ToolEvent::Started { name, .. }) => {
                entry.activity = format!("tool {}", text::safe_line(name))
            }
            Event::Permission(PermissionEvent::Requested { tool, target, .. }) => {
                entry.activity =
                    format_activity("requests permission", &format!("{tool} {target}"));
            }
            _ => {}
        }
    }

    fn apply_sub_agent(&mut self, event: &SubAgentEvent, record: &EventRecord) {
        match event {
            SubAgentEvent::Started {
                run_id,
                agent_type,
                task,
                ..
            } if self.entry(run_id).is_none() => {
                self.entries.push(RunRow::new(
                    run_id.clone(),
                    record.run_id.clone(),
                    agent_type,
                    task,
                ));
            }
            SubAgentEvent::Completed { run_id, status, .. } => {
                if let Some(entry) = self.active_mut(Some(run_id)) {
                    entry.end((*status).into(), record.ts);
                } else if self.entry(run_id).is_none() {
                    self.ended_without_row.insert(run_id.clone());
                }
            }
            SubAgentEvent::QuestionAsked { question, .. } => {
                if let Some(entry) = self.active_mut(record.run_id.as_ref()) {
                    entry.activity = format_activity("asks", question);
                }
            }
            _ => {}
        }
    }
}

/// Formats an activity and its subject, for example `waiting: storage`. Omits an empty subject.
fn format_activity(state: &str, what: &str) -> String {
    let what = text::safe_line(what);
    if what.is_empty() {
        state.to_owned()
    } else {
        format!("{state}: {what}")
    }
}

#[cfg(test)]
mod tests {
    use soong_protocol::{ChildMode, EndReason, StatsPair, TraceId};

    use super::*;
    use crate::sample::record;

    fn child_started(run: &str) -> SubAgentEvent {
        SubAgentEvent::Started {
            sub_trace_id: TraceId::new("t@explore-001"),
            run_id: RunId::new(run),
            mode: ChildMode::Explore,
            agent_type: "explore".into(),
            task: "look\n\u{1b}[2Jthere".into(),
            parent_goal_id: None,
            tool_call_id: None,
            deliver: false,
        }
    }

    pub(super) fn child_ended(run: &str) -> SubAgentEvent {
        SubAgentEvent::Completed {
            sub_trace_id: TraceId::new("t@explore-001"),
            run_id: RunId::new(run),
            status: RunStatus::Failed,
            summary: String::new(),
            stats: StatsPair::zero(),
            artifacts: vec![],
        }
    }

    #[test]
    fn child_state_follows_events_and_is_final_after_its_end() {
        let mut board = RunTable::with_root(RunId::new("root"), "orchestrator", "all");
        board.apply(&record("root", 1, child_started("c")));
        let child = |board: &RunTable| board.entry(&RunId::new("c")).cloned().unwrap();
        assert_eq!(
            (child(&board).state, child(&board).task.as_str()),
            (DisplayState::Queued, "look \u{fffd}[2Jthere")
        );
        assert_eq!(child(&board).parent, Some(RunId::new("root")));
        let started = RunEvent::LoopStarted {
            mode: Default::default(),
            agent_type: "explore".into(),
            model: "m".into(),
        };
        board.apply(&record("c", 5, started));
        board.apply(&record(
            "c",
            6,
            ModelEvent::Started {
                model: "m".into(),
                attempt: 1,
            },
        ));
        board.apply(&record(
            "c",
            7,
            ModelEvent::Started {
                model: "m".into(),
                attempt: 2,
            },
        ));
        let usage = Usage {
            prompt_tokens: 30,
            completion_tokens: 12,
            ..Usage::default()
        };
        let answered = ModelEvent::Completed {
            finish_reason: "stop".into(),
            tool_calls: 0,
            usage,
            cost: None,
            duration_ms: 1,
            waited_ms: 0,
            answer_check: None,
        };
        board.apply(&record("c", 8, answered));
        assert_eq!(
            (
                child(&board).state,
                child(&board).turn,
                child(&board).spent.tokens
            ),
            (DisplayState::Active, 1, 42)
        );
        let end = RunEvent::Cancelled {
            queued: false,
            end_reason: EndReason::Cancelled,
            stats: StatsPair::zero(),
        };
        board.apply(&record("c", 9, end));
        let ended = child(&board);
        board.apply(&record(
            "c",
            10,
            RunEvent::Completed {
                summary: String::new(),
                stats: StatsPair::zero(),
            },
        ));
        assert_eq!(child(&board), ended);
        assert_eq!(
            (ended.state, ended.ended_at),
            (DisplayState::Cancelled, Some(Timestamp::from_millis(9)))
        );
    }

    #[test]
    fn usage_from_tree_and_events_is_counted_once() {
        let usage = Usage {
            prompt_tokens: 30,
            completion_tokens: 12,
            ..Usage::default()
        };
        let answered = |cost| ModelEvent::Completed {
            finish_reason: "stop".into(),
            tool_calls: 0,
            usage,
            cost,
            duration_ms: 1,
            waited_ms: 0,
            answer_check: None,
        };
        let cent = Usd::from_nanos(10_000_000);
        let two = Usd::from_nanos(20_000_000);
        let seen = |tokens, cost| RunUsage {
            turn: 1,
            spent: Spent {
                tokens,
                cost,
                estimated: false,
            },
        };
        for (from_tree, events, want) in [
            (None, vec![], (0, Some(Usd::default()))),
            (None, vec![Some(cent), Some(cent)], (84, Some(two))),
            (None, vec![Some(cent), None], (84, None)),
            (
                Some(seen(42, Some(cent))),
                vec![Some(cent)],
                (42, Some(cent)),
            ), // the tree reported the usage first
            (Some(seen(84, Some(two))), vec![Some(cent)], (84, Some(two))),
            (
                Some(seen(42, None)),
                vec![Some(cent), Some(cent)],
                (84, Some(two)),
            ),
        ] {
            let mut board = RunTable::with_root(RunId::new("root"), "default", "all");
            if let Some(used) = from_tree {
                board.entries[0].update_usage(used);
            }
            for cost in &events {
                board.apply(&record("root", 1, answered(*cost)));
            }
            let entry = &board.entries[0];
            assert_eq!(
                (entry.spent.tokens, entry.spent.cost),
                want,
                "{from_tree:?} then {events:?}"
            );
        }
    }

    #[test]
    fn waiting_run_shows_its_reason() {
        let mut board = RunTable::with_root(RunId::new("root"), "default", "all");
        board.apply(&record(
            "root",
            1,
            ModelEvent::Waiting {
                reason: "concur\nrency".into(),
                for_ms: 200,
            },
        ));
        assert_eq!(board.entries[0].activity, "waiting: concur rency");
        assert_eq!(
            (
                format_activity("ending", ""),
                format_activity("waiting", "storage")
            ),
            ("ending".into(), "waiting: storage".into())
        );
    }

    #[test]
    fn unstarted_child_ends_with_its_parents_event() {
        let mut board = RunTable::with_root(RunId::new("root"), "orchestrator", "all");
        board.apply(&record("root", 1, child_started("c")));
        board.apply(&record("root", 1, child_started("c")));
        board.apply(&record("root", 2, child_ended("c")));
        assert_eq!(board.entries.len(), 2);
        assert_eq!(board.entries[1].state, DisplayState::Failed);
    }
}
