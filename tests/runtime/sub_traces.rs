//! Runs of users on the trace of a sub-agent: they continue its conversation, in the queue of its
//! session.

use std::sync::Arc;

use serde_json::json;
use soong::{
    ErrorCode, Fork, MessagePath, RecoveryPolicy, RunHandle, RunRequest, RunSetting, Runtime,
    protocol::{CollaboratorStatus, Role, RunMode, RunStatus, SessionId, TraceId},
};
use tokio::sync::Notify;

use crate::support::{
    history::check_session,
    model::{ScriptedModel, Turn, assistant_count, last_of, scripted_model, task_of},
    world::{TestRuntime, quick_config, read_to_end, with_timeout},
};

/// Model whose parent starts a child with reading tools; the child answers with what was said to
/// it.
fn model() -> Arc<ScriptedModel> {
    scripted_model(
        |request| match (task_of(request), assistant_count(request)) {
            ("parent", 0) => Turn::call("agent", json!({"task": "child", "agent_type": "explore"})),
            ("parent", _) => {
                let context = request.system_and_context();
                let line = context
                    .lines()
                    .rev()
                    .find(|line| line.contains("[agent,"))
                    .unwrap_or("nobody");
                Turn::say(line.to_owned())
            }
            _ => {
                let tools: Vec<&str> = request
                    .tools
                    .iter()
                    .map(|tool| tool.name.as_str())
                    .collect();
                Turn::say(format!(
                    "answer {} to {} with {}",
                    assistant_count(request) + 1,
                    last_of(request),
                    tools.join(" ")
                ))
            }
        },
    )
}

async fn child_of(runtime: &Runtime) -> (RunHandle, TraceId) {
    let run = runtime
        .start(RunRequest::new("parent").session("s"))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    let trace = run.children().await.unwrap().remove(0).trace_id;
    (run, trace)
}

async fn open() -> TestRuntime {
    let mut config = quick_config();
    config.context.inject_every_turns = 1;
    TestRuntime::with(model(), |builder| builder.config(config)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_continues_the_trace_of_a_sub_agent() {
    let world = open().await;
    let runtime = world.runtime();
    let (parent, child) = child_of(runtime).await;
    let run = runtime
        .start(RunRequest::new("more").trace(&child))
        .await
        .unwrap();
    assert_eq!((run.trace_id(), run.session_id().as_str()), (&child, "s"));
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert!(
        outcome.output.starts_with("answer 2 to more with "),
        "{}",
        outcome.output
    );
    let record = run.record().await.unwrap();
    assert_eq!(
        (
            record.parent_run_id,
            record.depth,
            record.settings.agent_type.as_str()
        ),
        (None, 1, "explore")
    );
    let tools = outcome.output.split_once("with ").unwrap().1.to_owned();
    assert!(
        tools.contains("read") && !tools.contains("write"),
        "the tools of the sub-agent: {tools}"
    );
    assert_eq!(parent.children().await.unwrap().len(), 1, "it is no child");
    assert_eq!(
        parent.results().await.unwrap().len(),
        1,
        "nothing is delivered a second time"
    );

    // The parent sees the new status of the collaborator.
    let collaborator = runtime
        .traces()
        .get(parent.trace_id())
        .await
        .unwrap()
        .context
        .collaborators
        .remove(0);
    assert_eq!(
        (collaborator.status, collaborator.trace_id.as_ref()),
        (CollaboratorStatus::Completed, Some(&child))
    );
    assert!(
        collaborator.summary.starts_with("answer 2 to more"),
        "{}",
        collaborator.summary
    );
    let next = runtime
        .start(RunRequest::new("and now?").session("s"))
        .await
        .unwrap();
    let seen = with_timeout(next.wait()).await.unwrap().output.clone();
    assert!(
        seen.contains("[agent, completed]: answer 2 to more"),
        "{seen}"
    );

    // Narrower tools, a rewind, and a run without a message.
    let narrow = runtime
        .start(RunRequest::new("less").trace(&child).tools(["read"]))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(narrow.wait()).await.unwrap().output,
        "answer 3 to less with read"
    );
    let messages = runtime
        .traces()
        .messages(&child, MessagePath::Main)
        .await
        .unwrap();
    let first = messages
        .iter()
        .find(|message| message.role == Role::Assistant)
        .unwrap()
        .sequence;
    let other = runtime
        .start(RunRequest::new("instead").trace(&child).after(first))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(other.wait()).await.unwrap().output,
        "answer 2 to instead with read"
    );
    let events = read_to_end(runtime.run_events(other.run_id(), 0).await.unwrap()).await;
    assert!(events.iter().any(|record| record.event.kind() == "rewind"));
    check_session(runtime, &SessionId::new("s")).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_of_a_sub_trace_keeps_what_the_sub_agent_was() {
    let world = open().await;
    let runtime = world.runtime();
    let (_, child) = child_of(runtime).await;
    let more = || RunRequest::new("more").trace(&child);
    for (request, part) in [
        (more().tools(["write"]), "\"write\" is not among the tools"),
        (more().preset("default"), "agent_type cannot"),
        (more().mode(RunMode::Orchestrator), "mode cannot"),
        (more().reset(RunSetting::Tools), "tools cannot"),
        (more().session("other"), "belongs to session s"),
        (
            RunRequest {
                driven: true,
                ..more()
            },
            "mode cannot",
        ),
        (
            RunRequest::default().trace(&child),
            "a new message is required",
        ),
    ] {
        let error = runtime.start(request).await.unwrap_err();
        assert!(
            error.code == ErrorCode::ValidationError && error.message.contains(part),
            "{error}"
        );
    }
    let unknown = RunRequest::new("x").trace(&TraceId::new("s@delegate-20260101T000000-001"));
    assert_eq!(
        runtime.start(unknown).await.unwrap_err().code,
        ErrorCode::TraceNotFound
    );
    let foreign = runtime.start(more().uid("eve")).await.unwrap_err();
    assert_eq!(foreign.code, ErrorCode::SessionNotFound);
    world.finish().await;
}

/// A sub-trace shares the queue of its session, also across a restart, and can be stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_sub_traces_wait_in_the_queue_of_their_session() {
    let begun = Arc::new(Notify::new());
    let blocking = || {
        let begun = Arc::clone(&begun);
        scripted_model(move |request| match last_of(request) {
            "wait" => {
                begun.notify_one();
                Turn::Hang("half")
            }
            _ => Turn::say(format!("heard {}", last_of(request))),
        })
    };
    let mut world = TestRuntime::open(model()).await;
    let (_, child) = child_of(world.runtime()).await;
    world.reopen(blocking()).await;
    let first = world
        .runtime()
        .start(RunRequest::new("wait").session("s"))
        .await
        .unwrap();
    with_timeout(begun.notified()).await;
    let second = world
        .runtime()
        .start(RunRequest::new("more").trace(&child))
        .await
        .unwrap();
    assert!(second.was_queued());
    let first_id = first.run_id().clone();
    let second_id = second.run_id().clone();
    drop((first, second));
    world.reopen(blocking()).await;
    with_timeout(begun.notified()).await;
    with_timeout(world.runtime().traces().handle(&first_id).unwrap().cancel())
        .await
        .unwrap();
    assert_eq!(
        with_timeout(world.runtime().wait(&second_id))
            .await
            .unwrap()
            .output,
        "heard more"
    );
    let third = world
        .runtime()
        .start(RunRequest::new("wait").trace(&child))
        .await
        .unwrap();
    with_timeout(begun.notified()).await;
    let active = world.runtime().traces().active_run(&child).unwrap();
    assert_eq!(active.run_id(), third.run_id());
    with_timeout(active.cancel()).await.unwrap();
    assert_eq!(third.status().await.unwrap(), RunStatus::Cancelled);
    // What was interrupted is continued without a message.
    world.reopen(model()).await;
    let resumed = world
        .runtime()
        .start(RunRequest::default().trace(&child))
        .await
        .unwrap();
    let output = with_timeout(resumed.wait()).await.unwrap().output.clone();
    assert!(output.contains(" to wait with "), "{output}");
    check_session(world.runtime(), &SessionId::new("s")).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_trace_is_reflected_on() {
    let world = open().await;
    let runtime = world.runtime();
    let (_, child) = child_of(runtime).await;
    let reflecting = RunRequest::reflect("s", None).trace(&child);
    let run = runtime.start(reflecting).await.unwrap();
    assert_eq!(run.trace_id(), &child);
    let outcome = with_timeout(run.wait()).await.unwrap();
    // The scripted model gives no valid reflection, so the run fails after it has read the
    // conversation.
    assert_eq!(outcome.status, RunStatus::Failed);
    let head = runtime.traces().get(&child).await.unwrap().head_sequence;
    let messages = runtime
        .traces()
        .messages(&child, MessagePath::Main)
        .await
        .unwrap();
    assert_eq!(
        messages.last().unwrap().sequence,
        head,
        "the conversation is unchanged"
    );
    check_session(runtime, &SessionId::new("s")).await;
    world.finish().await;
}

/// Model whose parent starts a child. A run with the task `wait` waits for `go` after it has
/// notified `begun`; every other run answers at once.
fn waiting_model(begun: &Arc<Notify>, go: &Arc<Notify>) -> Arc<ScriptedModel> {
    let begun = Arc::clone(begun);
    let go = Arc::clone(go);
    scripted_model(move |request| match last_of(request) {
        "parent" => Turn::call("agent", json!({"task": "child", "agent_type": "explore"})),
        "wait" => {
            begun.notify_one();
            Turn::When(Arc::clone(&go), "waited".to_owned())
        }
        last => Turn::say(format!("heard {last}")),
    })
}

/// A run of a user on the trace of a sub-agent has the turn of the session (SES-1): starts in the
/// session wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_waits_for_a_run_of_a_sub_trace_and_continues_after_it() {
    let begun = Arc::new(Notify::new());
    let go = Arc::new(Notify::new());
    let world = TestRuntime::open(waiting_model(&begun, &go)).await;
    let runtime = world.runtime();
    let session = SessionId::new("s");
    // Messages of the root: 1 system, 2 user, 3 call, 4 result, 5 answer.
    let (_, child) = child_of(runtime).await;
    let blocking = runtime
        .start(RunRequest::new("wait").trace(&child))
        .await
        .unwrap();
    with_timeout(begun.notified()).await;

    let code_of =
        async |request: RunRequest| runtime.start(request).await.map(drop).unwrap_err().code;
    let switched = runtime.sessions().switch_head(&session, 2).await;
    assert_eq!(switched.unwrap_err().code, ErrorCode::SessionActive);
    let deleted = runtime.sessions().delete(&session).await;
    assert_eq!(deleted.unwrap_err().code, ErrorCode::SessionActive);
    runtime
        .sessions()
        .fork(&session, Fork::default())
        .await
        .unwrap();
    assert_eq!(
        code_of(RunRequest::new("alone").session("s").reject_if_busy()).await,
        ErrorCode::SessionActive
    );
    let messages = runtime
        .traces()
        .messages(&child, MessagePath::Main)
        .await
        .unwrap();
    let answer = messages
        .iter()
        .find(|message| message.role == Role::Assistant)
        .unwrap()
        .sequence;
    let after_answer = RunRequest::new("x").trace(&child).after(answer);
    assert_eq!(
        code_of(after_answer).await,
        ErrorCode::SessionActive,
        "its own conversation is about to change"
    );

    let queued = runtime
        .start(RunRequest::new("instead").session("s").after(2))
        .await
        .unwrap();
    assert!(queued.was_queued());
    let second = RunRequest::new("y").session("s").after(2);
    assert_eq!(
        code_of(second).await,
        ErrorCode::SessionActive,
        "a run of this conversation is queued"
    );
    go.notify_one();
    for run in [&blocking, &queued] {
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().status,
            RunStatus::Completed
        );
    }
    assert!(
        queued.record().await.unwrap().started_at >= blocking.record().await.unwrap().completed_at
    );

    // Afterwards, neither conversation is refused because the other one has had a run.
    let more = runtime
        .start(RunRequest::new("more").trace(&child))
        .await
        .unwrap();
    with_timeout(more.wait()).await.unwrap();
    let earlier_branch = runtime
        .start(RunRequest::new("again").session("s").after(2))
        .await
        .unwrap();
    with_timeout(earlier_branch.wait()).await.unwrap();
    let of_child = runtime
        .start(RunRequest::new("z").trace(&child).after(answer))
        .await
        .unwrap();
    with_timeout(of_child.wait()).await.unwrap();
    check_session(runtime, &session).await;
    drop((blocking, queued, more, earlier_branch, of_child));
    world.finish().await;
}

/// Rules that deny are those of the session, whichever conversation set them (PERM-1).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deny_rules_are_those_of_the_session_on_each_trace() {
    let world = TestRuntime::open(waiting_model(&Arc::default(), &Arc::default())).await;
    let runtime = world.runtime();
    let deny_rules = async |request: RunRequest| {
        let run = runtime.start(request).await.unwrap();
        with_timeout(run.wait()).await.unwrap();
        let mut rules = run.record().await.unwrap().settings.permissions.deny;
        rules.sort();
        rules
    };
    let (_, child) = child_of(runtime).await;
    assert_eq!(
        deny_rules(RunRequest::new("next").session("s").deny("grep")).await,
        ["grep"]
    );
    assert_eq!(
        deny_rules(RunRequest::new("more").trace(&child).deny("read")).await,
        ["grep", "read"]
    );
    assert_eq!(
        deny_rules(RunRequest::new("last").session("s")).await,
        ["grep", "read"]
    );
    assert_eq!(
        deny_rules(RunRequest::new("most").trace(&child).deny("glob")).await,
        ["glob", "grep", "read"]
    );
    let fork = Fork {
        session_id: Some("f".to_owned()),
        ..Fork::default()
    };
    runtime
        .sessions()
        .fork(&SessionId::new("s"), fork)
        .await
        .unwrap();
    assert_eq!(
        deny_rules(RunRequest::new("x").session("f")).await,
        ["glob", "grep", "read"]
    );
    world.finish().await;
}

/// A request for the trace of a sub-agent neither resumes nor returns the run of another trace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_for_a_sub_trace_does_not_resume_the_run_of_another_trace() {
    let begun = Arc::new(Notify::new());
    let go = Arc::new(Notify::new());
    let mut world = TestRuntime::open(waiting_model(&begun, &go)).await;
    let runtime = world.runtime();
    let (_, child) = child_of(runtime).await;
    let of_child = runtime
        .start(RunRequest::new("wait").trace(&child))
        .await
        .unwrap();
    with_timeout(begun.notified()).await;
    with_timeout(of_child.cancel()).await.unwrap();
    let of_root = runtime
        .start(RunRequest::new("wait").session("s"))
        .await
        .unwrap();
    with_timeout(begun.notified()).await;
    let root_run = of_root.run_id().clone();
    drop((of_child, of_root));
    world
        .reopen_with(waiting_model(&begun, &go), |builder| {
            builder.recover(RecoveryPolicy::Nothing)
        })
        .await;
    let runtime = world.runtime();
    let error = runtime
        .start(RunRequest::default().trace(&child))
        .await
        .map(drop)
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::SessionActive, "{error}");
    assert!(error.message.contains("interrupted run"), "{error}");
    assert_eq!(
        runtime.traces().run(&root_run).await.unwrap().status,
        RunStatus::Interrupted
    );
    let resumed = runtime.start(RunRequest::resume("s")).await.unwrap();
    assert_eq!(resumed.run_id(), &root_run);
    with_timeout(begun.notified()).await;
    go.notify_one();
    with_timeout(resumed.wait()).await.unwrap();
    drop(resumed);
    world.finish().await;
}

/// Several requests to continue the same conversation start one run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_late_resumes_of_a_sub_trace_is_accepted() {
    let model = scripted_model(|request| match last_of(request) {
        "parent" => Turn::call("agent", json!({"task": "child", "agent_type": "explore"})),
        "fail" if assistant_count(request) == 1 => Turn::Cut("half"),
        last => Turn::say(format!("heard {last}")),
    });
    let world = TestRuntime::open(model).await;
    let runtime = world.runtime();
    let (_, child) = child_of(runtime).await;
    let failed = runtime
        .start(RunRequest::new("fail").trace(&child))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(failed.wait()).await.unwrap().status,
        RunStatus::Failed
    );
    let starts = (0..8).map(|_| runtime.start(RunRequest::default().trace(&child)));
    let outcomes = futures::future::join_all(starts).await;
    let accepted: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| outcome.as_ref().ok())
        .collect();
    for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
        assert!(
            matches!(
                error.code,
                ErrorCode::SessionActive | ErrorCode::ValidationError
            ),
            "{error:?}"
        );
    }
    assert_eq!(accepted.len(), 1);
    with_timeout(accepted[0].wait()).await.unwrap();
    drop((failed, outcomes));
    world.finish().await;
}
