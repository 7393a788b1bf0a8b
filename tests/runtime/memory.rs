//! Experiences of earlier runs: recall, reflection and their separation by user (MEM-2 … MEM-4).

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::json;
use soong::{
    Config, FaultComponent, FaultPoint, MessagePath, RunRequest, SessionCleanup,
    model::{Model, ModelRequest},
    offline::Offline,
    protocol::{
        ErrorCode, Event, EventRecord, MemoryEvent, Message, Role, RunMode, RunStatus, SessionId,
        TraceId,
    },
};

use crate::support::{
    history::check_session,
    model::{ScriptedModel, Turn, last_of, scripted_model},
    world::{TestRuntime, kinds, read_to_end, wait_until, with_timeout},
};

const BOOK: &str = "\
Mine, by hand.

---
id: ex_001
tags: {intent: [fix-test], state: [rust]}
metrics: {helpful: 12}
---
Run the tests alone first.

---
id: ex_002
tags: {intent: [write-docs]}
---
Keep it short.

---
id: ex_003
tags: {intent: [fix-test]}
metrics: {harmful: 2}
---
Delete the test.

---
id: ex_004
tags: {intent: [fix-test], state: [rust]}
no end of this one
";

const INJECTED: &str =
    "\n\n## Relevant experience (参考经验)\n- [ex_001] Run the tests alone first. (Helpful: 12)";

/// Returns whether the request asks for the tags of a task.
fn is_tagging(request: &ModelRequest) -> bool {
    request
        .system
        .first()
        .is_some_and(|system| system.starts_with("You describe a task with a few tags"))
}

/// Opens a test runtime with an experience file. The model tags tasks with `tag`, and otherwise
/// answers with the last message.
async fn world(
    book: &str,
    tag: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static,
    config: Config,
) -> TestRuntime {
    let model = scripted_model(move |request| {
        if is_tagging(request) {
            tag(request)
        } else {
            Turn::say(last_of(request))
        }
    });
    let world = TestRuntime::with(model, |builder| builder.config(config)).await;
    write(&world, book);
    world
}

fn write(world: &TestRuntime, book: &str) {
    let folder = world.home().join("memory");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("experiences.md"), book).unwrap();
}

fn book(world: &TestRuntime) -> String {
    std::fs::read_to_string(world.home().join("memory/experiences.md")).unwrap()
}

fn tags(_: &ModelRequest) -> Turn {
    Turn::say(r#"{"intent": ["fix test"], "state": ["rust"]}"#)
}

fn injected(events: &[Arc<EventRecord>]) -> Vec<&MemoryEvent> {
    events
        .iter()
        .filter_map(|record| match &record.event {
            Event::Memory(event) => Some(event),
            _ => None,
        })
        .collect()
}

async fn path(world: &TestRuntime, session: &SessionId) -> Vec<Message> {
    world
        .runtime()
        .traces()
        .messages(&TraceId::root(session), MessagePath::Main)
        .await
        .unwrap()
}

/// (MEM-3)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_conversation_gets_matching_experiences_once() {
    let world = world(BOOK, tags, Config::default()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("Fix it.").session("s"))
        .await
        .unwrap();
    let events = read_to_end(run.events().unwrap()).await;
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        outcome.output,
        format!("Fix it.{INJECTED}"),
        "what does harm, does not fit or is broken is not injected"
    );
    let [
        MemoryEvent::Injected {
            ids,
            tags,
            model_calls,
            usage,
            error,
            ..
        },
    ] = injected(&events)[..]
    else {
        panic!("{:?}", kinds(&events))
    };
    assert_eq!(
        (ids.len(), ids[0].as_str(), *model_calls, error),
        (1, "ex_001", 1, &None)
    );
    assert_eq!(
        (tags.intent.join(" "), tags.state.join(" ")),
        ("fix-test".to_owned(), "rust".to_owned())
    );
    assert!(usage.is_some_and(|usage| usage.prompt_tokens > 0));
    let order: Vec<&str> = kinds(&events).into_iter().take(4).collect();
    assert_eq!(
        order,
        [
            "loop_started",
            "experiences_injected",
            "message_added",
            "message_added"
        ]
    );
    let stored = world.runtime().traces().run(run.run_id()).await.unwrap();
    assert_eq!(stored.usage.model_calls, 2, "it is paid for");
    assert!(stored.usage.total_tokens > usage.unwrap().prompt_tokens);

    let next_run = world
        .runtime()
        .start(RunRequest::new("And now?").session("s"))
        .await
        .unwrap();
    let events = read_to_end(next_run.events().unwrap()).await;
    assert!(injected(&events).is_empty(), "{:?}", kinds(&events));
    assert_eq!(
        with_timeout(next_run.wait()).await.unwrap().output,
        "And now?"
    );
    assert_eq!(
        path(&world, run.session_id()).await[1].content,
        format!("Fix it.{INJECTED}")
    );
    check_session(world.runtime(), run.session_id()).await;
    assert_eq!(book(&world), BOOK);
    world.finish().await;
}

/// (MEM-3)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_tagging_call_if_memory_is_disabled_or_empty() {
    let mut off = Config::default();
    off.memory.enabled = false;
    for (text, config, enable_memory) in [
        (BOOK, Config::default(), Some(false)),
        (BOOK, off, None),
        ("", Config::default(), None),
        ("Only notes.\n", Config::default(), Some(true)),
    ] {
        let world = world(text, |_| panic!("nobody asks for tags"), config).await;
        let mut start = RunRequest::new("Fix it.");
        start.settings.enable_memory = enable_memory.into();
        let run = world.runtime().start(start).await.unwrap();
        let events = read_to_end(run.events().unwrap()).await;
        assert!(
            injected(&events).is_empty(),
            "{text:?}: {:?}",
            kinds(&events)
        );
        assert_eq!(with_timeout(run.wait()).await.unwrap().output, "Fix it.");
        world.finish().await;
    }
}

/// (MEM-3)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_tags_are_retried_once_and_do_not_fail_the_run() {
    for (fits_at, calls, want) in [(1, 2, INJECTED), (9, 2, "")] {
        let request_count = AtomicUsize::new(0);
        let tag = move |request: &ModelRequest| match request_count.fetch_add(1, SeqCst) {
            n if n == fits_at => {
                assert!(
                    last_of(request).contains("Your answer does not fit: it is not JSON"),
                    "{}",
                    last_of(request)
                );
                tags(request)
            }
            _ => Turn::say("Sure!"),
        };
        let world = world(BOOK, tag, Config::default()).await;
        let run = world.runtime().start("Fix it.").await.unwrap();
        let events = read_to_end(run.events().unwrap()).await;
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().output,
            format!("Fix it.{want}")
        );
        let [
            MemoryEvent::Injected {
                model_calls, error, ..
            },
        ] = injected(&events)[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!(*model_calls, calls);
        assert_eq!(
            error.as_ref().map(|error| error.code),
            want.is_empty().then_some(ErrorCode::ProviderError)
        );
        world.finish().await;
    }
}

/// (MEM-3)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recall_restarts_after_a_crash_and_ends_on_cancel() {
    let request_count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&request_count);
    let tag = move |request: &ModelRequest| match seen.fetch_add(1, SeqCst) {
        1 => tags(request),
        _ => Turn::Hang("{"),
    };
    let world = world(BOOK, tag, Config::default()).await;
    let run = world.runtime().start("Fix it.").await.unwrap();
    wait_until("the recall sends its first request", || {
        request_count.load(SeqCst) == 1
    })
    .await;
    world
        .runtime()
        .tree()
        .inject_crash(&format!("run:{}", run.run_id()))
        .unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().output,
        format!("Fix it.{INJECTED}")
    );
    let events = read_to_end(run.events().unwrap()).await;
    let [
        MemoryEvent::Injected {
            error: Some(error),
            usage: Some(_),
            ..
        },
        MemoryEvent::Injected { error: None, .. },
    ] = injected(&events)[..]
    else {
        panic!("{:?}", kinds(&events))
    };
    assert_eq!(
        error.code,
        ErrorCode::Interrupted,
        "what was cut off is booked"
    );
    assert_eq!(
        path(&world, run.session_id())
            .await
            .iter()
            .filter(|message| message.role == Role::User)
            .count(),
        1
    );

    let run = world.runtime().start("Fix it.").await.unwrap();
    wait_until("the recall sends another request", || {
        request_count.load(SeqCst) == 3
    })
    .await;
    with_timeout(run.cancel()).await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Cancelled
    );
    let stored = world.runtime().traces().run(run.run_id()).await.unwrap();
    assert!(
        stored.usage.model_calls == 1 && stored.usage.prompt_tokens > 0,
        "what was cut off is paid for: {stored:?}"
    );
    assert!(
        path(&world, run.session_id()).await.is_empty(),
        "nothing was said"
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (MEM-3)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offline_model_tags_tasks_and_tool_finds_experiences() {
    let world = TestRuntime::open(Arc::new(Offline::new()) as Arc<dyn Model>).await;
    write(&world, BOOK);
    let run = world
        .runtime()
        .start("Please fix the failing tests of this Rust project.")
        .await
        .unwrap();
    let events = read_to_end(run.events().unwrap()).await;
    let [MemoryEvent::Injected { ids, .. }] = injected(&events)[..] else {
        panic!("{:?}", kinds(&events))
    };
    assert_eq!(
        ids.iter().map(|id| id.as_str()).collect::<Vec<_>>(),
        ["ex_001"]
    );
    with_timeout(run.wait()).await.unwrap();
    world.finish().await;

    let model = scripted_model(
        |request| match crate::support::model::assistant_count(request) {
            _ if is_tagging(request) => Turn::say(r#"{"intent": ["nothing"]}"#),
            0 => Turn::call("get_experience", json!({"intent": ["write docs"]})),
            _ => Turn::say(last_of(request)),
        },
    );
    let world = TestRuntime::open(model).await;
    write(&world, BOOK);
    let run = world.runtime().start("Write.").await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    let output = &outcome.output;
    assert!(
        output.contains("[ex_002]")
            && output.contains("Keep it short.")
            && !output.contains("ex_001"),
        "{output}"
    );
    world.finish().await;
}

/// (MEM-2)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn experiences_survive_session_deletion_and_cleanup() {
    let world = world(BOOK, tags, Config::default()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("Fix it.").session("s"))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    world
        .runtime()
        .sessions()
        .delete(&SessionId::new("s"))
        .await
        .unwrap();
    let run = world
        .runtime()
        .start(RunRequest::new("Fix it.").session("t"))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    // Retry until the clock has advanced by a millisecond.
    let cleanup = || SessionCleanup {
        older_than: Duration::ZERO,
        dry_run: false,
    };
    while with_timeout(world.runtime().sessions().clean_up(cleanup()))
        .await
        .unwrap()
        .deleted
        .is_empty()
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(book(&world), BOOK);
    world.finish().await;
}

/// Returns whether the request asks for a reflection.
fn is_reflecting(request: &ModelRequest) -> bool {
    request
        .system
        .first()
        .is_some_and(|system| system.starts_with("You review an agent"))
}

const LEARNED: &str = "```json\n{\"experiences\": [{\"category\": \"environment\", \"tags\": {\"intent\": [\"fix-test\"], \
                       \"state\": []}, \"text\": \"The tests need a network.\"}], \"used\": [{\"id\": \"ex_001\", \"helped\": \
                       true}, {\"id\": \"ex_002\", \"helped\": false}]}\n```";

/// Model that tags tasks, answers, and reflects with `look_back`.
fn learning(
    look_back: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static,
) -> Arc<ScriptedModel> {
    scripted_model(move |request| match request {
        request if is_tagging(request) => tags(request),
        request if is_reflecting(request) => look_back(request),
        request => Turn::say(format!("{} heard", request.messages.len())),
    })
}

async fn whole(world: &TestRuntime, session: &str) -> Vec<Message> {
    world
        .runtime()
        .traces()
        .messages(&TraceId::new(session), MessagePath::All)
        .await
        .unwrap()
}

/// (MEM-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflection_stores_experiences_and_keeps_the_head() {
    let shown = Arc::new(std::sync::Mutex::new(String::new()));
    let seen = Arc::clone(&shown);
    let model = learning(move |request| {
        assert!(
            request.tools.is_empty() && request.messages.len() == 1,
            "{request:?}"
        );
        last_of(request).clone_into(&mut seen.lock().unwrap());
        Turn::say(LEARNED)
    });
    let world = TestRuntime::open(model).await;
    write(&world, BOOK);
    let runtime = world.runtime();
    let id = SessionId::new("s");
    let trace = TraceId::new("s");
    let run = runtime
        .start(
            RunRequest::new("Fix it.")
                .session("s")
                .mode(RunMode::Orchestrator),
        )
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    let before = runtime.traces().get(&trace).await.unwrap();
    let path_before = path(&world, &id).await;
    let goals = runtime.traces().goal_tree(&trace).await.unwrap();

    let look = runtime
        .start(RunRequest::reflect("s", Some("the tests".to_owned())))
        .await
        .unwrap();
    let events = read_to_end(look.events().unwrap()).await;
    let outcome = with_timeout(look.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "learned: ex_005; helpful: ex_001")
    );
    let reported: Vec<serde_json::Value> = injected(&events)
        .into_iter()
        .map(|event| serde_json::to_value(event).unwrap()["data"].clone())
        .collect();
    assert_eq!(
        reported,
        [
            json!({"id": "ex_005", "category": "environment"}),
            json!({"helpful": ["ex_001"], "harmful": []})
        ]
    );
    let shown = shown.lock().unwrap().clone();
    for part in [
        "[2] user:\n  Fix it.",
        "  - [ex_001] Run the tests alone first.",
        "1 heard",
        "Focus on this: the tests",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(
        !shown.contains("You orchestrate"),
        "nobody needs the instructions of the agent: {shown}"
    );

    let book_text = book(&world);
    let added = book_text.strip_prefix(&BOOK.replace(
        "helpful: 12}\n",
        &format!("helpful: 13}}\nreflection: {}\n", look.run_id()),
    ));
    // The last block of the file has no end, and the added block is separate from it.
    let added = added.unwrap_or_else(|| panic!("{book_text}"));
    assert!(
        added.contains("id: ex_005\ntrace_id: s\ncategory: environment\n")
            && added.ends_with("The tests need a network.\n"),
        "{added}"
    );

    let after = runtime.traces().get(&trace).await.unwrap();
    assert_eq!(
        (after.head_sequence, after.status, &after.result_summary),
        (before.head_sequence, before.status, &before.result_summary)
    );
    assert_eq!(
        (after.agent_type, after.run_mode, after.completed_at),
        (before.agent_type, before.run_mode, before.completed_at)
    );
    assert_eq!(runtime.traces().goal_tree(&trace).await.unwrap(), goals);
    assert_eq!(path(&world, &id).await, path_before);
    let side: Vec<Message> = whole(&world, "s")
        .await
        .into_iter()
        .filter(|message| message.side_branch)
        .collect();
    assert_eq!(
        side.iter().map(|message| message.role).collect::<Vec<_>>(),
        [Role::User, Role::Assistant]
    );
    assert_eq!(side[0].parent_sequence, Some(before.head_sequence));
    assert!(
        runtime
            .traces()
            .run(look.run_id())
            .await
            .unwrap()
            .usage
            .total_tokens
            > 0,
        "it is booked"
    );
    assert!(
        runtime
            .sessions()
            .switch_head(&id, side[0].sequence)
            .await
            .is_err(),
        "a side branch cannot be continued"
    );

    // The conversation continues at its old head and in its mode. A reflection on both experiences
    // adds no third one.
    let next = runtime
        .start(RunRequest::new("And now?").session("s"))
        .await
        .unwrap();
    assert_eq!(with_timeout(next.wait()).await.unwrap().output, "3 heard");
    assert_eq!(
        runtime.traces().run(next.run_id()).await.unwrap().mode,
        RunMode::Orchestrator
    );
    assert!(
        path(&world, &id)
            .await
            .iter()
            .all(|message| !message.side_branch)
    );
    let second_reflection = runtime.start(RunRequest::reflect("s", None)).await.unwrap();
    assert_eq!(
        with_timeout(second_reflection.wait()).await.unwrap().output,
        "helpful: ex_005, ex_001",
        "what is known already counts for it"
    );
    check_session(runtime, &id).await;
    world.finish().await;
}

/// (MEM-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reflection_is_rejected_during_a_run_and_without_session() {
    let model = scripted_model(|request| {
        if last_of(request) == "wait" {
            Turn::Hang("")
        } else {
            Turn::say("x")
        }
    });
    let world = TestRuntime::open(model.clone()).await;
    let runtime = world.runtime();
    let refused =
        async |start: RunRequest| runtime.start(start).await.map(|_| ()).unwrap_err().code;
    assert_eq!(
        refused(RunRequest::reflect("nope", None)).await,
        ErrorCode::SessionNotFound
    );
    let run = runtime
        .start(RunRequest::new("wait").session("s"))
        .await
        .unwrap();
    wait_until("it is at work", || model.in_flight() == 1).await;
    assert_eq!(
        refused(RunRequest::reflect("s", None)).await,
        ErrorCode::SessionActive
    );
    assert_eq!(
        refused(RunRequest {
            message: Some("x".into()),
            ..RunRequest::reflect("s", None)
        })
        .await,
        ErrorCode::ValidationError
    );
    with_timeout(run.cancel()).await.unwrap();
    world.finish().await;
}

/// (MEM-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_reflection_is_retried_once_then_discarded() {
    for fits in [true, false] {
        let request_count = AtomicUsize::new(0);
        let model = learning(move |request| match request_count.fetch_add(1, SeqCst) {
            1 if fits => {
                assert!(
                    last_of(request).contains("does not match"),
                    "{}",
                    last_of(request)
                );
                Turn::say(LEARNED)
            }
            _ => Turn::say("{\"experiences\": \"many\"}"),
        });
        let world = TestRuntime::open(model).await;
        write(&world, BOOK);
        with_timeout(
            world
                .runtime()
                .start(RunRequest::new("Fix it.").session("s"))
                .await
                .unwrap()
                .wait(),
        )
        .await
        .unwrap();
        let look = world
            .runtime()
            .start(RunRequest::reflect("s", None))
            .await
            .unwrap();
        let outcome = with_timeout(look.wait()).await.unwrap();
        assert_eq!(
            outcome.status,
            if fits {
                RunStatus::Completed
            } else {
                RunStatus::Failed
            },
            "{:?}",
            outcome.error
        );
        assert_eq!(book(&world) == BOOK, !fits);
        let trace = world
            .runtime()
            .traces()
            .get(&TraceId::new("s"))
            .await
            .unwrap();
        assert_eq!(
            (trace.status.as_str(), trace.error_message),
            ("completed", None),
            "it says nothing of the trace"
        );
        check_session(world.runtime(), &SessionId::new("s")).await;
        world.finish().await;
    }
}

/// (MEM-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_during_reflection_stores_experiences_once() {
    for point in FaultPoint::ALL
        .into_iter()
        .filter(|point| point.place() == FaultComponent::Run)
    {
        for nth in 1..=4 {
            let met = AtomicUsize::new(0);
            let armed = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let ready = Arc::clone(&armed);
            let hook: soong::FaultHook = Arc::new(move |_, here| {
                if here == point && ready.load(SeqCst) && met.fetch_add(1, SeqCst) + 1 == nth {
                    panic!("provoked at {here:?}");
                }
            });
            let world = TestRuntime::with(learning(|_| Turn::say(LEARNED)), |builder| {
                builder.fault_hook(hook)
            })
            .await;
            write(&world, BOOK);
            with_timeout(
                world
                    .runtime()
                    .start(RunRequest::new("Fix it.").session("s"))
                    .await
                    .unwrap()
                    .wait(),
            )
            .await
            .unwrap();
            let before = path(&world, &SessionId::new("s")).await;
            armed.store(true, SeqCst);
            let look = world
                .runtime()
                .start(RunRequest::reflect("s", None))
                .await
                .unwrap();
            let outcome = with_timeout(look.wait()).await.unwrap();
            let case = format!("{point:?} number {nth}");
            assert_eq!(
                outcome.output, "learned: ex_005; helpful: ex_001",
                "{case}: {:?}",
                outcome.error
            );
            let book_text = book(&world);
            assert_eq!(
                (
                    book_text.matches("id: ex_0").count(),
                    book_text.matches("helpful: 13").count()
                ),
                (5, 1),
                "{case}: {book_text}"
            );
            assert_eq!(path(&world, &SessionId::new("s")).await, before, "{case}");
            check_session(world.runtime(), &SessionId::new("s")).await;
            world.finish().await;
        }
    }
}

/// (MEM-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offline_model_reflects() {
    let world = TestRuntime::open(Arc::new(Offline::new()) as Arc<dyn Model>).await;
    std::fs::write(world.project().join("a.txt"), "where is the needle").unwrap();
    let run = world
        .runtime()
        .start(RunRequest::new("Find the needle in this project.").session("s"))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    let look = world
        .runtime()
        .start(RunRequest::reflect("s", None))
        .await
        .unwrap();
    let outcome = with_timeout(look.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "learned: ex_001"),
        "{:?}",
        outcome.error
    );
    assert!(
        book(&world).contains("(offline stand-in: rules, no language model)"),
        "{}",
        book(&world)
    );
    world.finish().await;
}

/// (MEM-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_message_runs_after_reflection_and_status_is_kept() {
    let hangs = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let is_hanging = Arc::clone(&hangs);
    let model = learning(move |_| {
        if is_hanging.load(SeqCst) {
            Turn::Hang("")
        } else {
            Turn::say(LEARNED)
        }
    });
    let world = TestRuntime::open(model.clone()).await;
    let runtime = world.runtime();
    let trace = TraceId::new("s");
    with_timeout(
        runtime
            .start(RunRequest::new("Fix it.").session("s"))
            .await
            .unwrap()
            .wait(),
    )
    .await
    .unwrap();
    let look = runtime.start(RunRequest::reflect("s", None)).await.unwrap();
    wait_until("it looks back", || model.in_flight() == 1).await;
    // One message is cancelled while it waits; the other one waits until the reflection is
    // cancelled.
    let cancelled = runtime
        .start(RunRequest::new("Never.").session("s"))
        .await
        .unwrap();
    let next = runtime
        .start(RunRequest::new("Next.").session("s"))
        .await
        .unwrap();
    with_timeout(cancelled.cancel()).await.unwrap();
    with_timeout(look.cancel()).await.unwrap();
    assert_eq!(with_timeout(next.wait()).await.unwrap().output, "3 heard");
    assert_eq!(
        with_timeout(look.wait()).await.unwrap().status,
        RunStatus::Cancelled
    );
    let second_reflection = runtime.start(RunRequest::reflect("s", None)).await.unwrap();
    wait_until("the second reflection calls the model", || {
        model.in_flight() == 1
    })
    .await;
    let waits = runtime
        .start(RunRequest::new("Never.").session("s"))
        .await
        .unwrap();
    with_timeout(waits.cancel()).await.unwrap();
    with_timeout(second_reflection.cancel()).await.unwrap();
    assert_ne!(
        runtime.traces().get(&trace).await.unwrap().status.as_str(),
        "running"
    );
    hangs.store(false, SeqCst);
    with_timeout(
        runtime
            .start(RunRequest::reflect("s", None))
            .await
            .unwrap()
            .wait(),
    )
    .await
    .unwrap();
    check_session(runtime, &SessionId::new("s")).await;
    world.finish().await;
}

/// (MEM-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_reflection_resumes_only_for_its_user() {
    let model = learning(|_| Turn::Hang(""));
    let mut world = TestRuntime::open(model.clone()).await;
    with_timeout(
        world
            .runtime()
            .start(RunRequest::new("Fix it.").session("s"))
            .await
            .unwrap()
            .wait(),
    )
    .await
    .unwrap();
    let look = world
        .runtime()
        .start(RunRequest::reflect("s", None))
        .await
        .unwrap();
    let run_id = look.run_id().clone();
    wait_until("it looks back", || model.in_flight() == 1).await;
    drop(look);
    let model = learning(|_| Turn::say(LEARNED)) as Arc<dyn Model>;
    world
        .reopen_with(model, |builder| {
            builder.recover(soong::RecoveryPolicy::Nothing)
        })
        .await;
    let foreign = RunRequest::reflect("s", None).uid("other");
    assert_eq!(
        world
            .runtime()
            .start(foreign)
            .await
            .map(|_| ())
            .unwrap_err()
            .code,
        ErrorCode::SessionNotFound
    );
    assert!(
        world
            .runtime()
            .traces()
            .active_run(&TraceId::new("s"))
            .is_none(),
        "it was taken up"
    );
    let own = world
        .runtime()
        .start(RunRequest::reflect("s", None))
        .await
        .unwrap();
    assert_eq!(own.run_id(), &run_id);
    assert_eq!(
        with_timeout(own.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    world.finish().await;
}

/// (MEM-3)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn experiences_of_other_users_are_not_shown() {
    let world = world(BOOK, tags, Config::default()).await;
    let folder = world.home().join("users/bob/memory");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(
        folder.join("experiences.md"),
        BOOK.replace("Run the tests alone first.", "Ask Bob."),
    )
    .unwrap();
    for (uid, want) in [
        ("local", INJECTED.to_owned()),
        (
            "bob",
            INJECTED.replace("Run the tests alone first.", "Ask Bob."),
        ),
        ("eve", String::new()),
    ] {
        let run = world
            .runtime()
            .start(RunRequest::new("Fix it.").uid(uid))
            .await
            .unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().output,
            format!("Fix it.{want}"),
            "{uid}"
        );
    }
    assert_eq!(
        world
            .runtime()
            .memory()
            .file("bob")
            .read()
            .unwrap()
            .experiences()
            .len(),
        3
    );
    assert!(!world.home().join("users/eve").exists());
    world.finish().await;
}
