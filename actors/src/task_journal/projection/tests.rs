//! The goal tree from the lines equals the one in the store, after any history.

use std::path::Path;

use proptest::prelude::*;
use soong_protocol::{
    ChildMode, Durability, EndReason, ErrorCode, ErrorInfo, EventDraft, GoalStatus, NewSession,
    NewTrace, Run, RunId, RunMode, RunSettings, RunStatus, RunWrite, SessionId, SessionWrite,
    Stats, StatsPair, Timestamp, TraceId, TraceWrite, Write,
};
use soong_storage::{
    sqlite::{SqliteReader, SqliteStore},
    store::{Append, Reader, Store},
};

use super::*;
use crate::task_journal::line::LineIdentity;

/// A change of a plan; goals are selected by their index among the existing ones.
#[derive(Debug, Clone)]
enum Step {
    Add {
        under: Option<usize>,
        count: usize,
    },
    Focus(usize),
    Close(usize, GoalStatus),
    Root,
    Child(Option<usize>),
    /// An event that has no line.
    Unrecorded,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (proptest::option::of(0usize..9), 1usize..4).prop_map(|(under, count)| Step::Add { under, count }),
        4 => (0usize..9).prop_map(Step::Focus),
        3 => (0usize..9).prop_map(|goal| Step::Close(goal, GoalStatus::Completed)),
        1 => (0usize..9).prop_map(|goal| Step::Close(goal, GoalStatus::Abandoned)),
        1 => Just(Step::Root),
        2 => proptest::option::of(0usize..9).prop_map(Step::Child),
        2 => Just(Step::Unrecorded),
    ]
}

struct TestJournal {
    store: SqliteStore,
    reader: SqliteReader,
    second: i64,
    children: usize,
}

fn session() -> SessionId {
    SessionId::new("s")
}

fn trace() -> TraceId {
    TraceId::new("s")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(1_763_700_000_000 + second * 1_000)
}

fn run(id: &str, trace: &TraceId, parent: Option<&str>) -> Run {
    Run {
        run_id: RunId::new(id),
        trace_id: trace.clone(),
        session_id: session(),
        session_incarnation: 1,
        parent_run_id: parent.map(RunId::new),
        parent_goal_id: None,
        depth: u32::from(parent.is_some()),
        mode: RunMode::Orchestrator,
        task: format!("task of {id}"),
        settings: RunSettings::default(),
        uid: "local".into(),
        status: RunStatus::Queued,
        cancel_requested: false,
        end_reason: None,
        turn: 0,
        usage: Stats::zero(),
        cost: None,
        error: None,
        created_at: at(0),
        started_at: None,
        completed_at: None,
        model_name: None,
    }
}

fn started() -> RunEvent {
    RunEvent::LoopStarted {
        mode: RunMode::Orchestrator,
        agent_type: "orchestrator".into(),
        model: "m".into(),
    }
}

impl TestJournal {
    fn open(dir: &Path) -> Self {
        let path = dir.join("db");
        let store = SqliteStore::open(&path, Durability::Normal).unwrap();
        let reader = SqliteReader::open(&path).unwrap();
        let mut world = Self {
            store,
            reader,
            second: 0,
            children: 0,
        };
        let session = NewSession {
            session_id: session(),
            name: None,
            uid: "local".into(),
            project_dir: "/project".into(),
            created_at: at(0),
        };
        world.write(vec![
            Write::Session(SessionWrite::Create(session)),
            TestJournal::new_trace(&trace(), None, None),
        ]);
        world
    }

    fn new_trace(id: &TraceId, parent: Option<TraceId>, goal: Option<GoalId>) -> Write {
        Write::Trace(TraceWrite::Create(NewTrace {
            trace_id: id.clone(),
            session_id: session(),
            run_mode: RunMode::Orchestrator,
            task: "the mission".into(),
            name: "x".into(),
            agent_type: "orchestrator".into(),
            parent_trace_id: parent,
            parent_goal_id: goal,
            uid: "local".into(),
            model: "m".into(),
            created_at: at(0),
        }))
    }

    fn write(&mut self, writes: Vec<Write>) {
        self.store
            .commit(&[Append {
                fence: None,
                writes,
            }])
            .unwrap()
            .remove(0)
            .unwrap();
    }

    fn event(&mut self, run: &str, event: impl Into<Event>) -> Write {
        self.second += 1;
        Write::Event(EventDraft::new(
            trace(),
            Some(RunId::new(run)),
            at(self.second),
            event,
        ))
    }

    fn tree(&self) -> GoalTree {
        self.reader.goal_tree(&trace()).unwrap().unwrap()
    }

    /// Starts a run, applies all steps, and ends it.
    fn run_to_end(&mut self, id: &str, steps: &[Step], end: RunEvent) {
        let begun = self.event(id, started());
        self.write(vec![
            Write::Run(RunWrite::Create(Box::new(run(id, &trace(), None)))),
            begun,
        ]);
        for step in steps {
            let tree = self.tree();
            let name = |index: usize| {
                tree.goals
                    .get(index)
                    .map(|goal| goal.id.to_string())
                    .unwrap_or_default()
            };
            let plan = match step {
                Step::Add { under, count } => {
                    let under = under.map(name).filter(|name| !name.is_empty());
                    let goals: Vec<String> = (0..*count).map(|n| format!("goal {n}")).collect();
                    tree.plan_add(&goals, "why", under.as_deref(), None, 0, at(self.second))
                }
                Step::Focus(index) => tree.plan_focus(&name(*index)),
                Step::Close(index, status) => {
                    tree.plan_close(Some(&name(*index)), *status, "a summary")
                }
                Step::Root => Ok(tree.plan_mission_goal("task", 0, at(self.second))),
                Step::Child(index) => {
                    self.child(
                        id,
                        index
                            .and_then(|index| tree.goals.get(index))
                            .map(|goal| goal.id.clone()),
                    );
                    continue;
                }
                Step::Unrecorded => {
                    let event = self.event(id, started());
                    self.write(vec![event]);
                    continue;
                }
            };
            // A rejected change has no effect.
            let writes = plan
                .unwrap_or_default()
                .into_iter()
                .map(|goal| self.event(id, goal))
                .collect();
            self.write(writes);
        }
        let end = self.event(id, end);
        self.write(vec![end]);
    }

    fn child(&mut self, parent: &str, goal: Option<GoalId>) {
        self.children += 1;
        let sub_trace = TraceId::new(format!("s@{}", self.children));
        let name = format!("child {}", self.children);
        let started = self.event(
            parent,
            SubAgentEvent::Started {
                sub_trace_id: sub_trace.clone(),
                run_id: RunId::new(name.as_str()),
                mode: ChildMode::Explore,
                agent_type: "explore".into(),
                task: "look".into(),
                parent_goal_id: goal.clone(),
                tool_call_id: None,
                deliver: false,
            },
        );
        let ended = self.event(
            parent,
            SubAgentEvent::Completed {
                sub_trace_id: sub_trace.clone(),
                run_id: RunId::new(name.as_str()),
                status: RunStatus::Completed,
                summary: "found".into(),
                stats: StatsPair::zero(),
                artifacts: Vec::new(),
            },
        );
        let rows = vec![
            TestJournal::new_trace(&sub_trace, Some(trace()), goal),
            Write::Run(RunWrite::Create(Box::new(run(
                &name,
                &sub_trace,
                Some(parent),
            )))),
        ];
        self.write(rows.into_iter().chain([started, ended]).collect());
    }

    /// Returns the lines of a run's journal, serialized and parsed again.
    fn lines(&self, id: &str) -> Vec<TaskLine> {
        let run = RunId::new(id);
        let mut projection =
            Projection::new(self.reader.pending_task_journal(&run).unwrap().unwrap());
        let events = self.reader.run_events(&run).unwrap();
        let lines = events.iter().filter_map(|record| projection.line(record));
        let back = |line: TaskLine| {
            let json = serde_json::to_string(&line).unwrap();
            assert!(
                LineIdentity::parse(json.as_bytes()).unwrap().matches(&line),
                "{json}"
            );
            let read: TaskLine = serde_json::from_str(&json).unwrap();
            assert_eq!(read, line, "{json}");
            read
        };
        lines.map(back).collect()
    }
}

/// Returns the tree as the lines describe it: without stats, and only with the children of one run.
fn without_stats(mut tree: GoalTree, children: &[TaskLine]) -> GoalTree {
    let started: Vec<_> = children
        .iter()
        .filter_map(|line| match &line.event {
            TaskEvent::ChildStarted { sub_trace_id, .. } => Some(sub_trace_id.clone()),
            _ => None,
        })
        .collect();
    for goal in &mut tree.goals {
        goal.self_stats = None;
        goal.cumulative_stats = None;
        goal.sub_trace_metadata.clear();
        goal.sub_trace_ids.retain(|id| started.contains(id));
    }
    tree
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn goal_tree_is_rebuilt_from_lines(
        before in proptest::collection::vec(step(), 0..12),
        steps in proptest::collection::vec(step(), 0..30),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut world = TestJournal::open(dir.path());
        let stats = StatsPair::zero;
        world.run_to_end("r1", &before, RunEvent::Completed { summary: "x".into(), stats: stats() });
        world.run_to_end("r2", &steps, RunEvent::Cancelled { queued: false, end_reason: EndReason::Cancelled, stats: stats() });
        let lines = world.lines("r2");
        prop_assert_eq!(goal_tree(&lines).unwrap(), without_stats(world.tree(), &lines));
        let numbers: Vec<u64> = lines.iter().map(|line| line.wal_seq).collect();
        prop_assert_eq!(numbers, (1..=lines.len() as u64).collect::<Vec<_>>());
        prop_assert!(lines.iter().rev().skip(1).all(|line| !line.event.is_last()));
        prop_assert!(lines.last().unwrap().event.is_last());
        prop_assert_eq!(lines.iter().filter(|line| line.event.kind() == "task_created").count(), 1);
    }
}

#[test]
fn run_end_is_the_last_line() {
    let stats = StatsPair::zero();
    let error = ErrorInfo::new(ErrorCode::Interrupted, "why");
    for (end, kind) in [
        (
            RunEvent::Completed {
                summary: "done".into(),
                stats,
            },
            "task_completed",
        ),
        (
            RunEvent::Failed {
                error,
                end_reason: EndReason::Interrupted,
                stats,
            },
            "task_failed",
        ),
        (
            RunEvent::Cancelled {
                queued: false,
                end_reason: EndReason::Cancelled,
                stats,
            },
            "task_cancelled",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut world = TestJournal::open(dir.path());
        world.run_to_end("r", &[Step::Root], end);
        let lines = world.lines("r");
        let kinds: Vec<&str> = lines.iter().map(|line| line.event.kind()).collect();
        assert_eq!(kinds, ["task_created", "goal_added", "goal_focused", kind]);
        let times: Vec<Timestamp> = lines.iter().map(|line| line.created_at).collect();
        assert_eq!(
            times,
            [at(1), at(2), at(3), at(4)],
            "a line has the time of its event"
        );
        let TaskEvent::TaskCreated(created) = &lines[0].event else {
            panic!("{:?}", lines[0])
        };
        assert_eq!(
            (created.mission.as_str(), created.task.as_str()),
            ("the mission", "task of r")
        );
    }
}
