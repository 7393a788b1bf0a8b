//! Rewinding a conversation, continuing from any of its messages, and the state that is rewound
//! with it (MSG-1 … MSG-6).

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use soong::{
    ErrorCode, MessagePath, RunRequest,
    artifact::ArtifactOwner,
    model::{Model, ModelRequest},
    protocol::{
        Event, GoalStatus, Message, MessageEvent, Role, RunMode, RunStatus, SessionId, TraceId,
    },
};

use crate::support::{
    artifacts::{
        create, listed, local_owner, prompt_driven_model, save, text, turns, update, versions,
    },
    history::{check_messages, check_session, stored},
    model::{ScriptedModel, Turn, assistant_count, is_parent, scripted_model},
    world::{TestRuntime, quick_config, wait_until, with_timeout},
};

/// Model that calls tools in its first turn, adds a goal in its second, and answers in its third
/// with the last user message.
fn busy() -> Arc<ScriptedModel> {
    scripted_model(|request| {
        let user_index = request
            .messages
            .iter()
            .rposition(|message| message.role == Role::User)
            .unwrap();
        let turn = request.messages[user_index..]
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .count();
        let prompt = &request.messages[user_index].content;
        match turn {
            0 => Turn::Call(vec![
                ("read", json!({"path": "a.txt"})),
                ("list_files", json!({})),
            ]),
            1 => Turn::call("goal", json!({ "add": [format!("for {prompt}")] })),
            _ => Turn::say(format!("answer to {prompt}")),
        }
    })
}

async fn path(world: &TestRuntime, session: &str) -> Vec<u64> {
    let messages = world
        .runtime()
        .traces()
        .messages(&TraceId::new(session), MessagePath::Main)
        .await
        .unwrap();
    messages.iter().map(|message| message.sequence).collect()
}

async fn ask(world: &TestRuntime, start: RunRequest) -> Vec<Message> {
    let run = world.runtime().start(start).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
    let messages = world
        .runtime()
        .traces()
        .messages(run.trace_id(), MessagePath::Main)
        .await
        .unwrap();
    check_messages(&messages);
    messages
}

/// (MSG-2)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_type_continues_rewinds_and_asks_again() {
    let world = TestRuntime::open(busy()).await;
    // Messages: 1 system, 2 user, 3 calls, 4 and 5 results, 6 goal call, 7 result, 8 answer.
    let first = ask(&world, RunRequest::new("one").session("s")).await;
    assert_eq!(
        first
            .iter()
            .map(|message| message.sequence)
            .collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6, 7, 8]
    );
    // Continue: without a position, or after the last message.
    ask(&world, RunRequest::new("two").session("s")).await;
    assert_eq!(path(&world, "s").await, (1..=15).collect::<Vec<u64>>());
    ask(&world, RunRequest::new("three").session("s").after(15)).await;
    assert_eq!(path(&world, "s").await, (1..=22).collect::<Vec<u64>>());
    // Rewind: the later messages are kept, but not on the main path.
    let back = ask(&world, RunRequest::new("other").session("s").after(8)).await;
    assert_eq!(
        path(&world, "s").await,
        (1..=8).chain(23..=29).collect::<Vec<u64>>()
    );
    assert_eq!(back.last().unwrap().content, "answer to other");
    let all = world
        .runtime()
        .traces()
        .messages(&TraceId::new("s"), MessagePath::All)
        .await
        .unwrap();
    assert_eq!(all.len(), 29);
    // Ask again: the same question gets another answer.
    ask(&world, RunRequest::resume("s").after(23)).await;
    assert_eq!(
        path(&world, "s").await,
        (1..=8).chain([23]).chain(30..=35).collect::<Vec<u64>>()
    );
    let run = world
        .runtime()
        .traces()
        .get(&TraceId::new("s"))
        .await
        .unwrap();
    assert_eq!((run.head_sequence, run.last_sequence), (35, 35));

    // Any other request is rejected, and nothing changes.
    let events = stored(world.runtime(), &TraceId::new("s")).await.len();
    for (start, why) in [
        (RunRequest::new("x").session("s").after(9), "off the path"),
        (RunRequest::new("x").session("s").after(99), "not there"),
        (RunRequest::new("x").session("s").after(0), "no message"),
        (
            RunRequest::new("x").session("new").after(1),
            "no conversation",
        ),
        (RunRequest::new("x").after(1), "no session"),
        (RunRequest::resume("s"), "ends with an answer"),
        (RunRequest::resume("s").after(35), "ends with an answer"),
        (RunRequest::resume("s").after(8), "a finished answer"),
        (
            RunRequest::resume("s").after(1),
            "nobody has asked anything yet",
        ),
    ] {
        let refused = world.runtime().start(start).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::ValidationError, "{why}: {refused}");
    }
    assert_eq!(
        stored(world.runtime(), &TraceId::new("s")).await.len(),
        events
    );
    assert!(
        world
            .runtime()
            .sessions()
            .get(&SessionId::new("new"))
            .await
            .is_err()
    );
    world.finish().await;
}

/// (MSG-3)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rewind_into_calls_moves_after_their_last_result() {
    for (asked_for, lands) in [(3, 5), (4, 5), (5, 5), (6, 7)] {
        let world = TestRuntime::open(busy()).await;
        ask(&world, RunRequest::new("one").session("s")).await;
        ask(&world, RunRequest::resume("s").after(asked_for)).await;
        let sequences = path(&world, "s").await;
        assert!(
            sequences.starts_with(&(1..=lands).collect::<Vec<u64>>())
                && sequences[lands as usize] == 9
        );
        let events = stored(world.runtime(), &TraceId::new("s")).await;
        let recorded = events.iter().find_map(|event| match &event.event {
            Event::Message(MessageEvent::Rewind {
                after_sequence,
                head_sequence,
                from_sequence,
                ..
            }) => Some((*after_sequence, *head_sequence, *from_sequence)),
            _ => None,
        });
        assert_eq!(recorded, Some((asked_for, lands, 8)));
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_message_keeps_its_goal_and_the_next_has_its_own() {
    let model = scripted_model(|request| {
        let user_index = request
            .messages
            .iter()
            .rposition(|message| message.role == Role::User)
            .unwrap();
        let is_first = request.messages[user_index..]
            .iter()
            .all(|message| message.role != Role::Assistant);
        match (is_first, request.messages[user_index].content.as_str()) {
            (true, _) => Turn::call("read", json!({"path": "a.txt"})),
            (false, "one") => Turn::Hang("half"),
            _ => Turn::say("done"),
        }
    });
    let world = TestRuntime::open(model.clone()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("one").session("s"))
        .await
        .unwrap();
    wait_until("the second turn", || {
        model.in_flight() == 1 && model.calls() == 2
    })
    .await;
    with_timeout(run.cancel()).await.unwrap();
    ask(&world, RunRequest::new("two").session("s")).await;
    let goals = async || {
        let tree = world
            .runtime()
            .traces()
            .goal_tree(&TraceId::new("s"))
            .await
            .unwrap();
        tree.goals
            .into_iter()
            .map(|goal| (goal.description, goal.status, goal.summary))
            .collect::<Vec<_>>()
    };
    let some = |text: &str| Some(text.to_owned());
    let after_two = [
        (
            "one".to_owned(),
            GoalStatus::Abandoned,
            some("its run ended without an answer"),
        ),
        ("two".to_owned(), GoalStatus::Completed, some("done")),
    ];
    assert_eq!(goals().await, after_two);
    ask(&world, RunRequest::new("three").session("s")).await;
    assert_eq!(
        goals().await,
        after_two,
        "after a finished message there is no goal for the next"
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (MSG-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collaborators_are_rewound_with_the_conversation() {
    let requests: Arc<Mutex<Vec<ModelRequest>>> = Arc::default();
    let log = Arc::clone(&requests);
    let asked_last = |request: &ModelRequest| {
        let texts = request
            .messages
            .iter()
            .rev()
            .map(|message| message.content.as_str());
        texts
            .into_iter()
            .find(|text| ["one", "two", "three"].contains(text))
            .map(str::to_owned)
    };
    let delegating = scripted_model(move |request| {
        log.lock().unwrap().push(request.clone());
        let user_index = request
            .messages
            .iter()
            .rposition(|message| message.role == Role::User)
            .unwrap();
        match request.messages[user_index..]
            .iter()
            .any(|message| message.role == Role::Assistant)
        {
            false if is_parent(request) => {
                let task = format!("look {}", asked_last(request).unwrap());
                Turn::call("agent", json!({"task": task, "agent_type": "default"}))
            }
            _ => Turn::say("done"),
        }
    });
    let mut config = quick_config();
    config.context.inject_every_turns = 1;
    let mut world = TestRuntime::with(delegating.clone(), |builder| builder.config(config)).await;
    let trace = TraceId::new("s");
    let known = async |world: &TestRuntime| -> Vec<String> {
        let stored = world
            .runtime()
            .traces()
            .get(&trace)
            .await
            .unwrap()
            .context
            .collaborators;
        stored
            .into_iter()
            .map(|collaborator| collaborator.name)
            .collect()
    };
    let first = ask(&world, RunRequest::new("one").session("s"))
        .await
        .last()
        .unwrap()
        .sequence;
    let of_first = known(&world).await;
    let second = ask(&world, RunRequest::new("two").session("s"))
        .await
        .last()
        .unwrap()
        .sequence;
    let both = known(&world).await;
    assert_eq!((of_first.len(), both.len()), (1, 2));
    // A collaborator that started after the position is no longer named, neither to the model nor
    // in the record.
    ask(&world, RunRequest::new("three").session("s").after(first)).await;
    let after = known(&world).await;
    assert_eq!((after.len(), &after[0]), (2, &of_first[0]));
    assert!(!after.contains(&both[1]), "{after:?}");
    let requests = std::mem::take(&mut *requests.lock().unwrap());
    let is_named = |request: &&ModelRequest| {
        let says = |text: &str| request.system_and_context().contains(text);
        is_parent(request) && says("Active Collaborators") && says(&both[1])
    };
    let of = |task: &'static str| {
        requests
            .iter()
            .filter(move |request| asked_last(request).as_deref() == Some(task))
    };
    assert!(
        of("two").any(|request| is_named(&request))
            && !of("three").any(|request| is_named(&request))
    );
    // Another branch has its own collaborators again, also after a restart.
    world
        .runtime()
        .sessions()
        .switch_head(&SessionId::new("s"), second)
        .await
        .unwrap();
    world.reopen(delegating).await;
    assert_eq!(known(&world).await, both);
    world.finish().await;
}

/// (MSG-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goals_are_rewound_by_sequence_and_ids_are_not_reused() {
    let world = TestRuntime::open(busy()).await;
    ask(&world, RunRequest::new("one").session("s")).await;
    ask(&world, RunRequest::new("two").session("s")).await;
    let trace = TraceId::new("s");
    let goals = |tree: &soong::protocol::GoalTree| -> Vec<(String, String)> {
        tree.goals
            .iter()
            .map(|goal| (goal.id.to_string(), goal.description.clone()))
            .collect()
    };
    let before = world.runtime().traces().goal_tree(&trace).await.unwrap();
    assert_eq!(
        before.goals.len(),
        3,
        "the mission, and one for each run: {:?}",
        goals(&before)
    );
    ask(&world, RunRequest::new("three").session("s").after(8)).await;
    let after = world.runtime().traces().goal_tree(&trace).await.unwrap();
    let known: Vec<_> = goals(&after).into_iter().map(|(id, _)| id).collect();
    assert_eq!(known, ["1", "2", "4"], "3 is not given again");
    let events = stored(world.runtime(), &trace).await;
    let snapshot = events.iter().find_map(|event| match &event.event {
        Event::Message(MessageEvent::Rewind {
            goal_tree_snapshot, ..
        }) => Some(goals(goal_tree_snapshot)),
        _ => None,
    });
    assert_eq!(
        snapshot,
        Some(goals(&before)),
        "the snapshot has the whole old tree"
    );
    // Before any goal: the next goal call creates the mission again.
    ask(&world, RunRequest::new("four").session("s").after(2)).await;
    let tree = world.runtime().traces().goal_tree(&trace).await.unwrap();
    assert!(
        tree.goals
            .iter()
            .all(|goal| goal.id.as_str().parse::<u64>().unwrap() > 4),
        "{:?}",
        goals(&tree)
    );
    world.finish().await;
}

/// (MSG-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goal_in_progress_becomes_pending_after_a_rewind() {
    let world = TestRuntime::open(scripted_model(|request| match assistant_count(request) {
        0 => Turn::call("goal", json!({ "add": ["a", "b"], "focus": "2" })),
        1 => Turn::call("goal", json!({ "done": "did it", "focus": "1" })),
        _ => Turn::say("ok"),
    }))
    .await;
    ask(&world, RunRequest::new("one").session("s")).await;
    world
        .runtime()
        .sessions()
        .switch_head(&SessionId::new("s"), 4)
        .await
        .unwrap();
    let tree = world
        .runtime()
        .traces()
        .goal_tree(&TraceId::new("s"))
        .await
        .unwrap();
    let statuses: Vec<_> = tree.goals.iter().map(|goal| goal.status).collect();
    assert_eq!(
        statuses,
        [GoalStatus::Pending, GoalStatus::Pending],
        "the second was in progress then"
    );
    assert_eq!(
        (tree.current_id, tree.goals[1].summary.clone()),
        (None, None)
    );
    // Forward again.
    world
        .runtime()
        .sessions()
        .switch_head(&SessionId::new("s"), 7)
        .await
        .unwrap();
    let tree = world
        .runtime()
        .traces()
        .goal_tree(&TraceId::new("s"))
        .await
        .unwrap();
    let statuses: Vec<_> = tree.goals.iter().map(|goal| goal.status).collect();
    assert_eq!(statuses, [GoalStatus::Pending, GoalStatus::Completed]);
    world.finish().await;
}

fn here() -> ArtifactOwner {
    local_owner("s")
}

async fn names(world: &TestRuntime) -> Vec<String> {
    let all = world.runtime().artifacts().list(&here()).await.unwrap();
    all.into_iter()
        .filter_map(|artifact| artifact.name)
        .collect()
}

/// Runs these calls in the session, one per turn.
async fn write(world: &TestRuntime, start: RunRequest, calls: &[Value]) {
    let run = world
        .runtime()
        .start(RunRequest {
            message: Some(turns(calls).into()),
            ..start
        })
        .await
        .unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Completed
    );
}

/// (MSG-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_follow_the_conversation_back_and_forward() {
    let world = TestRuntime::open(prompt_driven_model() as Arc<dyn Model>).await;
    let s = || RunRequest::default().session("s");
    // Messages: 1 system, 2 user, 3 create, 4 result, 5 update, 6 result, 7 answer.
    write(
        &world,
        s(),
        &[create("doc", "one"), update("doc", "one", "two")],
    )
    .await;
    write(
        &world,
        s(),
        &[update("doc", "two", "three"), create("late", "x")],
    )
    .await;
    assert_eq!(text(&world, &here(), "doc").await, "three");
    let before = versions(&world, &here(), "doc").await;
    assert_eq!(before, [2, 3]);

    // Back to the first result, in the middle of a run: the edit before it is kept.
    let switched = world
        .runtime()
        .sessions()
        .switch_head(&SessionId::new("s"), 4)
        .await
        .unwrap();
    assert_eq!(
        (switched.sequence, switched.restored.as_slice()),
        (4, ["doc".to_owned(), "late".to_owned()].as_slice())
    );
    assert_eq!(text(&world, &here(), "doc").await, "one");
    assert_eq!(
        names(&world).await,
        ["doc"],
        "what was not made yet is not there"
    );
    assert_eq!(
        versions(&world, &here(), "doc").await,
        before,
        "no version is lost, and none made yet"
    );
    // The name is free, and a model can use it.
    write(
        &world,
        s(),
        &[create("late", "y"), update("doc", "one", "four")],
    )
    .await;
    assert_eq!(text(&world, &here(), "doc").await, "four");
    assert_eq!(text(&world, &here(), "late").await, "y");
    let after = versions(&world, &here(), "doc").await;
    assert!(
        after.starts_with(&before) && after.len() == 3,
        "the next version is the highest: {after:?}"
    );

    // Forward to the end of the abandoned branch: its documents have their former text again.
    let end = 13;
    let all = world
        .runtime()
        .traces()
        .messages(&TraceId::new("s"), MessagePath::All)
        .await
        .unwrap();
    assert_eq!(all[end - 1].role, Role::Assistant);
    world
        .runtime()
        .sessions()
        .switch_head(&SessionId::new("s"), end as u64)
        .await
        .unwrap();
    assert_eq!(text(&world, &here(), "doc").await, "three");
    assert_eq!(text(&world, &here(), "late").await, "x");
    // A run without edits stores the restored text.
    write(&world, s(), &[]).await;
    assert!(!listed(&world, &here(), "doc").await.dirty);
    let last = versions(&world, &here(), "doc").await;
    assert_eq!(last.len(), 4);
    // A run that starts with a rewind restores the documents as well.
    write(&world, s().after(4), &[]).await;
    assert_eq!(
        (
            text(&world, &here(), "doc").await.as_str(),
            names(&world).await.len()
        ),
        ("one", 1)
    );
    world.finish().await;
}

/// (MSG-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_writes_by_others_are_kept() {
    let world = TestRuntime::open(prompt_driven_model() as Arc<dyn Model>).await;
    let s = || RunRequest::default().session("s");
    write(
        &world,
        s(),
        &[
            create("doc", "one"),
            create("mine", "a"),
            create("user:own", "1"),
        ],
    )
    .await;
    write(
        &world,
        s(),
        &[
            update("doc", "one", "two"),
            update("mine", "a", "b"),
            update("user:own", "1", "2"),
        ],
    )
    .await;
    save(&world, &here(), "doc", "theirs").await;
    let switched = world
        .runtime()
        .sessions()
        .switch_head(&SessionId::new("s"), 8)
        .await
        .unwrap();
    assert_eq!(
        (switched.restored, switched.not_restored),
        (vec!["mine".to_owned()], vec!["doc".to_owned()])
    );
    assert_eq!(text(&world, &here(), "doc").await, "theirs");
    assert_eq!(text(&world, &here(), "mine").await, "a");
    assert_eq!(
        text(&world, &here(), "user:own").await,
        "2",
        "the user's own do not move"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_moves_only_while_no_run_is_active() {
    let model = scripted_model(|request| match request.messages.len() {
        1 => Turn::say("first"),
        _ => Turn::Hang("half"),
    });
    let world = TestRuntime::open(model.clone()).await;
    ask(&world, RunRequest::new("one").session("s")).await;
    let run = world
        .runtime()
        .start(RunRequest::new("two").session("s"))
        .await
        .unwrap();
    wait_until("it thinks", || model.in_flight() == 1).await;
    let id = SessionId::new("s");
    assert_eq!(
        world
            .runtime()
            .sessions()
            .switch_head(&id, 2)
            .await
            .unwrap_err()
            .code,
        ErrorCode::SessionActive
    );
    let back = world
        .runtime()
        .start(RunRequest::new("x").session("s").after(2))
        .await
        .unwrap_err();
    assert_eq!(
        back.code,
        ErrorCode::SessionActive,
        "where the head will be, nobody can say"
    );
    with_timeout(run.cancel()).await.unwrap();
    // A run cannot continue from a partial message.
    let all = world
        .runtime()
        .traces()
        .messages(&TraceId::new("s"), MessagePath::All)
        .await
        .unwrap();
    let cut = all.iter().find(|message| message.partial).unwrap().sequence;
    assert_eq!(
        world
            .runtime()
            .sessions()
            .switch_head(&id, cut)
            .await
            .unwrap_err()
            .code,
        ErrorCode::ValidationError
    );
    let switched = world
        .runtime()
        .sessions()
        .switch_head(&id, 2)
        .await
        .unwrap();
    assert_eq!((switched.sequence, switched.from_sequence), (2, 4));
    assert_eq!(
        world
            .runtime()
            .sessions()
            .switch_head(&id, 2)
            .await
            .unwrap()
            .from_sequence,
        2,
        "again changes nothing"
    );
    assert_eq!(
        world
            .runtime()
            .sessions()
            .switch_head(&SessionId::new("no"), 2)
            .await
            .unwrap_err()
            .code,
        ErrorCode::SessionNotFound
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_agent_continues_where_it_stopped() {
    let world = TestRuntime::open(scripted_model(|request| {
        let is_parent = request.tools.iter().any(|tool| tool.name == "agent");
        match (is_parent, assistant_count(request)) {
            (true, 0) => Turn::call("agent", json!({ "task": "look" })),
            (true, 1) => {
                let result: Value =
                    serde_json::from_str(&request.messages.last().unwrap().content).unwrap();
                Turn::call(
                    "agent",
                    json!({ "task": "look closer", "continue_from": result["sub_trace_id"] }),
                )
            }
            (true, 2) => Turn::call(
                "agent",
                json!({ "task": "x", "continue_from": "elsewhere" }),
            ),
            (true, _) => Turn::say(
                request
                    .messages
                    .iter()
                    .map(|message| message.content.as_str())
                    .collect::<String>(),
            ),
            (false, _) => Turn::say(format!(
                "said with {} messages before",
                request.messages.len()
            )),
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
    for want in [
        "said with 1 messages",
        "said with 3 messages",
        "elsewhere is not a sub-agent of this trace",
    ] {
        assert!(outcome.output.contains(want), "{}", outcome.output);
    }
    let children = run.children().await.unwrap();
    assert_eq!(children.len(), 2);
    assert_eq!(children[0].trace_id, children[1].trace_id);
    let trace = world
        .runtime()
        .traces()
        .get(&children[0].trace_id)
        .await
        .unwrap();
    assert_eq!(trace.total_messages, 5, "system, two tasks, two answers");
    let own = outcome.stats.tree.total_tokens - outcome.stats.own.total_tokens;
    assert_eq!(trace.total_tokens, own, "what it used adds up");
    world.finish().await;
}

/// A run without a message has the settings of the run that wrote the message which it continues
/// after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_without_a_message_has_the_settings_of_the_author_of_the_head() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("done"))).await;
    let runtime = world.runtime();
    let session = SessionId::new("s");
    let run_to_end = async |request: RunRequest| {
        let run = runtime.start(request).await.unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().status,
            RunStatus::Completed
        );
        run.record().await.unwrap().settings
    };
    run_to_end(
        RunRequest::new("one")
            .session("s")
            .system_prompt("First.")
            .tools(["read"]),
    )
    .await;
    let second = RunRequest::new("two")
        .session("s")
        .system_prompt("Second.")
        .tools(["read", "write"])
        .deny("bash");
    run_to_end(second).await;
    let messages = runtime
        .traces()
        .messages(&TraceId::new("s"), MessagePath::Main)
        .await
        .unwrap();
    let sequence_of = |text: &str| {
        messages
            .iter()
            .find(|message| message.content == text)
            .unwrap()
            .sequence
    };
    for (text, prompt, tools) in [("one", "First.", 1), ("two", "Second.", 2)] {
        runtime
            .sessions()
            .switch_head(&session, sequence_of(text))
            .await
            .unwrap();
        let settings = run_to_end(RunRequest::resume("s")).await;
        assert_eq!(settings.system_prompt.as_deref(), Some(prompt), "{text}");
        assert_eq!(
            settings.options.tools.as_ref().map(Vec::len),
            Some(tools),
            "{text}"
        );
        assert_eq!(
            settings.permissions.deny,
            ["bash"],
            "{text}: deny rules are those of the session"
        );
    }
    // With a message, a run has the settings of the last run, wherever the head is.
    runtime
        .sessions()
        .switch_head(&session, sequence_of("one"))
        .await
        .unwrap();
    let settings = run_to_end(RunRequest::new("more").session("s")).await;
    assert_eq!(settings.system_prompt.as_deref(), Some("Second."));
    world.finish().await;
}
