//! A reflection on older messages before a summary replaces them (MEM-5).

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use serde_json::json;
use soong::{
    Config, FaultComponent, FaultPoint, RunRequest, RuntimeBuilder,
    model::{Failure, ModelError, ModelRequest},
    protocol::{ContextEvent, Event, EventRecord, MemoryEvent, RunStatus, SessionId, TraceId},
};

use crate::support::{
    history::{check_session, stored},
    model::{ScriptedModel, Turn, scripted_model},
    world::{TestRuntime, quick_config, wait_until, with_timeout},
};

const SUMMARY: &str = "## Request and intent\n\"the job\"\n## Artifacts\nnone\n## Current work\nreading\n## Next step\nread on";

const LEARNED: &str = "{\"experiences\": [{\"category\": \"environment\", \"tags\": {\"intent\": [\"read\"], \
                       \"state\": []}, \"text\": \"long.txt is long.\"}]}";

/// Configures a model with a small context window, and reflections.
fn small(builder: RuntimeBuilder) -> RuntimeBuilder {
    with_config(builder, |_| {})
}

fn with_config(builder: RuntimeBuilder, change: impl FnOnce(&mut Config)) -> RuntimeBuilder {
    let mut config = quick_config();
    config.memory.reflect_before_summary = true;
    config.model.context_window = Some(7_500);
    config.model.max_output_tokens = Some(100);
    config.context.keep_recent_messages = 4;
    config.agents.max_depth = 1;
    change(&mut config);
    builder.config(config)
}

fn is_reflection(request: &ModelRequest) -> bool {
    request
        .system
        .first()
        .is_some_and(|system| system.starts_with("You review an agent"))
}

fn is_summary(request: &ModelRequest) -> bool {
    request
        .system
        .first()
        .is_some_and(|system| system.starts_with("You summarize an agent"))
}

/// Model that reads a long file until `summaries` summaries have been made. `reflect` answers the
/// reflections.
fn reader(
    summaries: usize,
    reflect: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static,
) -> (Arc<ScriptedModel>, Arc<AtomicUsize>) {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let model = scripted_model(move |request| match request {
        request if is_reflection(request) => reflect(request),
        request if is_summary(request) => {
            count.fetch_add(1, SeqCst);
            Turn::say(SUMMARY)
        }
        _ if count.load(SeqCst) >= summaries => Turn::say("read"),
        _ => Turn::call("read", json!({ "path": "long.txt" })),
    });
    (model, made)
}

async fn open(
    model: Arc<ScriptedModel>,
    build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
) -> TestRuntime {
    let world = TestRuntime::with(model, build).await;
    let text: String = (0..300).map(|word| format!("word{word} ")).collect();
    std::fs::write(world.project().join("long.txt"), text).unwrap();
    world
}

fn request() -> RunRequest {
    RunRequest::new("the job")
        .session("s")
        .system_prompt("Do it.")
}

fn experiences(world: &TestRuntime) -> usize {
    let text =
        std::fs::read_to_string(world.home().join("memory/experiences.md")).unwrap_or_default();
    text.matches("long.txt is long.").count()
}

/// Returns the ranges of the reflections that started, and the errors of those that ended.
fn reflections(events: &[Arc<EventRecord>]) -> (Vec<(u64, u64)>, Vec<Option<String>>) {
    let mut started = Vec::new();
    let mut ended = Vec::new();
    for record in events {
        match &record.event {
            Event::Memory(MemoryEvent::ReflectionStarted { covered, .. }) => started.push(*covered),
            Event::Memory(MemoryEvent::ReflectionEnded { error, .. }) => {
                ended.push(error.as_ref().map(|error| error.code.to_string()));
            }
            _ => {}
        }
    }
    (started, ended)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_is_reflected_on_once_before_it_is_summarized() {
    let shown: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&shown);
    let (model, _) = reader(3, move |request| {
        assert!(
            request.tools.is_empty() && request.messages.len() == 1,
            "{request:?}"
        );
        seen.lock()
            .unwrap()
            .push(request.messages[0].content.to_string());
        Turn::say(LEARNED)
    });
    let world = open(model, small).await;
    let run = world.runtime().start(request()).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "read"),
        "{:?}",
        outcome.error
    );
    let events = stored(world.runtime(), run.trace_id()).await;
    let (started, ended) = reflections(&events);
    assert_eq!((started.len(), &*ended), (3, &[None, None, None][..]));
    assert!(
        started.windows(2).all(|pair| pair[0].1 < pair[1].0),
        "{started:?}"
    );
    let summaries: Vec<(u64, u64)> = events
        .iter()
        .filter_map(|record| match record.event {
            Event::Context(ContextEvent::CompactionCompleted { covered, .. }) => Some(covered),
            _ => None,
        })
        .collect();
    let last = |ranges: &[(u64, u64)]| ranges.iter().map(|range| range.1).collect::<Vec<_>>();
    assert_eq!(last(&started), last(&summaries));
    let shown = shown.lock().unwrap().clone();
    assert!(
        shown[0].contains("the job") && shown.iter().all(|text| text.contains("word299")),
        "{shown:#?}"
    );
    assert!(
        shown.iter().all(|text| !text.contains("Next step")),
        "summaries are not reflected on"
    );
    // The same lesson three times is one experience.
    assert_eq!(experiences(&world), 1);
    // Usage of the calls is that of the run.
    let turns = events
        .iter()
        .filter(|record| record.event.kind() == "model_completed")
        .count() as u64;
    assert_eq!(outcome.stats.own.model_calls, turns + 3 + 3);
    assert_eq!(outcome.stats.own.total_tokens, 15 * (turns + 3 + 3));
    check_session(world.runtime(), &SessionId::new("s")).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_reflection_does_not_stop_the_turn() {
    let refused = || Turn::Fail(ModelError::new(Failure::Rejected, "no"));
    for (answer, code) in [
        (
            Box::new(refused) as Box<dyn Fn() -> Turn + Send + Sync>,
            "provider_error",
        ),
        (Box::new(|| Turn::say("nothing")), "provider_error"),
        (Box::new(|| panic!("provoked")), "internal_error"),
    ] {
        let (model, _) = reader(2, move |_| answer());
        let world = open(model, small).await;
        let run = world.runtime().start(request()).await.unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(
            (outcome.status, outcome.output.as_str()),
            (RunStatus::Completed, "read"),
            "{:?}",
            outcome.error
        );
        let (started, ended) = reflections(&stored(world.runtime(), run.trace_id()).await);
        assert_eq!((started.len(), ended), (2, vec![Some(code.to_owned()); 2]));
        assert_eq!(experiences(&world), 0);
        world.finish().await;
    }
}

/// A reflection that takes too long is cut off, and charged.
#[tokio::test(start_paused = true)]
async fn slow_reflection_is_cut_off() {
    let (model, _) = reader(1, |_| Turn::Hang(""));
    let world = open(model, small).await;
    let run = world.runtime().start(request()).await.unwrap();
    let outcome = run.wait().await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "read"),
        "{:?}",
        outcome.error
    );
    let events = stored(world.runtime(), run.trace_id()).await;
    let ended = events.iter().find_map(|record| match &record.event {
        Event::Memory(MemoryEvent::ReflectionEnded { usage, error, .. }) => {
            Some((*usage, error.clone()))
        }
        _ => None,
    });
    let (usage, error) = ended.unwrap();
    assert!(
        usage.is_some_and(|usage| usage.estimated && usage.prompt_tokens > 500),
        "{usage:?}"
    );
    assert_eq!(error.unwrap().code.to_string(), "timeout");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflection_is_skipped_where_memory_is_off() {
    type Change = fn(&mut Config);
    let same = |request: RunRequest| request;
    let no_memory = |request: RunRequest| request.enable_memory(false);
    for (change, request_of) in [
        (
            (|config| config.memory.enabled = false) as Change,
            same as fn(RunRequest) -> RunRequest,
        ),
        (|config| config.memory.reflect_before_summary = false, same),
        (|_| {}, no_memory),
    ] {
        let (model, made) = reader(1, |_| panic!("it reflects"));
        let world = open(model, |builder| with_config(builder, change)).await;
        let run = world.runtime().start(request_of(request())).await.unwrap();
        with_timeout(run.wait()).await.unwrap();
        let (started, _) = reflections(&stored(world.runtime(), run.trace_id()).await);
        assert_eq!((started.len(), made.load(SeqCst)), (0, 1));
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflection_is_skipped_if_the_budget_is_nearly_used() {
    let mut calls = None;
    for reflects in [true, false] {
        let (model, _) = reader(1, |_| Turn::say(LEARNED));
        let world = open(model, small).await;
        // The second run may make as many tool calls as the first one had made before the summary.
        let budget = soong::protocol::Budget {
            tool_calls: calls,
            ..soong::protocol::Budget::default()
        };
        let run = world
            .runtime()
            .start(request().budget(budget))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(outcome.output, "read", "{:?}", outcome.error);
        calls = Some(outcome.stats.own.tool_calls);
        let (started, _) = reflections(&stored(world.runtime(), run.trace_id()).await);
        assert_eq!(started.len(), usize::from(reflects));
        world.finish().await;
    }
}

/// An interrupted reflection is charged, and not repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_reflection_is_not_repeated() {
    let started = Arc::new(AtomicBool::new(false));
    let hanging = || {
        let started = Arc::clone(&started);
        let hang = move |_: &ModelRequest| {
            started.store(true, SeqCst);
            Turn::Hang("")
        };
        reader(1, hang).0
    };
    let mut world = open(hanging(), small).await;
    let run_id = world
        .runtime()
        .start(request())
        .await
        .unwrap()
        .run_id()
        .clone();
    wait_until("it reflects", || started.swap(false, SeqCst)).await;
    let (model, made) = reader(1, |_| panic!("it reflects again"));
    world.reopen_with(model, small).await;
    let outcome = with_timeout(world.runtime().wait(&run_id)).await.unwrap();
    assert_eq!(
        (outcome.output.as_str(), made.load(SeqCst)),
        ("read", 1),
        "{:?}",
        outcome.error
    );
    let (ranges, ended) = reflections(&stored(world.runtime(), &TraceId::new("s")).await);
    assert_eq!(
        (ranges.len(), ended),
        (1, vec![Some("interrupted".to_owned())])
    );
    check_session(world.runtime(), &SessionId::new("s")).await;
    world.finish().await;

    // So is a reflection that is cancelled with its run.
    let world = open(hanging(), small).await;
    let run = world.runtime().start(request()).await.unwrap();
    wait_until("it reflects", || started.swap(false, SeqCst)).await;
    with_timeout(run.cancel()).await.unwrap();
    assert_eq!(run.status().await.unwrap(), RunStatus::Cancelled);
    let (_, ended) = reflections(&stored(world.runtime(), run.trace_id()).await);
    assert_eq!(ended, [Some("cancelled".to_owned())]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_neither_repeats_a_reflection_nor_stops_the_run() {
    for point in FaultPoint::ALL
        .into_iter()
        .filter(|point| point.place() == FaultComponent::Run)
    {
        for nth in 1..=3 {
            let met = AtomicUsize::new(0);
            let armed = Arc::new(AtomicBool::new(false));
            let ready = Arc::clone(&armed);
            let hook: soong::FaultHook = Arc::new(move |_, here| {
                if here == point && ready.load(SeqCst) && met.fetch_add(1, SeqCst) + 1 == nth {
                    panic!("provoked at {here:?}");
                }
            });
            let calls = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&calls);
            let (model, _) = reader(1, move |_| {
                armed.store(true, SeqCst);
                count.fetch_add(1, SeqCst);
                Turn::say(LEARNED)
            });
            let world = open(model, |builder| small(builder).fault_hook(hook)).await;
            let run = world.runtime().start(request()).await.unwrap();
            let outcome = with_timeout(run.wait()).await.unwrap();
            let case = format!("{point:?} number {nth}");
            assert_eq!(outcome.output, "read", "{case}: {:?}", outcome.error);
            assert_eq!(calls.load(SeqCst), 1, "{case}");
            let (started, ended) = reflections(&stored(world.runtime(), run.trace_id()).await);
            assert_eq!((started.len(), ended.len()), (1, 1), "{case}");
            // A reflection that was cut off by the crash may have written nothing.
            assert!(
                experiences(&world) == 1 || ended[0].is_some(),
                "{case}: {ended:?}"
            );
            check_session(world.runtime(), &SessionId::new("s")).await;
            world.finish().await;
        }
    }
}
