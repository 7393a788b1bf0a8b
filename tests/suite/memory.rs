//! What earlier runs have learned, for later ones (MEM-2, MEM-3).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use serde_json::json;
use soong::{
    Config, MessagePath, Start,
    model::{Model, ModelRequest, offline::Offline},
    protocol::{ErrorCode, Event, EventRecord, MemoryEvent, Message, Role, RunStatus, SessionId, TraceId},
};

use crate::support::{
    history::check_session,
    model::{Scripted, Turn, last_of},
    world::{World, all, kinds, patiently, soon},
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

const TOLD: &str = "\n\n## Relevant experience (参考经验)\n- [ex_001] Run the tests alone first. (Helpful: 12)";

/// Returns whether somebody is asked what a task is about.
fn is_tagging(request: &ModelRequest) -> bool {
    request.system.first().is_some_and(|system| system.starts_with("You say in a few tags"))
}

/// A world with a book, whose model tags as it is told and answers with what it was asked.
async fn world(book: &str, tag: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static, config: Config) -> World {
    let model =
        Scripted::new(move |request| if is_tagging(request) { tag(request) } else { Turn::say(last_of(request)) });
    let world = World::with(model, |builder| builder.config(config)).await;
    write(&world, book);
    world
}

fn write(world: &World, book: &str) {
    let folder = world.home().join("memory");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("experiences.md"), book).unwrap();
}

fn book(world: &World) -> String {
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

async fn path(world: &World, session: &SessionId) -> Vec<Message> {
    world.runtime().messages(&TraceId::root(session), MessagePath::Main).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mem_3_a_new_conversation_is_told_what_fits_and_a_later_turn_is_not_asked_again() {
    let world = world(BOOK, tags, Config::default()).await;
    let run = world.runtime().start(Start::new("Fix it.").session("s")).await.unwrap();
    let events = all(run.events().unwrap()).await;
    let outcome = soon(run.wait()).await.unwrap();
    assert_eq!(outcome.output, format!("Fix it.{TOLD}"), "what does harm, does not fit or is broken is not told");
    let [MemoryEvent::Injected { ids, tags, model_calls, usage, error, .. }] = injected(&events)[..] else {
        panic!("{:?}", kinds(&events))
    };
    assert_eq!((ids.len(), ids[0].as_str(), *model_calls, error), (1, "ex_001", 1, &None));
    assert_eq!((tags.intent.join(" "), tags.state.join(" ")), ("fix-test".to_owned(), "rust".to_owned()));
    assert!(usage.is_some_and(|usage| usage.prompt_tokens > 0));
    let order: Vec<&str> = kinds(&events).into_iter().take(4).collect();
    assert_eq!(order, ["loop_started", "experiences_injected", "message_added", "message_added"]);
    let stored = world.runtime().run(run.run_id()).await.unwrap();
    assert_eq!(stored.usage.model_calls, 2, "it is paid for");
    assert!(stored.usage.total_tokens > usage.unwrap().prompt_tokens);

    let again = world.runtime().start(Start::new("And now?").session("s")).await.unwrap();
    let events = all(again.events().unwrap()).await;
    assert!(injected(&events).is_empty(), "{:?}", kinds(&events));
    assert_eq!(soon(again.wait()).await.unwrap().output, "And now?");
    assert_eq!(path(&world, run.session_id()).await[1].content, format!("Fix it.{TOLD}"));
    check_session(world.runtime(), run.session_id()).await;
    assert_eq!(book(&world), BOOK);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mem_3_nobody_is_asked_where_memory_is_off_or_empty() {
    let mut off = Config::default();
    off.memory.enabled = false;
    for (text, config, enable_memory) in [
        (BOOK, Config::default(), Some(false)),
        (BOOK, off, None),
        ("", Config::default(), None),
        ("Only notes.\n", Config::default(), Some(true)),
    ] {
        let world = world(text, |_| panic!("nobody asks for tags"), config).await;
        let start = Start { enable_memory, ..Start::new("Fix it.") };
        let run = world.runtime().start(start).await.unwrap();
        let events = all(run.events().unwrap()).await;
        assert!(injected(&events).is_empty(), "{text:?}: {:?}", kinds(&events));
        assert_eq!(soon(run.wait()).await.unwrap().output, "Fix it.");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mem_3_an_answer_that_does_not_fit_is_mended_once_and_keeps_no_run_from_its_work() {
    for (fits_at, calls, told) in [(1, 2, TOLD), (9, 2, "")] {
        let asked = AtomicUsize::new(0);
        let tag = move |request: &ModelRequest| match asked.fetch_add(1, SeqCst) {
            n if n == fits_at => {
                assert!(last_of(request).contains("Your answer does not fit: it is no JSON"), "{}", last_of(request));
                tags(request)
            }
            _ => Turn::say("Sure!"),
        };
        let world = world(BOOK, tag, Config::default()).await;
        let run = world.runtime().start("Fix it.").await.unwrap();
        let events = all(run.events().unwrap()).await;
        assert_eq!(soon(run.wait()).await.unwrap().output, format!("Fix it.{told}"));
        let [MemoryEvent::Injected { model_calls, error, .. }] = injected(&events)[..] else { panic!("{events:?}") };
        assert_eq!(*model_calls, calls);
        assert_eq!(error.as_ref().map(|error| error.code), told.is_empty().then_some(ErrorCode::ProviderError));
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mem_3_a_crash_while_it_is_looked_begins_again_and_a_cancel_ends_it() {
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let tag = move |request: &ModelRequest| match seen.fetch_add(1, SeqCst) {
        1 => tags(request),
        _ => Turn::Hang("{"),
    };
    let world = world(BOOK, tag, Config::default()).await;
    let run = world.runtime().start("Fix it.").await.unwrap();
    patiently("it is looked for experiences", || asked.load(SeqCst) == 1).await;
    world.runtime().crash(&format!("run:{}", run.run_id())).unwrap();
    assert_eq!(soon(run.wait()).await.unwrap().output, format!("Fix it.{TOLD}"));
    assert_eq!(path(&world, run.session_id()).await.iter().filter(|message| message.role == Role::User).count(), 1);

    let run = world.runtime().start("Fix it.").await.unwrap();
    patiently("it is looked again", || asked.load(SeqCst) == 3).await;
    soon(run.cancel()).await;
    assert_eq!(soon(run.wait()).await.unwrap().status, RunStatus::Cancelled);
    let stored = world.runtime().run(run.run_id()).await.unwrap();
    assert!(
        stored.usage.model_calls == 1 && stored.usage.prompt_tokens > 0,
        "what was cut off is paid for: {stored:?}"
    );
    assert!(path(&world, run.session_id()).await.is_empty(), "nothing was said");
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mem_3_the_offline_model_tags_too_and_the_tool_finds_what_it_is_asked_for() {
    let world = World::open(Arc::new(Offline::new()) as Arc<dyn Model>).await;
    write(&world, BOOK);
    let run = world.runtime().start("Please fix the failing tests of this Rust project.").await.unwrap();
    let events = all(run.events().unwrap()).await;
    let [MemoryEvent::Injected { ids, .. }] = injected(&events)[..] else { panic!("{:?}", kinds(&events)) };
    assert_eq!(ids.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["ex_001"]);
    soon(run.wait()).await.unwrap();
    world.finish().await;

    let model = Scripted::new(|request| match crate::support::model::turn_of(request) {
        _ if is_tagging(request) => Turn::say(r#"{"intent": ["nothing"]}"#),
        0 => Turn::call("get_experience", json!({"intent": ["write docs"]})),
        _ => Turn::say(last_of(request)),
    });
    let world = World::open(model).await;
    write(&world, BOOK);
    let run = world.runtime().start("Write.").await.unwrap();
    let outcome = soon(run.wait()).await.unwrap();
    let output = &outcome.output;
    assert!(output.contains("[ex_002]") && output.contains("Keep it short.") && !output.contains("ex_001"), "{output}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mem_2_deleting_a_session_and_cleaning_up_leave_what_was_learned() {
    let world = world(BOOK, tags, Config::default()).await;
    let run = world.runtime().start(Start::new("Fix it.").session("s")).await.unwrap();
    soon(run.wait()).await.unwrap();
    world.runtime().delete_session(&SessionId::new("s")).await.unwrap();
    assert_eq!(book(&world), BOOK);
    world.finish().await;
}
