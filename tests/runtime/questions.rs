//! Questions to users: stored questions, runs that wait for answers, answers before and after a
//! restart (SUB-9, SUB-11).

use std::sync::Arc;

use serde_json::{Value, json};
use soong::{
    ErrorCode, RunRequest, Runtime,
    model::ModelRequest,
    protocol::{
        CollaboratorKind, CollaboratorStatus, QuestionId, QuestionStatus, RunId, RunStatus, TraceId,
    },
};

use crate::support::{
    history::check_session,
    model::{ScriptedModel, Turn, assistant_count, is_parent, last_of, scripted_model, task_of},
    world::{
        TestRuntime, kinds, quick_config, read_to_end, wait_for_questions, wait_until, with_timeout,
    },
};

fn ask(question: &str) -> Turn {
    Turn::call("ask_human", json!({"question": question}))
}

/// Model that asks once, and answers with the result.
fn asking() -> Arc<ScriptedModel> {
    scripted_model(|request| match assistant_count(request) {
        0 => Turn::call(
            "ask_human",
            json!({"question": "which colour?", "to": "Ada"}),
        ),
        _ => Turn::say(format!("heard {}", last_of(request))),
    })
}

async fn status(runtime: &Runtime, run: &RunId) -> RunStatus {
    runtime.traces().run(run).await.unwrap().status
}

/// (SUB-9)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_waits_for_an_answer_and_resumes_with_it() {
    let world = TestRuntime::open(asking()).await;
    let runtime = world.runtime();
    let run = runtime
        .start(RunRequest::new("paint it").session("s"))
        .await
        .unwrap();
    let question = with_timeout(wait_for_questions(runtime, 1)).await.remove(0);
    assert_eq!(
        (question.question.as_str(), question.to.as_deref()),
        ("which colour?", Some("Ada"))
    );
    assert_eq!(
        (&question.run_id, question.trace_id.as_str()),
        (run.run_id(), "s")
    );
    let person = runtime
        .traces()
        .get(run.trace_id())
        .await
        .unwrap()
        .context
        .collaborators
        .remove(0);
    assert_eq!(person.line(), "- Ada [human, waiting]: which colour?");
    let tree = serde_json::to_string(&runtime.tree().snapshot()).unwrap();
    assert!(tree.contains("\"state\":\"waiting\""), "{tree}");
    assert_eq!(
        runtime
            .questions()
            .answer(&question.question_id, " ")
            .await
            .unwrap_err()
            .code,
        ErrorCode::ValidationError
    );
    let answered = runtime
        .questions()
        .answer(&question.question_id, "red")
        .await
        .unwrap();
    assert_eq!(
        (answered.status, answered.answer.as_deref()),
        (QuestionStatus::Answered, Some("red"))
    );
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "heard red");
    let late = runtime
        .questions()
        .answer(&question.question_id, "blue")
        .await
        .unwrap_err();
    assert_eq!(late.code, ErrorCode::AlreadyDecided);
    assert!(late.message.contains("red"), "{late}");
    let unknown = runtime
        .questions()
        .answer(&QuestionId::new("nobody"), "x")
        .await
        .unwrap_err();
    assert_eq!(unknown.code, ErrorCode::QuestionNotFound);
    let events = read_to_end(run.events().unwrap()).await;
    let kinds = kinds(&events);
    let position_of = |kind: &str| {
        kinds
            .iter()
            .position(|other| *other == kind)
            .unwrap_or_else(|| panic!("{kind}: {kinds:?}"))
    };
    let order = [
        "tool_started",
        "question_asked",
        "run_waiting",
        "question_answered",
        "tool_completed",
        "run_resumed",
    ];
    let positions: Vec<usize> = order.iter().map(|kind| position_of(kind)).collect();
    assert!(positions.is_sorted(), "{kinds:?}");
    let person = runtime
        .traces()
        .get(run.trace_id())
        .await
        .unwrap()
        .context
        .collaborators
        .remove(0);
    assert_eq!(
        (person.kind, person.status),
        (CollaboratorKind::Human, CollaboratorStatus::Completed)
    );
    check_session(runtime, run.session_id()).await;
    world.finish().await;
}

/// (SUB-9)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_survives_crash_and_restart_and_is_asked_once() {
    for answered_while_away in [false, true] {
        let model = asking();
        let mut world = TestRuntime::open(model.clone()).await;
        let run = world
            .runtime()
            .start(RunRequest::new("paint it").session("s"))
            .await
            .unwrap();
        let question = with_timeout(wait_for_questions(world.runtime(), 1))
            .await
            .remove(0);
        let run_id = run.run_id().clone();
        let id = question.question_id.clone();
        world
            .runtime()
            .tree()
            .inject_crash(&format!("run:{run_id}"))
            .unwrap();
        wait_until("it comes back", || {
            serde_json::to_string(&world.runtime().tree().snapshot())
                .unwrap()
                .contains("\"restarts\":1")
        })
        .await;
        assert_eq!(
            with_timeout(wait_for_questions(world.runtime(), 1)).await[0].question_id,
            id,
            "it is not asked again"
        );
        if answered_while_away {
            // No process executes the run, so the answer is stored until the run is resumed.
            world
                .reopen_with(model.clone(), |builder| {
                    builder.recover(soong::RecoveryPolicy::Nothing)
                })
                .await;
            world
                .runtime()
                .questions()
                .answer(&id, "red")
                .await
                .unwrap();
            assert_eq!(
                status(world.runtime(), &run_id).await,
                RunStatus::Interrupted
            );
            let resumed = world
                .runtime()
                .sessions()
                .resume(&question.session_id)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(
                with_timeout(resumed.wait()).await.unwrap().output,
                "heard red"
            );
        } else {
            world.reopen(model.clone()).await;
            assert_eq!(
                with_timeout(wait_for_questions(world.runtime(), 1)).await[0].question_id,
                id
            );
            let handle = world.runtime().traces().handle(&run_id).unwrap();
            world
                .runtime()
                .questions()
                .answer(&id, "red")
                .await
                .unwrap();
            assert_eq!(
                with_timeout(handle.wait()).await.unwrap().output,
                "heard red"
            );
        }
        assert_eq!(
            model.calls(),
            2,
            "one model request precedes the answer, and one follows it"
        );
        check_session(world.runtime(), &question.session_id).await;
        world.finish().await;
    }
}

/// (SUB-9)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_of_many_answers_counts() {
    let world = TestRuntime::open(asking()).await;
    let runtime = world.runtime();
    let run = runtime.start("paint it").await.unwrap();
    let id = with_timeout(wait_for_questions(runtime, 1))
        .await
        .remove(0)
        .question_id;
    let answers = (0..20).map(|n| {
        let runtime = runtime.clone();
        let id = id.clone();
        async move { runtime.questions().answer(&id, format!("answer {n}")).await }
    });
    let accepted: Vec<_> = futures::future::join_all(answers)
        .await
        .into_iter()
        .filter_map(Result::ok)
        .collect();
    assert_eq!(accepted.len(), 1);
    let answer = accepted[0].answer.clone().unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().output,
        format!("heard {answer}")
    );
    world.finish().await;
}

/// (SUB-9)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_wait_in_parallel_and_do_not_block_other_calls() {
    let model = scripted_model(|request| match assistant_count(request) {
        0 => Turn::Call(vec![
            ("ask_human", json!({"question": "one?"})),
            ("read", json!({"path": "a.txt"})),
            ("ask_human", json!({"question": "two?"})),
            ("ask_human", json!({"question": " "})),
        ]),
        _ => Turn::say(
            request
                .messages
                .iter()
                .rev()
                .take(4)
                .map(|m| m.content.as_str())
                .collect::<Vec<_>>()
                .join("|"),
        ),
    });
    let world = TestRuntime::open(model).await;
    let runtime = world.runtime();
    let run = runtime.start("x").await.unwrap();
    let questions = with_timeout(wait_for_questions(runtime, 2)).await;
    assert_ne!(questions[0].question_id, questions[1].question_id);
    for (question, answer) in questions.iter().zip(["first", "second"]).rev() {
        assert_eq!(
            status(runtime, run.run_id()).await,
            RunStatus::Waiting,
            "one answer is not enough"
        );
        runtime
            .questions()
            .answer(&question.question_id, answer)
            .await
            .unwrap();
    }
    let output = with_timeout(run.wait()).await.unwrap().output.clone();
    let parts: Vec<&str> = output.split('|').collect();
    // In the order of arrival, newest first.
    assert_eq!((parts[0], parts[1]), ("first", "second"));
    assert!(
        parts[2].contains("alpha") && parts[3].contains("`question` is empty"),
        "{output}"
    );
    check_session(runtime, run.session_id()).await;
    world.finish().await;
}

/// (SUB-9)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_withdraws_the_question() {
    let world = TestRuntime::open(asking()).await;
    let runtime = world.runtime();
    let run = runtime.start("x").await.unwrap();
    let id = with_timeout(wait_for_questions(runtime, 1))
        .await
        .remove(0)
        .question_id;
    with_timeout(run.cancel()).await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Cancelled
    );
    assert_eq!(
        runtime.questions().get(&id).await.unwrap().status,
        QuestionStatus::Withdrawn
    );
    assert_eq!(
        runtime
            .questions()
            .answer(&id, "red")
            .await
            .unwrap_err()
            .code,
        ErrorCode::AlreadyDecided
    );
    check_session(runtime, run.session_id()).await;
    world.finish().await;
}

/// (SUB-9)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asking_child_releases_its_slot_and_pauses_its_timeout() {
    // One slot: the second child can run only while the first one waits, and the first one waits
    // longer than its timeout.
    let model = scripted_model(|request| {
        match (
            is_parent(request),
            task_of(request),
            assistant_count(request),
        ) {
            (true, _, 0) => Turn::call(
                "agent",
                json!({"task": ["asks", "works"], "agent_type": "default", "timeout_ms": 250}),
            ),
            (true, ..) => Turn::say(last_of(request)),
            (_, "asks", 0) => ask("may I?"),
            (_, "asks", _) => Turn::say(format!("heard {}", last_of(request))),
            _ => Turn::say("worked"),
        }
    });
    let world = TestRuntime::with(model, |builder| {
        let mut config = quick_config();
        config.agents.max_concurrent_children_per_session = 1;
        builder.config(config)
    })
    .await;
    let runtime = world.runtime();
    let run = runtime.start("x").await.unwrap();
    let question = with_timeout(wait_for_questions(runtime, 1)).await.remove(0);
    let works = run.children().await.unwrap()[1].run_id.clone();
    while status(runtime, &works).await != RunStatus::Completed {
        tokio::task::yield_now().await;
    }
    let parent = runtime
        .traces()
        .get(&TraceId::root(run.session_id()))
        .await
        .unwrap();
    let waits =
        |name: &&soong::protocol::Collaborator| name.trace_id.as_ref() == Some(&question.trace_id);
    let child = parent.context.collaborators.iter().find(waits).unwrap();
    assert_eq!(child.status, CollaboratorStatus::Waiting, "{child:?}");
    tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    runtime
        .questions()
        .answer(&question.question_id, "yes")
        .await
        .unwrap();
    let result: Value =
        serde_json::from_str(&with_timeout(run.wait()).await.unwrap().output).unwrap();
    assert_eq!(result["results"][0]["summary"], "heard yes");
    check_session(runtime, run.session_id()).await;
    world.finish().await;
}

/// (SUB-9)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_question_survives_a_process_restart() {
    let model = || {
        scripted_model(|request: &ModelRequest| {
            match (is_parent(request), assistant_count(request)) {
                (true, 0) => Turn::call(
                    "agent",
                    json!({"task": ["asks", "asks"], "agent_type": "default"}),
                ),
                (true, _) => Turn::say(last_of(request)),
                (_, 0) => ask("may I?"),
                _ => Turn::say(format!("heard {}", last_of(request))),
            }
        })
    };
    let mut world = TestRuntime::open(model()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap();
    let before = with_timeout(wait_for_questions(world.runtime(), 2)).await;
    world.reopen(model()).await;
    let questions = with_timeout(wait_for_questions(world.runtime(), 2)).await;
    assert_eq!(questions, before);
    let handle = world.runtime().traces().handle(run.run_id()).unwrap();
    for question in &questions {
        // The answer contains the short trace id, so that each result can be matched to its child.
        let answer = question.trace_id.last_segment().to_owned();
        world
            .runtime()
            .questions()
            .answer(&question.question_id, answer)
            .await
            .unwrap();
    }
    let result: Value =
        serde_json::from_str(&with_timeout(handle.wait()).await.unwrap().output).unwrap();
    for one in result["results"].as_array().unwrap() {
        let trace = TraceId::new(one["sub_trace_id"].as_str().unwrap());
        assert_eq!(one["summary"], format!("heard {}", trace.last_segment()));
    }
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// An answer to a question of a deleted session does not answer that of the next session with its
/// id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_to_a_question_of_a_deleted_session_is_rejected() {
    let world = TestRuntime::open(asking()).await;
    let runtime = world.runtime();
    let run = runtime
        .start(RunRequest::new("paint it").session("s"))
        .await
        .unwrap();
    let old = with_timeout(wait_for_questions(runtime, 1)).await.remove(0);
    runtime
        .questions()
        .answer(&old.question_id, "blue")
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    with_timeout(runtime.sessions().delete(run.session_id()))
        .await
        .unwrap();
    let run = runtime
        .start(RunRequest::new("paint it").session("s"))
        .await
        .unwrap();
    let question = with_timeout(wait_for_questions(runtime, 1)).await.remove(0);
    let late = runtime
        .questions()
        .answer(&old.question_id, "red")
        .await
        .unwrap_err();
    assert_eq!(late.code, ErrorCode::QuestionNotFound);
    runtime
        .questions()
        .answer(&question.question_id, "green")
        .await
        .unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().output,
        "heard green"
    );
    world.finish().await;
}
