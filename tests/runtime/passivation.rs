//! Passivation: runs that have waited for a long time have no actor, and only the tree shows it
//! (ACT-7).

use std::{collections::HashMap, sync::Arc, time::Duration};

use serde_json::json;
use soong::{
    ActorKind, ActorView, ChildSpec, ErrorCode, RunRequest, Runtime,
    model::ModelRequest,
    protocol::{Config, Question, QuestionStatus, RunMode, RunStatus, SessionId},
};

use crate::support::{
    history::check_session,
    model::{ScriptedModel, Turn, assistant_count, is_parent, last_of, scripted_model, task_of},
    world::{
        TestRuntime, kinds, quick_config, read_to_end, wait_for_questions, wait_until, with_timeout,
    },
};

/// Configuration that passivates waiting runs immediately.
fn impatient() -> Config {
    let mut config = quick_config();
    config.runtime.idle_session_s = 0;
    config
}

/// Model: a run with the task `ask` asks the user; a run with the task `split` has its descendants
/// ask. Both answer with their results.
fn asking() -> Arc<ScriptedModel> {
    scripted_model(
        |request: &ModelRequest| match (task_of(request), assistant_count(request)) {
            ("split", 0) => Turn::call(
                "agent",
                json!({"task": "split again", "agent_type": "default"}),
            ),
            ("split again", 0) => Turn::call(
                "agent",
                json!({"task": ["ask", "ask"], "agent_type": "default"}),
            ),
            ("ask", 0) => Turn::call("ask_human", json!({"question": "which colour?"})),
            _ => Turn::say(format!("heard {}", last_of(request))),
        },
    )
}

async fn world(model: Arc<ScriptedModel>, change: impl FnOnce(&mut Config)) -> TestRuntime {
    let mut config = impatient();
    change(&mut config);
    TestRuntime::with(model, |builder| builder.config(config)).await
}

/// Returns for each run in the tree whether it is passivated.
fn passive(runtime: &Runtime) -> HashMap<String, bool> {
    fn collect(actor: &ActorView, found: &mut HashMap<String, bool>) {
        if let Some(run) = &actor.run {
            found.insert(actor.id.clone(), run.passive);
        }
        actor
            .children
            .iter()
            .for_each(|child| collect(child, found));
    }
    let mut found = HashMap::new();
    collect(&runtime.tree().snapshot().unwrap(), &mut found);
    found
}

async fn wait_until_passivated(runtime: &Runtime, count: usize) {
    let is_passivated = || {
        let runs = passive(runtime);
        runs.len() == count && runs.values().all(|passive| *passive)
    };
    wait_until("the actors of runs that wait are stopped", is_passivated).await;
}

async fn answer(runtime: &Runtime, question: &Question, answer: &str) {
    runtime
        .questions()
        .answer(&question.question_id, answer)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_waiting_for_user_has_no_actor_and_resumes_on_answer() {
    let model = asking();
    let world = world(model.clone(), |_| {}).await;
    let runtime = world.runtime();
    let run = runtime
        .start(RunRequest::new("ask").session("s"))
        .await
        .unwrap();
    let question = with_timeout(wait_for_questions(runtime, 1)).await.remove(0);
    wait_until_passivated(runtime, 1).await;
    let tree = serde_json::to_string(&runtime.tree().snapshot()).unwrap();
    assert!(
        tree.contains("\"state\":\"waiting\"") && tree.contains("\"activity\":\"an answer\""),
        "{tree}"
    );
    assert!(
        runtime.sessions().awaits_input(run.session_id()),
        "it waits for people, and for nothing else"
    );
    let refused = runtime
        .start(RunRequest::new("x").session("s").reject_if_busy())
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::SessionActive);
    assert!(refused.message.contains("waiting for input"), "{refused}");
    // Another run of the session is queued, as if the first run had an actor.
    let next = runtime
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap();
    assert_eq!(
        runtime.traces().run(next.run_id()).await.unwrap().status,
        RunStatus::Queued
    );
    answer(runtime, &question, "red").await;
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "heard red");
    assert_eq!(
        with_timeout(next.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    let events = read_to_end(run.events().unwrap()).await;
    let unexpected = ["run_recovered", "actor_restarted"];
    assert!(
        !kinds(&events).iter().any(|kind| unexpected.contains(kind)),
        "{:?}",
        kinds(&events)
    );
    assert_eq!(
        kinds(&events)
            .iter()
            .filter(|kind| **kind == "model_started")
            .count(),
        2
    );
    check_session(runtime, run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_tree_is_reactivated_from_leaves_to_root() {
    // One slot, for which every reactivated run has to wait.
    let world = world(asking(), |config| {
        config.agents.max_concurrent_children_per_session = 1;
        config.agents.max_depth = 3;
    })
    .await;
    let runtime = world.runtime();
    let run = runtime
        .start(
            RunRequest::new("split")
                .session("s")
                .mode(RunMode::Orchestrator),
        )
        .await
        .unwrap();
    let questions = with_timeout(wait_for_questions(runtime, 2)).await;
    wait_until_passivated(runtime, 4).await;
    answer(runtime, &questions[1], "blue").await;
    let second = questions[1].run_id.clone();
    while runtime.traces().run(&second).await.unwrap().status != RunStatus::Completed {
        tokio::task::yield_now().await;
    }
    wait_until_passivated(runtime, 3).await;
    assert!(runtime.sessions().awaits_input(run.session_id()));
    answer(runtime, &questions[0], "red").await;
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert!(
        outcome.output.contains("heard red") && outcome.output.contains("heard blue"),
        "{}",
        outcome.output
    );
    check_session(runtime, run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passivated_runs_can_be_cancelled_crash_and_wait_again() {
    let mut world = world(asking(), |config| config.agents.max_depth = 3).await;
    let start = || RunRequest::new("split").mode(RunMode::Orchestrator);
    let cancelled = world
        .runtime()
        .start(start().session("cancelled"))
        .await
        .unwrap();
    let parked = world
        .runtime()
        .start(start().session("parked"))
        .await
        .unwrap();
    let questions = with_timeout(wait_for_questions(world.runtime(), 4)).await;
    wait_until_passivated(world.runtime(), 8).await;
    with_timeout(cancelled.cancel()).await.unwrap();
    assert_eq!(
        with_timeout(cancelled.wait()).await.unwrap().status,
        RunStatus::Cancelled
    );
    for question in questions
        .iter()
        .filter(|question| question.session_id == *cancelled.session_id())
    {
        let question = world
            .runtime()
            .questions()
            .get(&question.question_id)
            .await
            .unwrap();
        assert_eq!(question.status, QuestionStatus::Withdrawn);
    }
    check_session(world.runtime(), cancelled.session_id()).await;
    for actor in [
        "sub_agent_supervisor:parked",
        "run_supervisor:parked",
        "session:parked",
    ] {
        wait_until_passivated(world.runtime(), 4).await;
        world.runtime().tree().inject_crash(actor).unwrap();
        let restarts = || {
            serde_json::to_string(&world.runtime().tree().snapshot())
                .unwrap()
                .contains("the session's actor crashed")
        };
        wait_until("it comes back", || {
            restarts() || passive(world.runtime()).values().any(|passive| !passive)
        })
        .await;
    }
    wait_until_passivated(world.runtime(), 4).await;
    world
        .reopen_with(asking(), |builder| builder.config(impatient()))
        .await;
    let open: Vec<Question> = with_timeout(wait_for_questions(world.runtime(), 2)).await;
    assert!(
        open.iter().all(|question| questions.contains(question)),
        "they are not asked again"
    );
    let activated = world.runtime().traces().handle(parked.run_id()).unwrap();
    for question in &open {
        answer(world.runtime(), question, "green").await;
    }
    assert!(
        with_timeout(activated.wait())
            .await
            .unwrap()
            .output
            .contains("heard green")
    );
    check_session(world.runtime(), &SessionId::new("parked")).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_stops_while_waiting_for_user_but_not_for_children() {
    let model = scripted_model(|request| {
        match (
            is_parent(request),
            task_of(request),
            assistant_count(request),
        ) {
            (_, "ask", 0) => Turn::call("ask_human", json!({"question": "?"})),
            (true, _, 0) => Turn::call("agent", json!({"task": "hang", "agent_type": "default"})),
            (false, "hang", _) => Turn::Hang("half of it"),
            _ => Turn::say(last_of(request)),
        }
    });
    let world = world(model, |_| {}).await;
    let runtime = world.runtime();
    let start = |task, mode| {
        RunRequest::new(task)
            .mode(mode)
            .timeout(Duration::from_millis(300))
    };
    let asks = runtime.start(start("ask", RunMode::Normal)).await.unwrap();
    let splits = runtime
        .start(start("split", RunMode::Orchestrator))
        .await
        .unwrap();
    let question = with_timeout(wait_for_questions(runtime, 1)).await.remove(0);
    let outcome = with_timeout(splits.wait()).await.unwrap();
    assert_eq!(
        outcome.error.as_ref().map(|error| error.code),
        Some(ErrorCode::Timeout),
        "{outcome:?}"
    );
    check_session(runtime, splits.session_id()).await;
    // The timeout of the other run would have expired by now as well.
    wait_until_passivated(runtime, 1).await;
    answer(runtime, &question, "red").await;
    let outcome = with_timeout(asks.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "red")
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_adds_children_to_a_passivated_run() {
    let world = world(asking(), |_| {}).await;
    let runtime = world.runtime();
    let run = runtime.start(RunRequest::driven("drive")).await.unwrap();
    let first = run.spawn(ChildSpec::new("ask")).await.unwrap();
    let question = with_timeout(wait_for_questions(runtime, 1)).await.remove(0);
    wait_until_passivated(runtime, 2).await;
    let second = run.spawn(ChildSpec::new("x")).await.unwrap();
    assert_eq!(
        with_timeout(second.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    wait_until_passivated(runtime, 2).await;
    run.finish("done").unwrap();
    answer(runtime, &question, "red").await;
    assert_eq!(
        with_timeout(first.wait()).await.unwrap().output,
        "heard red"
    );
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "done");
    check_session(runtime, run.session_id()).await;
    world.finish().await;
}

/// (GOAL-3)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goal_summary_counts_children_ended_during_passivation() {
    let go = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&go);
    let model =
        scripted_model(
            move |request| match (is_parent(request), assistant_count(request)) {
                (true, 0) => Turn::call("agent", json!({"task": ["a", "b"]})),
                (true, _) => Turn::say(last_of(request)),
                _ => Turn::When(Arc::clone(&signal), format!("found {}", task_of(request))),
            },
        );
    let world = world(model.clone(), |_| {}).await;
    let runtime = world.runtime();
    for _ in 0..20 {
        let run = runtime
            .start(RunRequest::new("look").mode(RunMode::Orchestrator))
            .await
            .unwrap();
        let id = run.run_id().as_str();
        let waits =
            || model.in_flight() == 2 && passive(runtime).get(id).is_some_and(|passive| *passive);
        wait_until("the children are at work, and their parent has left", waits).await;
        // Both children end together, before their parent is reactivated.
        go.notify_waiters();
        with_timeout(run.wait()).await.unwrap();
        let tree = runtime.traces().goal_tree(run.trace_id()).await.unwrap();
        let summary = tree.goals[0].summary.as_deref().unwrap_or_default();
        assert!(
            summary.starts_with("2 of 2 sub-agents completed"),
            "{summary}"
        );
        check_session(runtime, run.session_id()).await;
    }
    world.finish().await;
}

/// Answers and cancels a run at the moment when its actor may be passivated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_during_passivation_are_not_lost() {
    let world = world(asking(), |_| {}).await;
    let runtime = world.runtime();
    let round = |round: u64| async move {
        let run = runtime
            .start(RunRequest::new("split again").mode(RunMode::Orchestrator))
            .await
            .unwrap();
        let mut own = Vec::new();
        while own.len() < 2 {
            tokio::task::yield_now().await;
            let filter = soong::QuestionFilter {
                session_id: Some(run.session_id().clone()),
                ..Default::default()
            };
            own = runtime.questions().list(filter).await.unwrap();
        }
        // A moment during or around the passivation of an actor.
        tokio::time::sleep(Duration::from_micros(round * 397 % 45_000)).await;
        let results = match round % 3 {
            0 => {
                futures::future::join_all(
                    own.iter().map(|question| answer(runtime, question, "red")),
                )
                .await;
                2
            }
            1 => {
                answer(runtime, &own[0], "red").await;
                let other = runtime.traces().handle(&own[1].run_id).unwrap();
                with_timeout(other.cancel()).await.unwrap();
                1
            }
            _ => {
                with_timeout(run.cancel()).await.unwrap();
                0
            }
        };
        let outcome = with_timeout(run.wait()).await.unwrap();
        let expected = if results == 0 {
            RunStatus::Cancelled
        } else {
            RunStatus::Completed
        };
        assert_eq!(outcome.status, expected, "round {round}: {outcome:?}");
        assert_eq!(
            outcome.output.matches("heard red").count(),
            results,
            "round {round}: {}",
            outcome.output
        );
        check_session(runtime, run.session_id()).await;
    };
    for rounds in (0..240).collect::<Vec<u64>>().chunks(12) {
        futures::future::join_all(rounds.iter().map(|number| round(*number))).await;
    }
    world.finish().await;
}

/// Returns the sessions that have an actor, sorted.
fn sessions_in_memory(runtime: &Runtime) -> Vec<String> {
    fn collect(actor: &ActorView, found: &mut Vec<String>) {
        if actor.kind == ActorKind::Session {
            found.push(actor.id.clone());
        }
        actor
            .children
            .iter()
            .for_each(|child| collect(child, found));
    }
    let mut found = Vec::new();
    collect(&runtime.tree().snapshot().unwrap(), &mut found);
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn longest_idle_sessions_are_passivated_beyond_the_limit() {
    let mut config = quick_config();
    config.runtime.max_idle_sessions = 2;
    let model = scripted_model(|request: &ModelRequest| match task_of(request) {
        "ask" if assistant_count(request) == 0 => {
            Turn::call("ask_human", json!({"question": "which colour?"}))
        }
        _ => Turn::say("done"),
    });
    let world = TestRuntime::with(model, |builder| builder.config(config)).await;
    let runtime = world.runtime();
    let busy = runtime
        .start(RunRequest::new("ask").session("busy"))
        .await
        .unwrap();
    let question = with_timeout(wait_for_questions(runtime, 1)).await.remove(0);
    let run = async |session: &str| {
        let run = runtime
            .start(RunRequest::new("x").session(session))
            .await
            .unwrap();
        with_timeout(run.wait()).await.unwrap();
    };
    for (session, want) in [
        ("a", &["a", "busy"][..]),
        ("b", &["a", "b", "busy"]),
        ("a", &["a", "b", "busy"]),
        ("c", &["a", "busy", "c"]),
        ("b", &["b", "busy", "c"]),
    ] {
        run(session).await;
        wait_until("the session that is idle longest is passivated", || {
            sessions_in_memory(runtime) == want
        })
        .await;
    }
    answer(runtime, &question, "red").await;
    with_timeout(busy.wait()).await.unwrap();
    wait_until("the busy session counts once it is idle", || {
        sessions_in_memory(runtime) == ["b", "busy"]
    })
    .await;
    world.finish().await;
}
