//! Random histories of runs, continuations, rewinds, switches, summaries and killed processes keep
//! the invariants (MSG-1 … MSG-6): sequences are unique; the main path is a path; providers accept
//! every conversation that is sent to a model; nothing is repaired twice; and the usage of children
//! adds up to the totals of their parents.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};
use soong::{
    ErrorCode, MessagePath, RunRequest, RuntimeBuilder, TraceFilter,
    model::ModelRequest,
    protocol::{Event, Message, Role, RunEvent, RunMode, SessionId, Stats, TraceId},
};

use crate::support::{
    history::check_messages,
    model::{ScriptedModel, Turn, scripted_model},
    pairing,
    world::{
        PowerSwitch, PoweredStore, TestRuntime, quick_non_durable_config, wait_until, with_timeout,
    },
};

/// Operation on the conversation.
#[derive(Debug, Clone)]
enum Op {
    /// Sends a message; the run takes these steps.
    Ask { steps: Vec<Step> },
    /// Sends a message after an earlier message, which `part` selects on the main path (in 1/256);
    /// continues there without a message if `repeats`.
    Back {
        part: u8,
        repeats: bool,
        steps: Vec<Step>,
    },
    /// Moves the head to any message, which `part` selects.
    Switch { part: u8 },
    /// Sends a message, and ends the process after this many model calls. The next process resumes
    /// the run, or ends it if `ends`.
    Die {
        steps: Vec<Step>,
        after: u8,
        ends: bool,
    },
    /// Sends a message, and cuts the power after this many commits. The next process opens the disk
    /// as it was at the cut, and resumes the run, or ends it if `ends`.
    Cut {
        steps: Vec<Step>,
        commits: u8,
        ends: bool,
    },
    /// Reopens the home.
    Reopen,
}

/// Step that a run takes in a turn.
#[derive(Debug, Clone, Copy)]
enum Step {
    Read,
    Plan,
    Finish,
    Explore,
    Write,
    Wrong,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use Step::{Explore, Finish, Plan, Read, Write, Wrong};
    let step = prop_oneof![4 => Just(Read), 1 => Just(Plan), 1 => Just(Finish), 1 => Just(Explore), 2 => Just(Write), 1 => Just(Wrong)];
    prop::collection::vec(step, 0..6)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => steps().prop_map(|steps| Op::Ask { steps }),
        2 => (any::<u8>(), any::<bool>(), steps()).prop_map(|(part, repeats, steps)| Op::Back { part, repeats, steps }),
        1 => any::<u8>().prop_map(|part| Op::Switch { part }),
        2 => (steps(), 0u8..8, any::<bool>()).prop_map(|(steps, after, ends)| Op::Die { steps, after, ends }),
        2 => (steps(), 0u8..40, any::<bool>()).prop_map(|(steps, commits, ends)| Op::Cut { steps, commits, ends }),
        1 => Just(Op::Reopen),
    ]
}

/// Instructions of the test to the model. Shared by all processes.
#[derive(Default)]
struct Script {
    /// Remaining steps of the active run.
    steps: Mutex<Vec<Step>>,
    /// Number of model calls that are answered before the model hangs.
    left: AtomicU64,
    /// Counter that makes each answer unique.
    count: AtomicU64,
    problems: Mutex<Vec<String>>,
}

const SUMMARY: &str = "## Request and intent\nx\n## Current work\ny\n## Next step\nz";

fn form(messages: &[Arc<Message>]) -> Vec<Value> {
    messages
        .iter()
        .map(|message| serde_json::to_value(&**message).unwrap())
        .collect()
}

impl Script {
    fn answer(&self, request: &ModelRequest) -> Turn {
        let messages = form(&request.messages);
        for (name, rules) in [
            ("openai", pairing::openai as fn(&[Value]) -> _),
            ("anthropic", pairing::anthropic),
        ] {
            if let Err(why) = rules(&messages) {
                self.problems
                    .lock()
                    .unwrap()
                    .push(format!("{name}: {why}: {messages:#?}"));
            }
        }
        if request.tools.is_empty() {
            return Turn::say(SUMMARY);
        }
        let is_child = !request.tools.iter().any(|tool| tool.name == "agent");
        if is_child {
            return Turn::say("a child's answer");
        }
        if self
            .left
            .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
            .is_err()
        {
            return Turn::Hang("half an answer");
        }
        let number = self.count.fetch_add(1, SeqCst);
        let next = self.steps.lock().unwrap().pop();
        match next {
            None => Turn::say(format!("answer {number} {}", "word ".repeat(60))),
            Some(Step::Read) => Turn::Call(vec![
                ("read", json!({ "path": "a.txt" })),
                ("list_files", json!({})),
            ]),
            Some(Step::Plan) => Turn::call("goal", json!({ "add": [format!("goal {number}")] })),
            Some(Step::Finish) => Turn::call("goal", json!({ "done": "it is done" })),
            Some(Step::Explore) => Turn::call("agent", json!({ "task": ["one", "two"] })),
            Some(Step::Write) => Turn::Call(vec![
                ("create_artifact", json!({ "name": "doc", "content": "0" })),
                (
                    "rewrite_artifact",
                    json!({ "name": "doc", "content": number.to_string() }),
                ),
            ]),
            Some(Step::Wrong) => Turn::call("read", json!("no arguments")),
        }
    }
}

fn small(builder: RuntimeBuilder) -> RuntimeBuilder {
    let mut config = quick_non_durable_config();
    config.model.context_window = Some(4_500);
    config.model.max_output_tokens = Some(100);
    config.context.keep_recent_messages = 4;
    config.runtime.max_turns = 30;
    builder.config(config)
}

/// Configures a process that finds interrupted runs: it ends them if `ends`, otherwise it resumes
/// them.
fn left_behind(ends: bool) -> impl FnOnce(RuntimeBuilder) -> RuntimeBuilder {
    move |builder| {
        let mut config = quick_non_durable_config();
        if !ends {
            return small(builder);
        }
        config.runtime.recovery = Some(soong::protocol::RecoveryMode::Fail);
        builder.config(config)
    }
}

struct History {
    world: TestRuntime,
    script: Arc<Script>,
    power: Arc<PowerSwitch>,
}

impl History {
    fn model(script: &Arc<Script>) -> Arc<ScriptedModel> {
        let script = Arc::clone(script);
        scripted_model(move |request| script.answer(request))
    }

    fn tell(&self, steps: &[Step], left: u64) {
        *self.script.steps.lock().unwrap() = steps.iter().rev().copied().collect();
        self.script.left.store(left, SeqCst);
    }

    fn start() -> RunRequest {
        let number = std::time::SystemTime::now()
            .elapsed()
            .map_or(0, |time| time.subsec_nanos());
        RunRequest::new(format!("ask {number}"))
            .session("s")
            .mode(RunMode::Orchestrator)
    }

    async fn messages(&self, path: MessagePath) -> Vec<Message> {
        self.world
            .runtime()
            .traces()
            .messages(&TraceId::new("s"), path)
            .await
            .unwrap_or_default()
    }

    async fn run(&self, start: RunRequest) {
        match self.world.runtime().start(start).await {
            Ok(run) => drop(with_timeout(run.wait()).await.unwrap()),
            // A run cannot continue from every message, and some conversations are already
            // answered.
            Err(error) => assert_eq!(error.code, ErrorCode::ValidationError, "{error}"),
        }
    }

    /// Reopens the home, with a store that supports power cuts.
    async fn reopen(&mut self) {
        let model = Self::model(&self.script);
        let switch = Arc::clone(&self.power);
        let powered = |builder: RuntimeBuilder| {
            builder.wrap_store(|store| Box::new(PoweredStore { store, switch }))
        };
        self.world
            .reopen_with(model, |builder| powered(small(builder)))
            .await;
    }

    /// Waits for the end of a resumed run, and reopens the home.
    async fn settle(&mut self) {
        if let Some(run) = self.world.runtime().traces().active_run(&TraceId::new("s")) {
            with_timeout(run.wait()).await.unwrap();
        }
        self.reopen().await;
    }

    async fn apply(&mut self, op: &Op) {
        let id = TraceId::new("s");
        match op {
            Op::Ask { steps } => {
                self.tell(steps, u64::MAX);
                self.run(Self::start()).await;
            }
            Op::Back {
                part,
                repeats,
                steps,
            } => {
                let path = self.messages(MessagePath::Main).await;
                let Some(message) = pick(&path, *part) else {
                    return;
                };
                self.tell(steps, u64::MAX);
                let start = if *repeats {
                    RunRequest::resume("s")
                } else {
                    Self::start()
                };
                self.run(start.after(message)).await;
            }
            Op::Switch { part } => {
                let all = self.messages(MessagePath::All).await;
                let Some(message) = pick(&all, *part) else {
                    return;
                };
                match self
                    .world
                    .runtime()
                    .sessions()
                    .switch_head(&SessionId::new("s"), message)
                    .await
                {
                    Ok(switched) => {
                        let trace = self.world.runtime().traces().get(&id).await.unwrap();
                        assert_eq!(trace.head_sequence, switched.sequence);
                    }
                    Err(error) => assert_eq!(error.code, ErrorCode::ValidationError, "{error}"),
                }
            }
            Op::Die { steps, after, ends } => {
                self.tell(steps, u64::from(*after));
                let Ok(run) = self.world.runtime().start(Self::start()).await else {
                    return;
                };
                let runtime = self.world.runtime().clone();
                let is_over = || runtime.traces().active_run(&id).is_none();
                wait_until("it neither hangs nor ends", || {
                    self.script.left.load(SeqCst) == 0 || is_over()
                })
                .await;
                drop((run, runtime));
                // The remaining steps and the interrupted run are left to the next process.
                self.script.left.store(u64::MAX, SeqCst);
                self.world
                    .reopen_with(Self::model(&self.script), left_behind(*ends))
                    .await;
                self.settle().await;
            }
            Op::Cut {
                steps,
                commits,
                ends,
            } => {
                self.tell(steps, u64::MAX);
                self.power.cut_after(i64::from(*commits));
                self.run(Self::start()).await;
                // If the run ended before the power was cut, cancel the cut.
                self.power.cut_after(-1);
                let model = Self::model(&self.script);
                let is_cut = self
                    .world
                    .reopen_after_power_cut(model, left_behind(*ends))
                    .await;
                CUTS.fetch_add(u64::from(is_cut), SeqCst);
                self.settle().await;
            }
            Op::Reopen => self.reopen().await,
        }
    }

    async fn check(&self) {
        assert_eq!(*self.script.problems.lock().unwrap(), Vec::<String>::new());
        let Ok(trace) = self.world.runtime().traces().get(&TraceId::new("s")).await else {
            return;
        };
        let all = self.messages(MessagePath::All).await;
        let by_sequence: BTreeMap<u64, &Message> = all
            .iter()
            .map(|message| (message.sequence, message))
            .collect();
        assert_eq!(by_sequence.len(), all.len(), "sequences are unique");
        assert_eq!(trace.total_messages, all.len() as u64);
        assert!(all.iter().all(|message| {
            message
                .parent_sequence
                .is_none_or(|parent| parent < message.sequence)
        }));
        let main = self.messages(MessagePath::Main).await;
        let path: Vec<u64> = main.iter().map(|message| message.sequence).collect();
        assert_eq!(
            path,
            walk(&by_sequence, trace.head_sequence),
            "the ranges say what the links say"
        );
        check_messages(&main);
        SUMMED_UP.fetch_add(
            u64::from(main.iter().any(|message| message.covers.is_some())),
            SeqCst,
        );
        self.check_stats().await;
    }

    /// Checks that the usage reported for run trees equals the usage of their traces.
    async fn check_stats(&self) {
        let runtime = self.world.runtime();
        let filter = TraceFilter {
            session_id: Some(SessionId::new("s")),
            ..TraceFilter::default()
        };
        let traces = runtime.traces().list(filter, 100, None).await.unwrap();
        assert!(
            traces.next_cursor.is_none(),
            "the test looks at all of them"
        );
        let mut reported_tree = Stats::zero();
        let mut reported_own = Stats::zero();
        let mut stored = 0;
        for trace in traces.items {
            let mut since = 0;
            loop {
                let page = runtime
                    .traces()
                    .replay(&trace.trace_id, since, 500)
                    .await
                    .unwrap();
                let Some(last) = page.last() else { break };
                since = last.event_id;
                for record in &page {
                    let (Event::Run(RunEvent::Completed { stats, .. })
                    | Event::Run(RunEvent::Failed { stats, .. })
                    | Event::Run(RunEvent::Cancelled { stats, .. })) = &record.event
                    else {
                        continue;
                    };
                    reported_own.add_descendant(&stats.own);
                    if trace.parent_trace_id.is_none() {
                        reported_tree.add_descendant(&stats.tree);
                    }
                }
            }
            stored += trace.total_tokens;
        }
        assert_eq!(
            reported_own.total_tokens, stored,
            "runs say what their rows say"
        );
        // The durations of children overlap, so they do not add up.
        let sums = |stats: Stats| Stats {
            duration_ms: 0,
            ..stats
        };
        assert_eq!(
            sums(reported_tree),
            sums(reported_own),
            "parents say what their children used"
        );
    }
}

fn pick(messages: &[Message], part: u8) -> Option<u64> {
    let index = usize::from(part) * messages.len() / 256;
    messages.get(index).map(|message| message.sequence)
}

/// Computes the main path from the parent links and summaries alone.
fn walk(messages: &BTreeMap<u64, &Message>, head: u64) -> Vec<u64> {
    let mut path = Vec::new();
    let mut at = Some(head).filter(|head| *head > 0);
    while let Some(sequence) = at {
        path.push(sequence);
        let summary = messages
            .values()
            .rev()
            .find_map(|message| Some((message.sequence, message.covers?)));
        let summary = summary
            .filter(|(_, covers)| covers.next == sequence)
            .or_else(|| {
                messages.values().rev().find_map(|message| {
                    let covers = message.covers?;
                    (covers.next == sequence).then_some((message.sequence, covers))
                })
            });
        if let Some((summary, covers)) = summary {
            let has_later_request = path
                .iter()
                .any(|sequence| *sequence < summary && messages[sequence].role == Role::User);
            path.extend(covers.request.filter(|_| !has_later_request));
            path.push(summary);
            path.extend(covers.system);
            break;
        }
        let parent = messages[&sequence].parent_sequence;
        assert!(
            parent.is_none_or(|parent| parent < sequence),
            "the path leads back"
        );
        at = parent;
    }
    path.reverse();
    path
}

/// Number of checks that found a summary on the main path, and number of power cuts during a run.
static SUMMED_UP: AtomicU64 = AtomicU64::new(0);
static CUTS: AtomicU64 = AtomicU64::new(0);

#[test]
fn random_histories_keep_the_invariants() {
    let config = ProptestConfig {
        cases: 24,
        max_shrink_iters: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let histories = prop::collection::vec(op(), 1..9);
    let checked = TestRunner::new(config).run(&histories, |ops| {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        tokio.block_on(live_through(&ops));
        Ok(())
    });
    checked.unwrap_or_else(|error| panic!("{error}"));
    let summed_up = SUMMED_UP.load(SeqCst);
    let cuts = CUTS.load(SeqCst);
    assert!(
        summed_up > 0 && cuts > 0,
        "{summed_up} with a summary, {cuts} cut off: the histories are too dull"
    );
}

async fn live_through(ops: &[Op]) {
    let script = Arc::new(Script::default());
    let power = PowerSwitch::new();
    let world = TestRuntime::with(History::model(&script), small).await;
    world.connect_power_switch(&power);
    std::fs::write(world.project().join("a.txt"), "word ".repeat(400)).unwrap();
    let mut history = History {
        world,
        script,
        power,
    };
    history.reopen().await;
    for op in ops {
        history.apply(op).await;
        history.check().await;
    }
    // Nothing is repaired or recorded twice.
    let last = |world: &TestRuntime| {
        let runtime = world.runtime().clone();
        async move {
            runtime
                .traces()
                .get(&TraceId::new("s"))
                .await
                .map(|trace| (trace.last_event_id, trace.last_sequence))
                .ok()
        }
    };
    let before = last(&history.world).await;
    history.reopen().await;
    history.reopen().await;
    assert_eq!(last(&history.world).await, before);
    let runs = history
        .world
        .runtime()
        .sessions()
        .get(&SessionId::new("s"))
        .await
        .map_or(0, |session| session.live_runs);
    assert_eq!(runs, 0);
    history.world.finish().await;
}
