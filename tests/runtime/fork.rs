//! Forks: a copy continues independently, and its source is not changed (MSG-1, MSG-3, MSG-4).

use std::sync::Arc;

use serde_json::{Value, json};
use soong::{
    ErrorCode, Fork, MessagePath, RunRequest, Runtime,
    artifact::{ArtifactOwner, Save},
    model::Model,
    protocol::{
        Artifact, ArtifactScope, Event, EventRecord, GivenMessage, GoalTree, Message, Role,
        RunEvent, RunMode, RunStatus, SessionId, SessionWrite, Trace, TraceId, Write,
    },
};
use soong_storage::{
    sqlite::SqliteStore,
    store::{Ack, Append, Store, StoreError},
};

use crate::support::{
    artifacts::{
        create, local_owner, open_with_gate, pause, prompt_driven_model, save, text, turns, update,
    },
    history::{check_messages, stored},
    model::{ScriptedModel, Turn, assistant_count, last_of, scripted_model},
    world::{TestRuntime, with_timeout},
};

fn id(session: &str) -> SessionId {
    SessionId::new(session)
}

fn at(at: u64, name: &str) -> Fork {
    Fork {
        at: Some(at),
        session_id: Some(name.to_owned()),
        name: None,
    }
}

/// Runs these calls in a session, one per turn.
async fn write(world: &TestRuntime, session: &str, calls: &[Value]) {
    let run = world
        .runtime()
        .start(RunRequest::new(turns(calls)).session(session))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Completed
    );
}

async fn fork(world: &TestRuntime, source: &str, request: Fork) -> String {
    let made = world
        .runtime()
        .sessions()
        .fork(&id(source), request)
        .await
        .unwrap();
    made.session_id.to_string()
}

/// Returns the messages of a path without their trace ids, so that copies can be compared.
async fn read(runtime: &Runtime, session: &str, path: MessagePath) -> Vec<Message> {
    let messages = runtime
        .traces()
        .messages(&TraceId::new(session), path)
        .await
        .unwrap();
    messages
        .into_iter()
        .map(|message| Message {
            trace_id: TraceId::new("any"),
            ..message
        })
        .collect()
}

async fn sequences(world: &TestRuntime, session: &str) -> Vec<u64> {
    read(world.runtime(), session, MessagePath::Main)
        .await
        .iter()
        .map(|message| message.sequence)
        .collect()
}

/// Returns everything that is recorded of a session.
async fn everything(
    world: &TestRuntime,
    session: &str,
) -> (Trace, Vec<Message>, Vec<String>, GoalTree, Vec<Artifact>) {
    let runtime = world.runtime();
    let trace = TraceId::new(session);
    let as_json = |event: &Arc<EventRecord>| serde_json::to_string(&**event).unwrap();
    (
        runtime.traces().get(&trace).await.unwrap(),
        runtime
            .traces()
            .messages(&trace, MessagePath::All)
            .await
            .unwrap(),
        stored(runtime, &trace).await.iter().map(as_json).collect(),
        runtime.traces().goal_tree(&trace).await.unwrap(),
        runtime
            .artifacts()
            .list(&local_owner(session))
            .await
            .unwrap(),
    )
}

async fn names(world: &TestRuntime, session: &str) -> Vec<String> {
    let all = world
        .runtime()
        .artifacts()
        .list(&local_owner(session))
        .await
        .unwrap();
    all.into_iter()
        .filter(|one| matches!(one.scope, ArtifactScope::Session { .. }))
        .filter_map(|one| one.name)
        .collect()
}

/// Model that adds a goal in its first turn, and then answers with the number of messages in the
/// request.
fn planning() -> Arc<ScriptedModel> {
    scripted_model(|request| {
        let user_index = request
            .messages
            .iter()
            .rposition(|message| message.role == Role::User)
            .unwrap();
        if request.messages[user_index..]
            .iter()
            .any(|message| message.role == Role::Assistant)
        {
            Turn::say(format!("shown {}", request.messages.len()))
        } else {
            Turn::call(
                "goal",
                json!({ "add": [format!("for {}", request.messages[user_index].content)] }),
            )
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fork_copies_up_to_a_message_and_continues_independently() {
    let world = TestRuntime::open(planning()).await;
    // Messages: 1 system, 2 user, 3 calls, 4 result, 5 answer; 6 user … 9 answer.
    for prompt in ["one", "two"] {
        let run = world
            .runtime()
            .start(RunRequest::new(prompt).session("s"))
            .await
            .unwrap();
        with_timeout(run.wait()).await.unwrap();
    }
    let source = everything(&world, "s").await;
    // A fork at a message with calls includes their last result (MSG-3).
    for (wanted, lands, goals) in [(5, 5, 1), (3, 4, 1), (9, 9, 2), (2, 2, 0)] {
        let name = format!("f{wanted}");
        let made = world
            .runtime()
            .sessions()
            .fork(&id("s"), at(wanted, &name))
            .await
            .unwrap();
        assert_eq!(
            (made.session_id.as_str(), made.name.as_deref()),
            (name.as_str(), Some("one"))
        );
        assert_eq!(
            sequences(&world, &name).await,
            (1..=lands).collect::<Vec<u64>>()
        );
        assert_eq!(
            read(world.runtime(), &name, MessagePath::All).await,
            read(world.runtime(), "s", MessagePath::To(lands)).await
        );
        let trace = world
            .runtime()
            .traces()
            .get(&TraceId::new(name.as_str()))
            .await
            .unwrap();
        assert_eq!(
            (
                trace.total_messages,
                trace.total_tokens,
                trace.head_sequence
            ),
            (lands, 0, lands)
        );
        let tree = world
            .runtime()
            .traces()
            .goal_tree(&TraceId::new(name.as_str()))
            .await
            .unwrap();
        assert_eq!(
            (tree.goals.len(), tree.current_id),
            (goals, None),
            "{wanted}"
        );
        let events = stored(world.runtime(), &TraceId::new(name.as_str())).await;
        assert!(
            matches!(&events[0].event, Event::Run(RunEvent::SessionForked { source, at, .. })
                if source.as_str() == "s" && *at == lands)
        );
    }
    // Without a position, the whole conversation is copied.
    let all = fork(&world, "s", Fork::default()).await;
    assert_eq!(sequences(&world, &all).await, (1..=9).collect::<Vec<u64>>());
    assert_eq!(
        everything(&world, "s").await,
        source,
        "the source has not noticed"
    );

    // The copy continues with the copied messages, and the ids of its goals are not reused.
    let run = world
        .runtime()
        .start(RunRequest::new("three").session("f5"))
        .await
        .unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "shown 7");
    assert_eq!(sequences(&world, "f5").await, (1..=9).collect::<Vec<u64>>());
    check_messages(
        &world
            .runtime()
            .traces()
            .messages(&TraceId::new("f5"), MessagePath::Main)
            .await
            .unwrap(),
    );
    let ids: Vec<String> = {
        let tree = world
            .runtime()
            .traces()
            .goal_tree(&TraceId::new("f5"))
            .await
            .unwrap();
        tree.goals.iter().map(|goal| goal.id.to_string()).collect()
    };
    assert_eq!(ids, ["1", "3"], "2 was given to what came behind, there");
    // The model is called again at the end of the copy, without a new message.
    let resumed = world
        .runtime()
        .start(RunRequest::resume("f2"))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(resumed.wait()).await.unwrap().output,
        "shown 3"
    );
    let refused = world
        .runtime()
        .start(RunRequest::resume("f9"))
        .await
        .unwrap_err();
    assert!(
        refused.code == ErrorCode::ValidationError
            && refused.message.contains("ends with an answer"),
        "{refused}"
    );
    assert_eq!(everything(&world, "s").await, source);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artifacts_are_copied_as_of_the_message_and_found_by_id() {
    let world = TestRuntime::open(prompt_driven_model() as Arc<dyn Model>).await;
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let image = Save::new("image", "image/png", bytes.clone());
    // Messages: 1 system, 2 user, 3 create, 4 result, 5 update, 6 result, 7 answer.
    write(
        &world,
        "s",
        &[create("doc", "one"), update("doc", "one", "two")],
    )
    .await;
    world
        .runtime()
        .artifacts()
        .service()
        .save(&local_owner("s"), image)
        .await
        .unwrap();
    write(
        &world,
        "s",
        &[update("doc", "two", "three"), create("late", "x")],
    )
    .await;
    save(&world, &local_owner("s"), "image", "other bytes").await;
    save(&world, &local_owner("s"), "upload", "mine").await;
    let source = everything(&world, "s").await;
    let old = source
        .4
        .iter()
        .find(|one| one.name.as_deref() == Some("doc"))
        .unwrap()
        .artifact_id
        .clone();

    for (wanted, doc, with) in [
        (4, Some("one"), vec!["doc"]),
        (6, Some("two"), vec!["doc"]),
        (9, Some("three"), vec!["doc", "image"]),
        (2, None, vec![]),
    ] {
        let name = format!("f{wanted}");
        fork(&world, "s", at(wanted, &name)).await;
        assert_eq!(names(&world, &name).await, with, "{wanted}");
        let Some(doc) = doc else { continue };
        assert_eq!(text(&world, &local_owner(&name), "doc").await, doc);
        let copy = world
            .runtime()
            .artifacts()
            .load(&local_owner(&name), old.as_str(), None)
            .await
            .unwrap();
        assert_eq!(
            (
                copy.version,
                copy.artifact.dirty,
                copy.artifact.stored_version
            ),
            (1, false, 1)
        );
        assert_ne!(copy.artifact.artifact_id, old);
        assert_eq!(
            copy.text().await.unwrap(),
            doc,
            "the id in the conversation finds the copy"
        );
    }
    let loaded = world
        .runtime()
        .artifacts()
        .load(&local_owner("f9"), "image", None)
        .await
        .unwrap();
    assert_eq!(loaded.content_type, "image/png");
    assert_eq!(loaded.bytes().await.unwrap(), bytes);
    // Without a position, and if no run is active, artifacts are copied in their current state.
    let all = fork(&world, "s", Fork::default()).await;
    assert_eq!(
        names(&world, &all).await,
        ["doc", "image", "late", "upload"]
    );
    assert_eq!(everything(&world, "s").await, source);

    // A fork of a fork, at any copied message. The ids of both sources find the document of the new
    // copy.
    fork(&world, "f6", at(4, "g")).await;
    assert_eq!(
        text(&world, &local_owner("g"), "doc").await,
        "two",
        "as the fork has it"
    );
    let between = world
        .runtime()
        .artifacts()
        .load(&local_owner("f6"), "doc", None)
        .await
        .unwrap()
        .artifact
        .artifact_id;
    for known in [&old, &between] {
        assert_eq!(text(&world, &local_owner("g"), known.as_str()).await, "two");
    }
    // Rewinding a fork to before its first own message restores the documents to their state at the
    // fork.
    write(
        &world,
        "f6",
        &[update("doc", "two", "four"), create("own", "y")],
    )
    .await;
    assert_eq!(names(&world, "f6").await, ["doc", "own"]);
    let switched = world
        .runtime()
        .sessions()
        .switch_head(&id("f6"), 2)
        .await
        .unwrap();
    assert_eq!((switched.sequence, switched.restored.len()), (2, 2));
    assert_eq!(
        (
            text(&world, &local_owner("f6"), "doc").await.as_str(),
            names(&world, "f6").await.len()
        ),
        ("two", 1)
    );
    // The same in a fork that has had no run.
    assert_eq!(
        world
            .runtime()
            .sessions()
            .switch_head(&id("g"), 2)
            .await
            .unwrap()
            .from_sequence,
        4
    );
    assert_eq!(text(&world, &local_owner("g"), "doc").await, "two");
    assert_eq!(
        world
            .runtime()
            .sessions()
            .switch_head(&id("g"), 4)
            .await
            .unwrap()
            .from_sequence,
        2
    );
    write(&world, "g", &[update("doc", "two", "five")]).await;
    assert_eq!(text(&world, &local_owner("g"), "doc").await, "five");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_outlives_its_source() {
    let world = TestRuntime::open(prompt_driven_model() as Arc<dyn Model>).await;
    write(&world, "s", &[create("doc", "one")]).await;
    fork(&world, "s", at(5, "f")).await;
    let before = everything(&world, "f").await;
    world.runtime().sessions().delete(&id("s")).await.unwrap();
    assert_eq!(everything(&world, "f").await, before);
    assert_eq!(text(&world, &local_owner("f"), "doc").await, "one");
    write(&world, "f", &[update("doc", "one", "two")]).await;
    // The id can be used again, also for a copy of the copy.
    fork(
        &world,
        "f",
        Fork {
            session_id: Some("s".into()),
            ..Fork::default()
        },
    )
    .await;
    assert_eq!(text(&world, &local_owner("s"), "doc").await, "two");
    // A copy without its source also knows that its last message has no answer.
    fork(&world, "f", at(2, "g")).await;
    world.runtime().sessions().delete(&id("f")).await.unwrap();
    let run = world
        .runtime()
        .start(RunRequest::resume("g"))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn active_session_can_be_forked_without_its_active_runs() {
    let (world, gate) = open_with_gate(|builder| builder).await;
    let calls = [
        create("doc", "one"),
        json!([update("doc", "one", "two"), pause()]),
    ];
    let run = world
        .runtime()
        .start(RunRequest::new(turns(&calls)).session("s"))
        .await
        .unwrap();
    let queued = world
        .runtime()
        .start(RunRequest::new("[]").session("s"))
        .await
        .unwrap();
    gate.reached(1).await;
    // Messages: 1 system, 2 user, 3 create, 4 result, 5 two calls, one of them open.
    fork(&world, "s", at(4, "f")).await;
    let now = fork(&world, "s", Fork::default()).await;
    assert_eq!(sequences(&world, "f").await, [1, 2, 3, 4]);
    assert_eq!(text(&world, &local_owner("f"), "doc").await, "one");
    let session = world.runtime().sessions().get(&id(&now)).await.unwrap();
    assert_eq!(session.live_runs, 0);
    assert!(
        world
            .runtime()
            .traces()
            .active_run(&TraceId::new(now.as_str()))
            .is_none()
    );
    // The copy is complete nevertheless: the call that is open in the source counts as interrupted
    // in the copy (MSG-6).
    write(&world, &now, &[create("own", "x")]).await;
    check_messages(
        &world
            .runtime()
            .traces()
            .messages(&TraceId::new(now.as_str()), MessagePath::Main)
            .await
            .unwrap(),
    );
    gate.pass();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    with_timeout(queued.wait()).await.unwrap();
    assert_eq!(text(&world, &local_owner("s"), "doc").await, "two");
    assert_eq!(names(&world, "s").await, ["doc"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_traces_are_linked_but_cannot_be_continued_in_a_fork() {
    let world = TestRuntime::open(scripted_model(|request| {
        let is_parent = request.tools.iter().any(|tool| tool.name == "agent");
        match (is_parent, assistant_count(request)) {
            (true, _) if last_of(request).starts_with("go on with ") => Turn::call(
                "agent",
                json!({ "task": "x", "continue_from": &last_of(request)["go on with ".len()..] }),
            ),
            (true, 0) => Turn::call("agent", json!({ "task": "look" })),
            (true, _) => Turn::say(last_of(request)),
            (false, _) => Turn::say("found"),
        }
    }))
    .await;
    let run = world
        .runtime()
        .start(
            RunRequest::new("job")
                .mode(RunMode::Orchestrator)
                .session("s"),
        )
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    let below = world
        .runtime()
        .traces()
        .sub_traces(run.trace_id())
        .await
        .unwrap();
    assert_eq!(below.len(), 1);
    let head = world
        .runtime()
        .traces()
        .get(run.trace_id())
        .await
        .unwrap()
        .head_sequence;
    fork(&world, "s", at(head, "f")).await;
    fork(&world, "f", at(head, "g")).await;
    fork(&world, "s", at(2, "early")).await;
    let runtime = world.runtime().clone();
    let linked = |session: &'static str| {
        let runtime = runtime.clone();
        async move {
            let all = runtime
                .traces()
                .sub_traces(&TraceId::new(session))
                .await
                .unwrap();
            all.into_iter()
                .map(|trace| trace.trace_id)
                .collect::<Vec<_>>()
        }
    };
    let child = below[0].trace_id.clone();
    assert_eq!(
        (linked("f").await, linked("g").await),
        (vec![child.clone()], vec![child.clone()])
    );
    assert!(linked("early").await.is_empty(), "it was not there yet");
    let source = world
        .runtime()
        .traces()
        .goal_tree(&TraceId::new("s"))
        .await
        .unwrap();
    let tree = world
        .runtime()
        .traces()
        .goal_tree(&TraceId::new("g"))
        .await
        .unwrap();
    assert_eq!(tree.goals.len(), source.goals.len());
    for (copy, goal) in tree.goals.iter().zip(&source.goals) {
        assert_eq!(
            (&copy.sub_trace_ids, copy.cumulative_stats),
            (&goal.sub_trace_ids, goal.cumulative_stats)
        );
    }
    assert!(outcome.stats.tree.total_tokens > 0);
    assert_eq!(
        world
            .runtime()
            .traces()
            .get(&TraceId::new("g"))
            .await
            .unwrap()
            .total_tokens,
        0,
        "a copy costs nothing"
    );
    // The sub-agent belongs to another session.
    let run = world
        .runtime()
        .start(RunRequest::new(format!("go on with {child}")).session("g"))
        .await
        .unwrap();
    let output = with_timeout(run.wait()).await.unwrap().output.clone();
    assert!(
        output.contains("is not a sub-agent of this trace"),
        "{output}"
    );
    assert_eq!(
        world
            .runtime()
            .traces()
            .get(&child)
            .await
            .unwrap()
            .total_messages,
        below[0].total_messages
    );
    // The fork keeps the mode of the source.
    assert_eq!(
        world
            .runtime()
            .traces()
            .run(run.run_id())
            .await
            .unwrap()
            .mode,
        RunMode::Orchestrator
    );
    world.runtime().sessions().delete(&id("s")).await.unwrap();
    assert!(linked("f").await.is_empty());
    drop(runtime);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_branch_can_be_forked_with_goals_and_documents() {
    let world = TestRuntime::open(prompt_driven_model() as Arc<dyn Model>).await;
    write(&world, "s", &[create("doc", "one")]).await;
    write(
        &world,
        "s",
        &[
            json!(["goal", {"add": ["kept"]}]),
            update("doc", "one", "two"),
        ],
    )
    .await;
    let end = world
        .runtime()
        .traces()
        .get(&TraceId::new("s"))
        .await
        .unwrap()
        .head_sequence;
    let source_before = everything(&world, "s").await;
    let run = world
        .runtime()
        .start(
            RunRequest::new(turns(&[update("doc", "one", "other")]))
                .session("s")
                .after(5),
        )
        .await
        .unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    assert_eq!(text(&world, &local_owner("s"), "doc").await, "other");
    fork(&world, "s", at(end, "f")).await;
    assert_eq!(
        sequences(&world, "f").await,
        (1..=end).collect::<Vec<u64>>()
    );
    assert_eq!(text(&world, &local_owner("f"), "doc").await, "two");
    let goals = |tree: &GoalTree| -> Vec<String> {
        tree.goals
            .iter()
            .map(|goal| goal.description.clone())
            .collect()
    };
    let tree = world
        .runtime()
        .traces()
        .goal_tree(&TraceId::new("f"))
        .await
        .unwrap();
    assert_eq!(goals(&tree), goals(&source_before.3));
    world.finish().await;
}

/// Store that rejects each fork and accepts everything else.
struct NoForks(SqliteStore);

impl Store for NoForks {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        let is_fork = |append: &Append| {
            append
                .writes
                .iter()
                .any(|write| matches!(write, Write::Session(SessionWrite::Fork(_))))
        };
        if batch.iter().any(is_fork) {
            Err(StoreError::Io("no".into()))
        } else {
            self.0.commit(batch)
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_owner_removes_the_files_of_a_failed_fork() {
    let mut world = TestRuntime::with(prompt_driven_model(), |builder| {
        builder.wrap_store(|store| Box::new(NoForks(store)))
    })
    .await;
    write(&world, "s", &[create("doc", "one")]).await;
    let refused = world
        .runtime()
        .sessions()
        .fork(&id("s"), at(5, "f"))
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::StorageError, "{refused}");
    // As long as the disk fails, it is unknown whether the fork was recorded, so the copied bytes
    // are kept.
    let copied = || {
        world
            .home()
            .join("sessions/f/artifacts")
            .read_dir()
            .map_or(0, Iterator::count)
    };
    assert_eq!(copied(), 1);
    world.reopen(prompt_driven_model()).await;
    assert_eq!(
        world
            .home()
            .join("sessions/f/artifacts")
            .read_dir()
            .map_or(0, Iterator::count),
        0
    );
    assert!(world.runtime().sessions().get(&id("f")).await.is_err());
    fork(&world, "s", at(5, "f")).await;
    assert_eq!(text(&world, &local_owner("f"), "doc").await, "one");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_fork_leaves_nothing() {
    let world = TestRuntime::open(prompt_driven_model() as Arc<dyn Model>).await;
    write(&world, "s", &[create("doc", "one")]).await;
    write(&world, "t", &[]).await;
    world
        .runtime()
        .sessions()
        .create(soong::SessionSpec {
            session_id: Some("empty".into()),
            ..Default::default()
        })
        .await
        .unwrap();
    let named = |name: &str| Fork {
        session_id: Some(name.to_owned()),
        ..Fork::default()
    };
    for (source, request, code, says) in [
        (
            "no",
            named("f"),
            ErrorCode::SessionNotFound,
            "there is no session no",
        ),
        (
            "s",
            at(99, "f"),
            ErrorCode::ValidationError,
            "cannot continue after message 99 of s",
        ),
        (
            "s",
            at(0, "f"),
            ErrorCode::ValidationError,
            "cannot continue after message 0 of s",
        ),
        (
            "s",
            named("t"),
            ErrorCode::ValidationError,
            "session t already exists",
        ),
        (
            "s",
            named("s"),
            ErrorCode::ValidationError,
            "session s already exists",
        ),
        ("s", named("a/b"), ErrorCode::ValidationError, "a/b"),
        (
            "empty",
            named("f"),
            ErrorCode::ValidationError,
            "has no messages yet",
        ),
    ] {
        let refused = world
            .runtime()
            .sessions()
            .fork(&id(source), request)
            .await
            .unwrap_err();
        assert!(
            refused.code == code && refused.message.contains(says),
            "{refused}"
        );
    }
    assert!(world.runtime().sessions().get(&id("f")).await.is_err());
    // Two concurrent forks with the same id: one of them succeeds.
    let source = id("s");
    let runtime = world.runtime();
    let (one, other) = tokio::join!(
        runtime.sessions().fork(&source, named("f")),
        runtime.sessions().fork(&source, named("f"))
    );
    assert_eq!([one, other].iter().filter(|made| made.is_ok()).count(), 1);
    // A missing file is reported, and nothing is created.
    let artifact = world
        .runtime()
        .artifacts()
        .list(&local_owner("s"))
        .await
        .unwrap()
        .remove(0);
    std::fs::remove_dir_all(
        world
            .home()
            .join("sessions/s/artifacts")
            .join(artifact.artifact_id.as_str()),
    )
    .unwrap();
    let broken = world
        .runtime()
        .sessions()
        .fork(&id("s"), named("g"))
        .await
        .unwrap_err();
    assert_eq!(broken.code, ErrorCode::StorageError, "{broken}");
    assert!(world.runtime().sessions().get(&id("g")).await.is_err());
    let left = |session: &str| {
        world
            .home()
            .join("sessions")
            .join(session)
            .join("artifacts")
            .read_dir()
            .map_or(0, Iterator::count)
    };
    assert_eq!((left("g"), left("f")), (0, 1), "no bytes without rows");
    let _: ArtifactOwner = world.runtime().artifacts().owner(&id("f")).await.unwrap();
    world.finish().await;
}

/// A run without a message continues a copy as it was when it was made, whatever its source does
/// later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_continues_as_recorded_and_not_as_its_source_is_now() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("done"))).await;
    let runtime = world.runtime();
    let tools = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<String>>()
    };
    let run_to_end = async |request: RunRequest| {
        let run = runtime.start(request).await.unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().status,
            RunStatus::Completed
        );
        run.record().await.unwrap()
    };
    let first = RunRequest::new("one")
        .session("s")
        .system_prompt("First.")
        .tools(["read"]);
    // Messages: 1 system, 2 user, 3 answer.
    run_to_end(first).await;
    fork(&world, "s", at(2, "f")).await;
    fork(&world, "s", at(2, "g")).await;
    let second = RunRequest::new("two")
        .session("s")
        .system_prompt("Second.")
        .tools(["read", "write"]);
    run_to_end(second).await;
    fork(&world, "s", at(2, "h")).await;
    fork(
        &world,
        "s",
        Fork {
            session_id: Some("all".into()),
            ..Fork::default()
        },
    )
    .await;
    for copy in ["f", "h"] {
        let record = run_to_end(RunRequest::resume(copy)).await;
        assert_eq!(
            record.settings.system_prompt.as_deref(),
            Some("First."),
            "{copy}"
        );
        assert_eq!(
            record.settings.options.tools,
            Some(tools(&["read"])),
            "{copy}"
        );
        assert_eq!(record.task, "one", "{copy}");
    }
    // The id of the source is used by another user.
    with_timeout(runtime.sessions().delete(&id("s")))
        .await
        .unwrap();
    run_to_end(
        RunRequest::new("mine")
            .session("s")
            .uid("eve")
            .system_prompt("The secret of Eve."),
    )
    .await;
    let record = run_to_end(RunRequest::resume("g")).await;
    assert_eq!(record.settings.system_prompt.as_deref(), Some("First."));
    assert!(
        !serde_json::to_string(&record).unwrap().contains("Eve"),
        "{record:?}"
    );
    // A copied message of an earlier run than the last copied one, and a copy of a copy.
    runtime.sessions().switch_head(&id("all"), 2).await.unwrap();
    fork(&world, "all", at(2, "again")).await;
    for copy in ["all", "again"] {
        let record = run_to_end(RunRequest::resume(copy)).await;
        assert_eq!(
            record.settings.system_prompt.as_deref(),
            Some("First."),
            "{copy}"
        );
        assert_eq!(
            record.settings.options.tools,
            Some(tools(&["read"])),
            "{copy}"
        );
    }
    world.finish().await;
}

/// Calls that a run returned to its caller are not executed by a copy, whatever its source allows
/// later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_keeps_task_and_execution_of_its_returned_calls() {
    let model = scripted_model(|request| match request.messages.last() {
        Some(message) if message.role == Role::Tool => {
            Turn::say(format!("heard {}", last_of(request)))
        }
        _ => Turn::call("read", json!({"path": "a"})),
    });
    let world = TestRuntime::open(model).await;
    let runtime = world.runtime();
    let returned = RunRequest::new("one")
        .session("s")
        .auto_execute_tools(false);
    // Messages: 1 system, 2 user, 3 the returned call.
    with_timeout(runtime.start(returned).await.unwrap().wait())
        .await
        .unwrap();
    fork(&world, "s", at(3, "f")).await;
    let executed = RunRequest::new("two").session("s").auto_execute_tools(true);
    with_timeout(runtime.start(executed).await.unwrap().wait())
        .await
        .unwrap();
    let result = GivenMessage {
        role: Role::Tool,
        content: "the text".into(),
        tool_call_id: Some("call_0_0".to_owned()),
    };
    let run = runtime
        .start(RunRequest::resume("f").messages([result]))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().output,
        "heard the text"
    );
    let record = run.record().await.unwrap();
    assert_eq!(
        (record.settings.auto_execute_tools, record.task.as_str()),
        (Some(false), "one")
    );
    drop(run);
    world.finish().await;
}
