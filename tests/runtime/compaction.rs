//! Conversations that exceed the context window of their model: omitted messages, summaries, and
//! what summaries must not change (CTX-1 … CTX-4, MSG-5).

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use serde_json::{Value, json};
use soong::{
    ChildSpec, Config, MessagePath, RunRequest, RuntimeBuilder,
    model::{Completion, Failure, ModelError, ModelRequest},
    protocol::{
        ContextEvent, EndReason, Event, Message, ModelEvent, ModelSource, ProviderData,
        ProviderItem, Role, RunMode, RunStatus, ToolCall, TraceId,
    },
};

use crate::support::{
    history::{check_session, stored},
    model::{Turn, scripted_model},
    pairing,
    world::{TestRuntime, quick_config, wait_until, with_timeout},
};

const SUMMARY: &str = "## Request and intent\n\"the job\"\n## Artifacts\ntask_plan\n## Current work\nreading\n## Next step\nread on";

/// Configures a model with this context window and four recent messages that are always shown.
fn small(window: u64) -> impl FnOnce(RuntimeBuilder) -> RuntimeBuilder {
    move |builder| {
        let mut config: Config = quick_config();
        config.model.context_window = Some(window);
        config.model.max_output_tokens = Some(100);
        config.context.keep_recent_messages = 4;
        config.runtime.max_turns = 2_000;
        config.agents.max_depth = 1;
        builder.config(config)
    }
}

/// Returns whether the request asks for a summary.
fn is_summary(request: &ModelRequest) -> bool {
    request.tools.is_empty() && request.output_schema.is_none()
}

fn form(messages: &[Arc<Message>]) -> Vec<Value> {
    messages
        .iter()
        .map(|message| serde_json::to_value(&**message).unwrap())
        .collect()
}

fn check(request: &ModelRequest) {
    let messages = form(&request.messages);
    for rules in [pairing::openai, pairing::anthropic] {
        rules(&messages).unwrap_or_else(|why| panic!("{why}: {messages:#?}"));
    }
}

fn compactions(events: &[Arc<soong::protocol::EventRecord>]) -> Vec<(u64, (u64, u64), u64, u64)> {
    let done = |event: &Event| match event {
        Event::Context(ContextEvent::CompactionCompleted {
            sequence,
            covered,
            tokens_before,
            tokens_after,
            ..
        }) => Some((*sequence, *covered, *tokens_before, *tokens_after)),
        _ => None,
    };
    events
        .iter()
        .filter_map(|event| done(&event.event))
        .collect()
}

/// Returns a text with this many words.
fn prose(words: usize) -> String {
    (0..words).map(|word| format!("word{word} ")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_keeps_essentials_after_a_hundred_compactions() {
    const COMPACTIONS: usize = 100;
    let summaries = Arc::new(AtomicUsize::new(0));
    let problems: Arc<Mutex<Vec<String>>> = Arc::default();
    let made = Arc::clone(&summaries);
    let found = Arc::clone(&problems);
    let calls = AtomicUsize::new(0);
    let seen = AtomicUsize::new(0);
    let behind_summaries = Arc::new(AtomicUsize::new(0));
    let checked = Arc::clone(&behind_summaries);
    let model = scripted_model(move |request| {
        if is_summary(request) {
            made.fetch_add(1, SeqCst);
            return Turn::say(SUMMARY);
        }
        if request.messages[0].content == "wait" {
            return Turn::Hang("half");
        }
        check(request);
        let call = calls.fetch_add(1, SeqCst);
        let system = request.system_and_context();
        let all = request
            .messages
            .iter()
            .map(|message| message.content.as_str())
            .collect::<String>();
        let expect = |what: &str, holds: bool| {
            if !holds {
                found.lock().unwrap().push(format!("call {call}: {what}"));
            }
        };
        expect(
            "the request",
            all.contains("the job, whose every word counts"),
        );
        if call > 2 {
            expect("the plan", system.contains("step one of the plan"));
        }
        let summed_up = made.load(SeqCst);
        if seen.swap(summed_up, SeqCst) < summed_up {
            checked.fetch_add(1, SeqCst);
            expect(
                "the summary",
                request
                    .messages
                    .iter()
                    .any(|message| message.covers.is_some()),
            );
            expect("the goals", system.contains("[→] 1. read it all"));
            expect(
                "the open child",
                system.contains("## Active Collaborators") && system.contains("running"),
            );
        }
        match call {
            0 => Turn::call(
                "goal",
                json!({ "add": ["read it all", "tell"], "focus": "1" }),
            ),
            1 => Turn::call(
                "create_artifact",
                json!({ "name": "task_plan", "content": "step one of the plan" }),
            ),
            _ if made.load(SeqCst) >= COMPACTIONS => Turn::say("read"),
            _ => Turn::call("read", json!({ "path": "long.txt" })),
        }
    });
    let world = TestRuntime::with(model.clone(), small(7_500)).await;
    std::fs::write(world.project().join("long.txt"), prose(300)).unwrap();
    let start = RunRequest::new("the job, whose every word counts")
        .mode(RunMode::Orchestrator)
        .session("s");
    let start = start.system_prompt("Do it.");
    let run = world.runtime().start(start).await.unwrap();
    let child = run.spawn(ChildSpec::new("wait")).await.unwrap();
    wait_until("all is summed up", || summaries.load(SeqCst) >= COMPACTIONS).await;
    with_timeout(child.cancel()).await.unwrap();
    let outcome = tokio::time::timeout(std::time::Duration::from_secs(60), run.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "read"),
        "{:?}",
        outcome.error
    );
    assert_eq!(*problems.lock().unwrap(), Vec::<String>::new());
    assert_eq!(
        behind_summaries.load(SeqCst),
        COMPACTIONS,
        "each next prompt was looked at"
    );

    let trace = TraceId::new("s");
    let events = stored(world.runtime(), &trace).await;
    let done = compactions(&events);
    assert_eq!(done.len(), COMPACTIONS);
    assert!(
        done.iter().all(|(.., before, after)| after < before),
        "{done:?}"
    );
    // The transcript is complete, and no message was rewritten.
    let all = world
        .runtime()
        .traces()
        .messages(&trace, MessagePath::All)
        .await
        .unwrap();
    let sequences: Vec<u64> = all.iter().map(|message| message.sequence).collect();
    assert_eq!(sequences, (1..=all.len() as u64).collect::<Vec<_>>());
    let texts = all
        .iter()
        .filter(|message| message.role == Role::Tool && message.content.contains("word299"))
        .count();
    assert!(texts > COMPACTIONS, "each output is there: {texts}");
    // The main path: the system prompt, the last summary, the request, and the later messages.
    let path = world
        .runtime()
        .traces()
        .messages(&trace, MessagePath::Main)
        .await
        .unwrap();
    assert_eq!(
        (path[0].role, path[1].sequence, path[2].content.as_str()),
        (
            Role::System,
            done[COMPACTIONS - 1].0,
            "the job, whose every word counts"
        )
    );
    assert!(path.len() < 20, "{}", path.len());
    // A switch back to a covered message follows the original parent links.
    world
        .runtime()
        .sessions()
        .switch_head(run.session_id(), 5)
        .await
        .unwrap();
    let back = world
        .runtime()
        .traces()
        .messages(&trace, MessagePath::Main)
        .await
        .unwrap();
    assert_eq!(
        back.iter()
            .map(|message| message.sequence)
            .collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6][..back.len()]
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_summary_leaves_the_conversation_unchanged() {
    // A summary that is longer than the messages it replaces is rejected as well.
    for refusal in [
        || Turn::say(format!("{SUMMARY}\n{}", prose(3_000))),
        || Turn::say("## Next step"),
        || Turn::Fail(ModelError::new(Failure::Rejected, "no")),
        // A panic of the provider is the outcome of the job.
        || panic!("provoked"),
    ] {
        let summary_count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&summary_count);
        let model = scripted_model(move |request| {
            if is_summary(request) {
                counted.fetch_add(1, SeqCst);
                return refusal();
            }
            check(request);
            match request.messages.len() {
                length if length < 15 => Turn::call("read", json!({ "path": "long.txt" })),
                _ => Turn::say("read"),
            }
        });
        // Above the compaction threshold and below the context window for a few turns.
        let world = TestRuntime::with(model, |builder| {
            let mut config: Config = quick_config();
            config.model.context_window = Some(20_000);
            config.model.max_output_tokens = Some(100);
            config.context.threshold_ratio = 0.3;
            config.context.keep_recent_messages = 4;
            builder.config(config)
        })
        .await;
        std::fs::write(world.project().join("long.txt"), prose(300)).unwrap();
        let run = world
            .runtime()
            .start(RunRequest::new("the job").session("s"))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(
            outcome.status,
            RunStatus::Completed,
            "it fits all the same: {:?}",
            outcome.error
        );
        let events = stored(world.runtime(), run.trace_id()).await;
        let failed = events
            .iter()
            .filter(|event| event.event.kind() == "compaction_failed")
            .count();
        assert_eq!(
            (failed, compactions(&events)),
            (summary_count.load(SeqCst), vec![])
        );
        assert!((1..6).contains(&failed), "not in every turn: {failed}");
        let path = world
            .runtime()
            .traces()
            .messages(run.trace_id(), MessagePath::Main)
            .await
            .unwrap();
        assert!(path.iter().all(|message| message.covers.is_none()));
        assert_eq!(
            path.len() as u64,
            world
                .runtime()
                .traces()
                .get(run.trace_id())
                .await
                .unwrap()
                .total_messages
        );
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_without_sections_is_retried_once_then_accepted() {
    for second in ["It was read twice.", SUMMARY] {
        let prompts: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&prompts);
        let model = scripted_model(move |request| {
            if is_summary(request) {
                let mut prompts = log.lock().unwrap();
                prompts.push(request.messages.last().unwrap().content.to_string());
                return Turn::say(if prompts.len() == 1 {
                    "It was read."
                } else {
                    second
                });
            }
            check(request);
            let is_summed_up = request
                .messages
                .iter()
                .any(|message| message.covers.is_some());
            if is_summed_up {
                Turn::say("read")
            } else {
                Turn::call("read", json!({ "path": "long.txt" }))
            }
        });
        let world = TestRuntime::with(model, small(7_500)).await;
        std::fs::write(world.project().join("long.txt"), prose(300)).unwrap();
        let run = world
            .runtime()
            .start(RunRequest::new("the job").session("s"))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
        let prompts = prompts.lock().unwrap().clone();
        assert_eq!(prompts.len(), 2);
        assert!(
            prompts[1].starts_with(&prompts[0]) && prompts[1].contains("could not be used"),
            "{}",
            prompts[1]
        );
        let events = stored(world.runtime(), run.trace_id()).await;
        let failed = events
            .iter()
            .filter(|event| event.event.kind() == "compaction_failed")
            .count();
        assert_eq!((failed, compactions(&events).len()), (1, 1));
        let path = world
            .runtime()
            .traces()
            .messages(run.trace_id(), MessagePath::Main)
            .await
            .unwrap();
        let summary = &path
            .iter()
            .find(|message| message.covers.is_some())
            .unwrap()
            .content;
        assert!(summary.contains(second), "{summary}");
        assert_eq!(
            summary.contains("does not have the sections"),
            second != SUMMARY
        );
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_summaries_are_retried_less_and_less_often() {
    const TURNS: usize = 200;
    let summary_count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&summary_count);
    let model = scripted_model(move |request| match request.messages.len() {
        _ if is_summary(request) => {
            counted.fetch_add(1, SeqCst);
            Turn::say("## Next step")
        }
        length if length < 2 * TURNS => Turn::call("read", json!({ "path": "long.txt" })),
        _ => Turn::say("read"),
    });
    // The tokenizer of the model is unknown, so only its provider can report that a prompt is too
    // long. Each turn adds more tokens than the first retry of a failed summary waits for.
    let world = TestRuntime::with(model, small(7_500)).await;
    std::fs::write(world.project().join("long.txt"), prose(300)).unwrap();
    let run = world
        .runtime()
        .start(RunRequest::new("the job").session("s"))
        .await
        .unwrap();
    let outcome = tokio::time::timeout(std::time::Duration::from_secs(60), run.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
    assert!(
        (5..40).contains(&summary_count.load(SeqCst)),
        "{} tries in {TURNS} turns",
        summary_count.load(SeqCst)
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_is_shortened_if_provider_finds_it_too_long() {
    // The provider counts more tokens than the runtime estimates: what the runtime takes for half
    // of the window is too long for the provider.
    let model = scripted_model(move |request| {
        if is_summary(request) {
            return Turn::say(SUMMARY);
        }
        check(request);
        let bytes: usize = request
            .messages
            .iter()
            .map(|message| message.content.len())
            .sum();
        let reads = request
            .messages
            .iter()
            .filter(|message| message.content.contains("word299"))
            .count();
        match bytes {
            9_000.. => Turn::Fail(ModelError::new(Failure::PromptTooLong, "too long for me")),
            _ if request
                .messages
                .iter()
                .any(|message| message.covers.is_some())
                && reads > 0 =>
            {
                Turn::say("read")
            }
            _ => Turn::call("read", json!({ "path": "long.txt" })),
        }
    });
    let world = TestRuntime::with(model, small(8_000)).await;
    std::fs::write(world.project().join("long.txt"), prose(300)).unwrap();
    let start = RunRequest::new("the job")
        .session("s")
        .system_prompt("Do it.");
    let run = world.runtime().start(start).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
    let events = stored(world.runtime(), run.trace_id()).await;
    assert!(!compactions(&events).is_empty());
    let retried = events
        .iter()
        .filter(|event| matches!(event.event, Event::Model(ModelEvent::Retrying { .. })))
        .count();
    assert!(retried >= 1);
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oldest_messages_are_left_out_if_no_summary_fits() {
    let model = scripted_model(move |request| {
        let too_long = || Turn::Fail(ModelError::new(Failure::PromptTooLong, "too long for me"));
        if is_summary(request) {
            return too_long();
        }
        check(request);
        let bytes: usize = request
            .messages
            .iter()
            .map(|message| message.content.len())
            .sum();
        let stand_in = request
            .messages
            .iter()
            .find(|message| message.covers.is_some());
        match (bytes, stand_in) {
            (9_000.., _) => too_long(),
            (_, Some(message)) if message.content.contains("left out without a summary") => {
                Turn::say("read")
            }
            _ => Turn::call("read", json!({ "path": "long.txt" })),
        }
    });
    let world = TestRuntime::with(model, small(8_000)).await;
    std::fs::write(world.project().join("long.txt"), prose(300)).unwrap();
    let start = RunRequest::new("the job")
        .session("s")
        .system_prompt("Do it.");
    let run = world.runtime().start(start).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "read"),
        "{:?}",
        outcome.error
    );
    let events = stored(world.runtime(), run.trace_id()).await;
    let omitted = events.iter().find_map(|event| match &event.event {
        Event::Context(ContextEvent::OldestOmitted {
            covered,
            tokens_before,
            tokens_after,
            ..
        }) => Some((*covered, *tokens_before, *tokens_after)),
        _ => None,
    });
    let ((first, last), before, after) = omitted.unwrap();
    assert!(
        first < last && after < before,
        "{first} to {last}: {before} to {after}"
    );
    assert!(compactions(&events).is_empty());
    let path = world
        .runtime()
        .traces()
        .messages(run.trace_id(), MessagePath::Main)
        .await
        .unwrap();
    assert!(
        path.iter()
            .any(|message| message.content.contains("the job")),
        "the request stays"
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_window_selects_the_small_preset_unless_one_is_named() {
    let offered: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&offered);
    let model = scripted_model(move |request| {
        *seen.lock().unwrap() = request.tools.iter().map(|tool| tool.name.clone()).collect();
        Turn::say("done")
    });
    let world = TestRuntime::with(model, small(15_999)).await;
    let agent_of = async |start: RunRequest| {
        let run = world.runtime().start(start).await.unwrap();
        with_timeout(run.wait()).await.unwrap();
        world
            .runtime()
            .traces()
            .run(run.run_id())
            .await
            .unwrap()
            .settings
            .agent_type
    };
    assert_eq!(agent_of(RunRequest::new("a").session("s")).await, "small");
    assert_eq!(
        *offered.lock().unwrap(),
        ["read", "list_files", "grep", "edit", "bash"]
    );
    assert_eq!(
        agent_of(RunRequest::new("b").session("s")).await,
        "small",
        "the session keeps it"
    );
    for start in [
        RunRequest::new("a").preset("default"),
        RunRequest::new("a").system_prompt("Do it."),
        RunRequest::new("a").tools(["read"]),
    ] {
        assert_eq!(agent_of(start).await, "default");
    }
    assert_eq!(
        agent_of(RunRequest::new("a").mode(RunMode::Orchestrator)).await,
        "orchestrator"
    );
    world.finish().await;
    let large = TestRuntime::with(scripted_model(|_| Turn::say("done")), small(16_000)).await;
    let run = large.runtime().start(RunRequest::new("a")).await.unwrap();
    with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        large
            .runtime()
            .traces()
            .run(run.run_id())
            .await
            .unwrap()
            .settings
            .agent_type,
        "default"
    );
    large.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_that_fills_the_window_is_no_matter_of_its_limit() {
    static LONG: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| "word ".repeat(3_000));
    for (text, reason) in [
        ("word", EndReason::MaxOutputTokens),
        (&**LONG, EndReason::PromptTooLong),
    ] {
        let model = scripted_model(move |_| Turn::Cut(text));
        let world = TestRuntime::with(model, small(3_000)).await;
        let run = world
            .runtime()
            .start(RunRequest::new("write").tools([""; 0]))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(
            (outcome.status, outcome.end_reason),
            (RunStatus::Failed, reason),
            "{:?}",
            outcome.error
        );
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_too_long_ends_run_if_nothing_can_be_compacted() {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let model = scripted_model(move |request| {
        if is_summary(request) {
            return Turn::say(SUMMARY);
        }
        let bytes: usize = request
            .messages
            .iter()
            .map(|message| message.content.len())
            .sum();
        match bytes {
            20_000.. => {
                counted.fetch_add(1, SeqCst);
                Turn::Fail(ModelError::new(Failure::PromptTooLong, "too long for me"))
            }
            _ => Turn::say("it fits"),
        }
    });
    let world = TestRuntime::with(model, small(7_500)).await;
    // By the estimate of the runtime, this exceeds the window. It is sent anyway, and the model
    // accepts it.
    let run = world
        .runtime()
        .start(RunRequest::new(prose(2_200)).session("fits"))
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.output, "it fits", "{:?}", outcome.error);
    // The request alone is too long, and a request is never left out or summarized.
    let run = world
        .runtime()
        .start(RunRequest::new(prose(5_000)).session("too_long"))
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.end_reason),
        (RunStatus::Failed, EndReason::PromptTooLong)
    );
    assert_eq!(refused.load(SeqCst), 1);
    let path = world
        .runtime()
        .traces()
        .messages(run.trace_id(), MessagePath::Main)
        .await
        .unwrap();
    assert!(path.iter().all(|message| message.covers.is_none()));
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summarized_conversation_continues_in_next_run_and_process() {
    let seen: Arc<Mutex<Vec<Vec<Arc<Message>>>>> = Arc::default();
    let log = Arc::clone(&seen);
    let turns = AtomicUsize::new(0);
    let script = move |request: &ModelRequest| {
        if is_summary(request) {
            return Turn::say(SUMMARY);
        }
        check(request);
        log.lock().unwrap().push(request.messages.clone());
        match turns.fetch_add(1, SeqCst) % 8 {
            7 => Turn::say("read"),
            _ => Turn::call("read", json!({ "path": "long.txt" })),
        }
    };
    let script = Arc::new(script);
    let model = || {
        let script = Arc::clone(&script);
        scripted_model(move |request| script(request))
    };
    let mut world = TestRuntime::with(model(), small(7_500)).await;
    std::fs::write(world.project().join("long.txt"), prose(300)).unwrap();
    for (round, text) in ["one", "two", "three"].into_iter().enumerate() {
        let run = world
            .runtime()
            .start(RunRequest::new(text).session("s"))
            .await
            .unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().status,
            RunStatus::Completed
        );
        let last = seen.lock().unwrap().last().cloned().unwrap();
        assert!(
            last.iter().any(|message| message.content == text),
            "{round}: the last request is kept"
        );
        assert!(
            last.iter()
                .filter(|message| message.covers.is_some())
                .count()
                <= 1,
            "one summary replaces all"
        );
        world.reopen_with(model(), small(7_500)).await;
    }
    let path = world
        .runtime()
        .traces()
        .messages(&TraceId::new("s"), MessagePath::Main)
        .await
        .unwrap();
    assert!(
        path.iter()
            .filter(|message| message.covers.is_some())
            .count()
            == 1
    );
    check_session(world.runtime(), &soong::protocol::SessionId::new("s")).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_completed_goal_are_replaced_by_its_summary() {
    const WINDOW: u64 = 5_890;
    let shown: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let log = Arc::clone(&shown);
    let calls = AtomicUsize::new(0);
    let model = scripted_model(move |request| {
        check(request);
        log.lock().unwrap().push(
            request
                .messages
                .iter()
                .map(|message| message.content.to_string())
                .collect(),
        );
        match calls.fetch_add(1, SeqCst) {
            0 => Turn::call("goal", json!({ "add": ["look", "tell"], "focus": "1" })),
            1..=4 => Turn::call("read", json!({ "path": "a.txt" })),
            5 => Turn::call("goal", json!({ "done": "alpha and beta", "focus": "2" })),
            6..=9 => Turn::call("list_files", json!({})),
            _ => Turn::say("told"),
        }
    });
    let world = TestRuntime::with(model, |builder| {
        let mut config = quick_config();
        config.context.keep_recent_messages = 4;
        // The prompt passes 60 % of the window after the second goal has begun.
        config.model.context_window = Some(WINDOW);
        builder.config(config)
    })
    .await;
    std::fs::write(world.project().join("a.txt"), "alpha\n".repeat(60)).unwrap();
    let start = RunRequest::new("the job")
        .mode(RunMode::Orchestrator)
        .session("s");
    let run = world.runtime().start(start).await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    let last = shown.lock().unwrap().last().cloned().unwrap();
    assert_eq!(
        last.iter().filter(|text| text.contains("alpha\n")).count(),
        0,
        "{last:#?}"
    );
    assert!(
        last.iter()
            .any(|text| text.contains("[Goal 1 completed: look] alpha and beta")),
        "{last:#?}"
    );
    assert!(last.iter().any(|text| text == "the job"));
    let events = stored(world.runtime(), run.trace_id()).await;
    let left_out: Vec<u64> = events
        .iter()
        .filter_map(|event| match event.event {
            Event::Model(ModelEvent::ContextBuilt { left_out, .. }) => Some(left_out),
            _ => None,
        })
        .collect();
    assert!(
        left_out[..7].iter().all(|count| *count == 0) && *left_out.last().unwrap() >= 8,
        "{left_out:?}"
    );
    let is_rebuilt = |event: &Event| {
        matches!(
            event,
            Event::Model(ModelEvent::ContextBuilt {
                rebuilt: Some(_),
                ..
            })
        )
    };
    assert_eq!(
        events
            .iter()
            .filter(|event| is_rebuilt(&event.event))
            .count(),
        1,
        "it is rebuilt once"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_conversation_is_summarized_if_that_is_requested() {
    let model = scripted_model(|request| {
        if is_summary(request) {
            return Turn::say(SUMMARY);
        }
        Turn::say(prose(300))
    });
    let world = TestRuntime::open(model.clone()).await;
    let run = async |request: RunRequest| {
        let run = world.runtime().start(request.session("s")).await.unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().status,
            RunStatus::Completed
        );
        run
    };
    // In a new session there is nothing to summarize.
    run(RunRequest::new("one").compact()).await;
    run(RunRequest::new("two")).await;
    let third = run(RunRequest::new("three").compact()).await;
    run(RunRequest::new("four")).await;
    let events = stored(world.runtime(), third.trace_id()).await;
    let made = compactions(&events);
    let [(_, covered, before, after)] = made[..] else {
        panic!("{made:?}")
    };
    assert!(covered == (2, 5) && after + 1_000 < before, "{made:?}");
    let path = world
        .runtime()
        .traces()
        .messages(third.trace_id(), MessagePath::Main)
        .await
        .unwrap();
    let texts: Vec<&str> = path
        .iter()
        .map(|message| message.content.as_str())
        .collect();
    assert!(
        texts[1].contains("## Current work") && texts[2] == "three",
        "{texts:#?}"
    );
    check_session(world.runtime(), third.session_id()).await;
    world.finish().await;
}

/// The request of the caller, with its output schema, stays in the prompt, whichever messages with
/// the role `user` the runtime has added after it (CTX-3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_and_schema_stay_after_messages_of_the_runtime() {
    for with_result in [false, true] {
        let prompts_after_summary: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorded = Arc::clone(&prompts_after_summary);
        let child_has_ended = Arc::new(tokio::sync::Notify::new());
        let wait_for_child = Arc::clone(&child_has_ended);
        let calls = AtomicUsize::new(0);
        let model = scripted_model(move |request| {
            if is_summary(request) {
                return Turn::say(SUMMARY);
            }
            if request
                .messages
                .iter()
                .any(|message| message.content == "side work")
            {
                return Turn::say("the result of the side work");
            }
            check(request);
            if request
                .messages
                .iter()
                .any(|message| message.covers.is_some())
            {
                let all = request
                    .messages
                    .iter()
                    .map(|message| message.content.as_str())
                    .collect::<String>();
                recorded.lock().unwrap().push(all);
                return Turn::say("{\"n\": 1}");
            }
            match calls.fetch_add(1, SeqCst) {
                0 if with_result => {
                    Turn::When(Arc::clone(&wait_for_child), "{\"n\": 0}".to_owned())
                }
                0 => Turn::say("no json"),
                _ => Turn::call("read", json!({ "path": "long.txt" })),
            }
        });
        let world = TestRuntime::with(model.clone(), small(7_500)).await;
        std::fs::write(world.project().join("long.txt"), prose(300)).unwrap();
        let schema =
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let start = RunRequest::new("the job, whose every word counts")
            .session("s")
            .system_prompt("Do it.");
        let run = world.runtime().start(start.expect(schema)).await.unwrap();
        if with_result {
            let child = run
                .spawn(ChildSpec::new("side work").deliver())
                .await
                .unwrap();
            with_timeout(child.wait()).await.unwrap();
            child_has_ended.notify_one();
        }
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(
            outcome.status,
            RunStatus::Completed,
            "with a result: {with_result}: {:?}",
            outcome.error
        );
        let prompts = prompts_after_summary.lock().unwrap().clone();
        assert!(!prompts.is_empty(), "with a result: {with_result}");
        for prompt in prompts {
            assert!(
                prompt.contains("the job, whose every word counts"),
                "with a result: {with_result}: {prompt}"
            );
            assert!(
                prompt.contains("## Expected output"),
                "with a result: {with_result}: {prompt}"
            );
        }
        // The next run reads the conversation from the store.
        let messages = world
            .runtime()
            .traces()
            .messages(run.trace_id(), MessagePath::Main)
            .await
            .unwrap();
        assert!(
            messages
                .iter()
                .any(|message| message.content.contains("whose every word counts"))
        );
        check_session(world.runtime(), run.session_id()).await;
        drop(run);
        world.finish().await;
    }
}

/// A service that rejects a nearly full prompt in unknown words gets one shorter prompt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nearly_full_prompt_that_is_rejected_for_an_unknown_reason_is_summarized_once() {
    for recovers in [true, false] {
        let summaries = Arc::new(AtomicUsize::new(0));
        let refused = Arc::new(AtomicUsize::new(0));
        let made = Arc::clone(&summaries);
        let counted = Arc::clone(&refused);
        let model = scripted_model(move |request| {
            if is_summary(request) {
                made.fetch_add(1, SeqCst);
                return Turn::say(SUMMARY);
            }
            check(request);
            let bytes: usize = request
                .messages
                .iter()
                .map(|message| message.content.len())
                .sum();
            let is_summarized = request
                .messages
                .iter()
                .any(|message| message.covers.is_some());
            let is_rejected = bytes > 12_000 || is_summarized && !recovers;
            if is_rejected {
                counted.fetch_add(1, SeqCst);
                let error = ModelError::new(Failure::Rejected, "no, not this one");
                return Turn::Fail(ModelError {
                    status: Some(400),
                    ..error
                });
            }
            if is_summarized {
                return Turn::say("done");
            }
            Turn::call("read", json!({ "path": "long.txt" }))
        });
        let world = TestRuntime::with(model, small(8_500)).await;
        std::fs::write(world.project().join("long.txt"), prose(300)).unwrap();
        let run = world
            .runtime()
            .start(RunRequest::new("the job").session("s").preset("default"))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(
            outcome.status == RunStatus::Completed,
            recovers,
            "{:?}",
            outcome.error
        );
        let expected = if recovers { 1 } else { 2 };
        assert_eq!(
            (summaries.load(SeqCst), refused.load(SeqCst)),
            (1, expected)
        );
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

/// The window that a service states in its error is used from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn window_that_an_error_states_replaces_a_larger_one() {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let model = scripted_model(move |request| {
        if is_summary(request) {
            return Turn::say(SUMMARY);
        }
        check(request);
        let bytes: usize = request
            .messages
            .iter()
            .map(|message| message.content.len())
            .sum();
        if bytes > 20_000 {
            counted.fetch_add(1, SeqCst);
            let error = ModelError::new(Failure::PromptTooLong, "too long");
            return Turn::Fail(ModelError {
                context_window: Some(6_000),
                ..error
            });
        }
        match request
            .messages
            .iter()
            .filter(|message| message.covers.is_some())
            .count()
        {
            0 => Turn::call("read", json!({ "path": "long.txt" })),
            _ if request.messages.len() < 8 => Turn::call("read", json!({ "path": "long.txt" })),
            _ => Turn::say("done"),
        }
    });
    let world = TestRuntime::with(model, small(100_000)).await;
    std::fs::write(world.project().join("long.txt"), prose(300)).unwrap();
    let run = world
        .runtime()
        .start(RunRequest::new("the job").session("s"))
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
    assert_eq!(refused.load(SeqCst), 1);
    let events = stored(world.runtime(), run.trace_id()).await;
    let built = events.iter().rev().find_map(|event| match &event.event {
        Event::Model(ModelEvent::ContextBuilt {
            estimated_tokens, ..
        }) => Some(*estimated_tokens),
        _ => None,
    });
    assert!(
        built.is_some_and(|tokens| tokens <= 4_800),
        "80 % of the stated window: {built:?}"
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// The window bounds the output of a tool: several outputs of a turn fit into the next prompt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_of_a_turn_fit_into_a_small_window() {
    for calls in [1, 5] {
        let model = scripted_model(move |request| {
            if is_summary(request) {
                return Turn::say(SUMMARY);
            }
            check(request);
            if request
                .messages
                .iter()
                .any(|message| message.role == Role::Tool)
            {
                let outputs = request
                    .messages
                    .iter()
                    .filter(|message| message.role == Role::Tool);
                let bytes: usize = outputs.map(|message| message.content.len()).sum();
                return Turn::say(bytes.to_string());
            }
            let files = (0..calls).map(|_| ("read", json!({ "path": "large.txt" })));
            Turn::Call(files.collect())
        });
        let world = TestRuntime::with(model, small(16_000)).await;
        let lines: String = (0..2_000)
            .map(|line| format!("line {line} of a large file\n"))
            .collect();
        std::fs::write(world.project().join("large.txt"), lines).unwrap();
        let run = world
            .runtime()
            .start(RunRequest::new("the job").session("s"))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
        let bytes: usize = outcome.output.parse().unwrap();
        assert!((5_000..40_000).contains(&bytes), "{calls} calls: {bytes}");
        let events = stored(world.runtime(), run.trace_id()).await;
        assert!(compactions(&events).is_empty(), "{calls} calls");
        world.finish().await;
    }
}

/// Two summaries in a row that gain little end the attempts, until the prompt has grown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summaries_stop_if_they_gain_little() {
    let summaries = Arc::new(AtomicUsize::new(0));
    let made = Arc::clone(&summaries);
    let turns = AtomicUsize::new(0);
    let model = scripted_model(move |request| {
        if is_summary(request) {
            made.fetch_add(1, SeqCst);
            // It saves enough of the messages, but hardly anything of the prompt, which is mostly
            // tools.
            let bytes: usize = request
                .messages
                .iter()
                .map(|message| message.content.len())
                .sum();
            return Turn::say(format!("{SUMMARY}\n{}", prose(bytes * 6 / 10 / 7)));
        }
        check(request);
        match turns.fetch_add(1, SeqCst) {
            0..40 => Turn::call("read", json!({ "path": "short.txt" })),
            _ => Turn::say("done"),
        }
    });
    let world = TestRuntime::with(model, small(5_000)).await;
    std::fs::write(world.project().join("short.txt"), prose(60)).unwrap();
    let run = world
        .runtime()
        .start(RunRequest::new("the job").session("s"))
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
    assert!(
        (2..12).contains(&summaries.load(SeqCst)),
        "{} summaries in 40 turns",
        summaries.load(SeqCst)
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// A rebuild keeps the data of answers that is not bound to the messages before them. It happens
/// once: later runs, also in another process, rebuild the prompt in the same way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebuild_happens_once_and_keeps_data_that_is_not_bound() {
    let seen: Arc<Mutex<Vec<Vec<Arc<Message>>>>> = Arc::default();
    let model = |dialect: &'static str| {
        let seen = Arc::clone(&seen);
        scripted_model(move |request| {
            seen.lock().unwrap().push(request.messages.clone());
            let source = ModelSource {
                dialect: dialect.to_owned(),
                base_url: "https://example.com".to_owned(),
                api_key_env: "KEY".to_owned(),
                model: "m".to_owned(),
            };
            let outputs = request
                .messages
                .iter()
                .filter(|message| message.role == Role::Tool)
                .count();
            let is_done = outputs >= 5;
            let mut completion = if is_done {
                Completion::text("done")
            } else {
                Completion::tool_calls(vec![ToolCall {
                    id: format!("c{outputs}"),
                    name: "read".to_owned(),
                    arguments: json!({ "path": "long.txt" }).to_string(),
                }])
            };
            let text = ProviderItem::Text {
                bytes: completion.text.len(),
                data: Value::Null,
            };
            let call = ProviderItem::Call {
                data: json!({ "signature": "s" }),
            };
            let items = if is_done { vec![text] } else { vec![call] };
            completion.provider_data = Some(Box::new(ProviderData { source, items }));
            Turn::Whole(Vec::new(), Box::new(completion))
        })
    };
    for (dialect, is_kept) in [("openai", true), ("anthropic", false)] {
        let configure = |builder: RuntimeBuilder| {
            let mut config: Config = quick_config();
            config.model.context_window = Some(8_800);
            config.model.max_output_tokens = Some(100);
            config.model.name = Some("m".to_owned());
            config.context.threshold_ratio = 0.95;
            config.agents.max_depth = 1;
            builder.config(config)
        };
        let mut world = TestRuntime::with(model(dialect), configure).await;
        std::fs::write(world.project().join("long.txt"), prose(300)).unwrap();
        for round in 0..3 {
            let run = world
                .runtime()
                .start(RunRequest::new("the job").session("s").preset("default"))
                .await
                .unwrap();
            let outcome = with_timeout(run.wait()).await.unwrap();
            assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
            check_session(world.runtime(), run.session_id()).await;
            let events = stored(world.runtime(), run.trace_id()).await;
            let rebuilds = events.iter().filter(|event| {
                matches!(
                    &event.event,
                    Event::Model(ModelEvent::ContextBuilt {
                        rebuilt: Some(_),
                        ..
                    })
                )
            });
            // Bound data is only dropped between turns of the user.
            let expected = usize::from(is_kept || round > 0);
            assert_eq!(rebuilds.count(), expected, "{dialect}, run {round}");
            assert!(compactions(&events).is_empty(), "{dialect}");
            world.reopen_with(model(dialect), configure).await;
        }
        let requests = std::mem::take(&mut *seen.lock().unwrap());
        let answers = |request: &[Arc<Message>]| {
            let with_calls = request
                .iter()
                .filter(|message| !message.tool_calls.is_empty());
            let with_calls: Vec<&Arc<Message>> = with_calls.collect();
            (
                with_calls.len(),
                with_calls
                    .iter()
                    .filter(|message| message.provider_data.is_some())
                    .count(),
            )
        };
        assert_eq!(answers(&requests[5]), (5, 5), "{dialect}: in the first run");
        // The last call was made after the rebuild.
        let want = if is_kept { 5 } else { 1 };
        assert_eq!(
            answers(requests.last().unwrap()),
            (5, want),
            "{dialect}: in the last run"
        );
        world.finish().await;
    }
}

/// A window that a service has stated holds for later runs of the process too, unless one is
/// configured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stated_window_holds_for_later_runs() {
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&refused);
    let model = scripted_model(move |request| {
        if is_summary(request) {
            return Turn::say(SUMMARY);
        }
        let bytes: usize = request
            .messages
            .iter()
            .map(|message| message.content.len())
            .sum();
        if bytes > 20_000 {
            counted.fetch_add(1, SeqCst);
            let error = ModelError::new(Failure::PromptTooLong, "too long");
            return Turn::Fail(ModelError {
                context_window: Some(7_000),
                ..error
            });
        }
        if request
            .messages
            .iter()
            .any(|message| message.covers.is_some())
        {
            Turn::say("done")
        } else {
            Turn::call("read", json!({ "path": "long.txt" }))
        }
    });
    let world = TestRuntime::with(model, |builder| {
        let mut config: Config = quick_config();
        config.model.max_output_tokens = Some(100);
        builder.config(config)
    })
    .await;
    std::fs::write(world.project().join("long.txt"), prose(300)).unwrap();
    for session in ["first", "second"] {
        let run = world
            .runtime()
            .start(RunRequest::new("the job").session(session))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(
            outcome.status,
            RunStatus::Completed,
            "{session}: {:?}",
            outcome.error
        );
    }
    assert_eq!(refused.load(SeqCst), 1, "the second run knows the window");
    world.finish().await;
}
