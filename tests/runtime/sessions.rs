//! Sessions: first in, first out; continuing a session; accepted and rejected requests (SES-1 …
//! SES-3, MSG-2).

use std::{sync::Arc, time::Duration};

use soong::{
    ErrorCode, FaultPoint, RunHandle, RunRequest, RunSetting,
    model::{Failure, ModelError},
    protocol::{Config, EndReason, GivenMessage, Role, RunId, RunMode, RunStatus, SessionId},
    testing::{fail, respond, text},
};

use crate::support::{
    history::check_session,
    model::{ScriptedModel, Turn, assistant_count, last_of, scripted_model, task_of},
    world::{TestRuntime, kinds, read_to_end, wait_until, with_timeout},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_a_session_execute_sequentially_in_order() {
    let go = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&go);
    let model = scripted_model(move |request| {
        let user_messages: Vec<&str> = request
            .messages
            .iter()
            .filter(|message| message.role == soong::protocol::Role::User)
            .map(|message| message.content.as_str())
            .collect();
        Turn::When(Arc::clone(&signal), user_messages.join(","))
    });
    let world = TestRuntime::open(model.clone()).await;
    let mut runs = Vec::new();
    for name in ["a", "b", "c"] {
        runs.push(
            world
                .runtime()
                .start(RunRequest::new(name).session("s"))
                .await
                .unwrap(),
        );
    }
    assert_eq!(runs[1].status().await.unwrap(), RunStatus::Queued);
    let streams: Vec<_> = runs.iter().map(|run| run.events().unwrap()).collect();
    for (run, want) in runs.iter().zip(["a", "a,b", "a,b,c"]) {
        wait_until("its turn has come", || model.in_flight() == 1).await;
        go.notify_one();
        assert_eq!(with_timeout(run.wait()).await.unwrap().output, want);
    }
    for (index, stream) in streams.into_iter().enumerate() {
        let events = read_to_end(stream).await;
        let begin: &[&str] = if index == 0 {
            &["loop_started"]
        } else {
            &["run_queued", "run_dequeued", "loop_started"]
        };
        assert_eq!(kinds(&events)[..begin.len()], *begin);
    }
    check_session(world.runtime(), runs[0].session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_queued_run_makes_no_model_call() {
    let go = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&go);
    let model =
        scripted_model(move |request| Turn::When(Arc::clone(&signal), task_of(request).into()));
    let world = TestRuntime::open(model.clone()).await;
    let first = world
        .runtime()
        .start(RunRequest::new("first").session("s"))
        .await
        .unwrap();
    let second = world
        .runtime()
        .start(RunRequest::new("second").session("s"))
        .await
        .unwrap();
    let third = world
        .runtime()
        .start(RunRequest::new("third").session("s"))
        .await
        .unwrap();
    with_timeout(second.cancel()).await.unwrap();
    let outcome = with_timeout(second.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.end_reason),
        (RunStatus::Cancelled, EndReason::Cancelled)
    );
    let events = read_to_end(second.events().unwrap()).await;
    assert_eq!(
        kinds(&events),
        ["run_queued", "run_dequeued", "run_cancelled"]
    );
    assert!(
        events[1].data.contains("\"cancelled\":true") && events[2].data.contains("\"queued\":true")
    );
    for run in [&first, &third] {
        wait_until("its turn has come", || model.in_flight() == 1).await;
        go.notify_one();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().status,
            RunStatus::Completed
        );
    }
    assert_eq!(model.calls(), 2);
    check_session(world.runtime(), first.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn different_sessions_run_concurrently() {
    let go = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&go);
    let model = scripted_model(move |_| Turn::When(Arc::clone(&signal), "ok".into()));
    let world = TestRuntime::open(model.clone()).await;
    let mut runs = Vec::new();
    for n in 0..8 {
        runs.push(
            world
                .runtime()
                .start(RunRequest::new(n.to_string()))
                .await
                .unwrap(),
        );
    }
    wait_until("all think", || model.in_flight() == 8).await;
    go.notify_waiters();
    for run in &runs {
        with_timeout(run.wait()).await.unwrap();
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_continues_in_another_process() {
    let model =
        || scripted_model(|request| Turn::say(format!("answer {}", assistant_count(request))));
    let mut world = TestRuntime::open(model()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("one").session("s"))
        .await
        .unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "answer 0");
    drop(run);
    world.reopen(model()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("two").session("s"))
        .await
        .unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "answer 1");
    let messages = world
        .runtime()
        .traces()
        .messages(run.trace_id(), soong::MessagePath::Main)
        .await
        .unwrap();
    let roles: Vec<&str> = messages
        .iter()
        .map(|message| message.role.as_str())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// Kind of end of a run between two answered runs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Middle {
    CancelledBeforeAnyText,
    Failed,
    CancelledInTheQueue,
    CutOffInItsText,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_run_does_not_report_the_answer_of_another_run() {
    for (middle, status, output) in [
        (Middle::CancelledBeforeAnyText, RunStatus::Cancelled, ""),
        (Middle::Failed, RunStatus::Failed, ""),
        (Middle::CancelledInTheQueue, RunStatus::Cancelled, ""),
        (Middle::CutOffInItsText, RunStatus::Cancelled, "Tw"),
    ] {
        let go = Arc::new(tokio::sync::Notify::new());
        let signal = Arc::clone(&go);
        let model = scripted_model(move |request| match (last_of(request), middle) {
            ("one", _) => Turn::say("One."),
            ("held", _) => Turn::When(Arc::clone(&signal), "Held.".into()),
            ("three", _) => Turn::say("Three."),
            (_, Middle::Failed) => Turn::Fail(ModelError::new(Failure::Rejected, "no")),
            (_, Middle::CutOffInItsText) => Turn::Hang("Tw"),
            _ => Turn::Hang(""),
        });
        let mut world = TestRuntime::open(model.clone()).await;
        let session = SessionId::new("s");
        let begin = async |message: &str| {
            world
                .runtime()
                .start(RunRequest::new(message).session("s"))
                .await
                .unwrap()
        };
        let mut ended: Vec<(RunId, RunStatus, &str)> = Vec::new();
        let mut wait = async |run: &RunHandle, status, output| {
            let outcome = with_timeout(run.wait()).await.unwrap();
            assert_eq!(
                (outcome.status, outcome.output.as_str()),
                (status, output),
                "{middle:?}: wait"
            );
            ended.push((run.run_id().clone(), status, output));
        };
        wait(&begin("one").await, RunStatus::Completed, "One.").await;
        let queued = if middle == Middle::CancelledInTheQueue {
            Some(begin("held").await)
        } else {
            None
        };
        let mut watching = world.runtime().sessions().events(&session, 0);
        let run = begin("two").await;
        if middle != Middle::Failed {
            wait_until("a model call is under way", || model.in_flight() == 1).await;
            if middle == Middle::CutOffInItsText {
                while !matches!(
                    with_timeout(watching.next()).await.unwrap().unwrap(),
                    soong::StreamItem::Delta(_)
                ) {}
            }
            with_timeout(run.cancel()).await.unwrap();
        }
        wait(&run, status, output).await;
        if let Some(queued) = queued {
            go.notify_one();
            wait(&queued, RunStatus::Completed, "Held.").await;
        }
        wait(&begin("three").await, RunStatus::Completed, "Three.").await;
        drop((run, watching));
        for reopened in [false, true] {
            if reopened {
                world.reopen(model.clone()).await;
            }
            for (run, status, output) in &ended {
                let outcome = world
                    .runtime()
                    .traces()
                    .outcome(run)
                    .await
                    .unwrap()
                    .unwrap();
                let found = (outcome.status, outcome.output.as_str());
                assert_eq!(
                    found,
                    (*status, *output),
                    "{middle:?}: outcome, reopened: {reopened}"
                );
            }
        }
        check_session(world.runtime(), &session).await;
        world.finish().await;
    }
}

/// Model whose first call fails, as if it were unreachable, and whose later calls succeed.
fn reached_at_the_second_try() -> Arc<ScriptedModel> {
    let model = respond(|request| text(format!("did: {}", last_of(request))));
    Arc::new(model.at_call(0, fail(Failure::Rejected, "no")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_resumes_only_on_request_and_with_unfinished_work() {
    let world = TestRuntime::open(reached_at_the_second_try()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("one").session("s"))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Failed
    );
    for message in ["", " \n\t"] {
        let error = world
            .runtime()
            .start(RunRequest::new(message).session("s"))
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::ValidationError);
        assert_eq!(error.message, "the message is empty", "{message:?}");
    }
    let run = world
        .runtime()
        .start(RunRequest::resume("s"))
        .await
        .unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "did: one");
    let messages = world
        .runtime()
        .traces()
        .messages(run.trace_id(), soong::MessagePath::Main)
        .await
        .unwrap();
    let roles: Vec<&str> = messages
        .iter()
        .map(|message| message.role.as_str())
        .collect();
    assert_eq!(
        roles,
        ["system", "user", "assistant"],
        "the question is not asked twice"
    );
    let error = world
        .runtime()
        .start(RunRequest::resume("s"))
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::ValidationError);
    assert!(error.message.contains("ends with an answer"), "{error}");
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_session_keeps_the_settings_of_its_last_run() {
    let model = || {
        scripted_model(|request| {
            let tools: Vec<&str> = request
                .tools
                .iter()
                .map(|tool| tool.name.as_str())
                .collect();
            let given = format!(
                "{:?} {} {}",
                request.model,
                request.system[0],
                tools.join(",")
            );
            Turn::Fail(ModelError::new(Failure::Rejected, given))
        })
    };
    let mut world = TestRuntime::open(model()).await;
    let first = RunRequest::new("one")
        .session("s")
        .preset("explore")
        .model("small")
        .system_prompt("Be brief.")
        .max_turns(7)
        .tools(["read"])
        .timeout(Duration::from_secs(60));
    let first = world.runtime().start(first).await.unwrap();
    let given = with_timeout(first.wait())
        .await
        .unwrap()
        .error
        .clone()
        .unwrap();
    assert!(
        given.message.contains("Some(\"small\") Be brief. read"),
        "{given}"
    );
    let mut want = first.record().await.unwrap().settings;
    want.resumes = true;
    drop(first);
    world.reopen(model()).await;
    // Twice: the second run continues from a run that inherited all settings.
    for _ in 0..2 {
        let run = world
            .runtime()
            .start(RunRequest::resume("s"))
            .await
            .unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().error,
            Some(given.clone())
        );
        assert_eq!(run.record().await.unwrap().settings, want);
    }
    let other = RunRequest::resume("s").model("large").max_turns(9);
    let run = world.runtime().start(other).await.unwrap();
    with_timeout(run.wait()).await.unwrap();
    want.model = "large".into();
    want.options.max_turns = Some(9);
    assert_eq!(
        run.record().await.unwrap().settings,
        want,
        "what is said counts, the rest stays"
    );
    // Another mode uses its own preset.
    let run = world
        .runtime()
        .start(RunRequest::resume("s").mode(RunMode::Orchestrator))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    want.agent_type = "orchestrator".into();
    assert_eq!(run.record().await.unwrap().settings, want);
    let run = world
        .runtime()
        .start(RunRequest::new("something new").session("s"))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    let settings = run.record().await.unwrap().settings;
    want.resumes = false;
    want.options.timeout_ms = None;
    assert_eq!(
        settings, want,
        "a further message keeps everything but the time limit"
    );
    let reset = RunRequest::new("more")
        .session("s")
        .reset(RunSetting::Tools)
        .reset(RunSetting::SystemPrompt);
    let run = world.runtime().start(reset).await.unwrap();
    with_timeout(run.wait()).await.unwrap();
    let settings = run.record().await.unwrap().settings;
    assert_eq!(
        (
            settings.options.tools,
            settings.system_prompt,
            settings.model.as_str()
        ),
        (None, None, "large")
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_kept_preset_is_named_and_can_be_reset() {
    let model = || scripted_model(|_| Turn::say("done"));
    let config = Config::parse("test", "[presets.mine]\ndescription = \"x\"\n").unwrap();
    let mut world = TestRuntime::with(model(), |builder| builder.config(config)).await;
    let start = RunRequest::new("one").session("s").preset("mine");
    with_timeout(world.runtime().start(start).await.unwrap().wait())
        .await
        .unwrap();
    world.reopen(model()).await;
    let refused = world
        .runtime()
        .start(RunRequest::new("two").session("s"))
        .await
        .unwrap_err();
    assert!(
        refused.message.contains("\"mine\"") && refused.message.contains("or reset it"),
        "{refused}"
    );
    let run = world
        .runtime()
        .start(
            RunRequest::new("two")
                .session("s")
                .reset(RunSetting::Preset),
        )
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_resumes_from_the_last_run_that_started() {
    let model = scripted_model(|request| match request.tools.len() {
        1 => Turn::Hang(""),
        tools => Turn::say(format!("{tools} tools")),
    });
    let world = TestRuntime::open(model.clone()).await;
    let narrow = RunRequest::new("one").session("s").tools(["read"]);
    let began = world.runtime().start(narrow).await.unwrap();
    let queued = world
        .runtime()
        .start(RunRequest::new("two").session("s"))
        .await
        .unwrap();
    with_timeout(queued.cancel()).await.unwrap();
    wait_until("the first one thinks", || model.in_flight() == 1).await;
    with_timeout(began.cancel()).await.unwrap();
    for start in [RunRequest::resume("s"), RunRequest::new("one").session("s")] {
        let run = world.runtime().start(start).await.unwrap();
        let record = run.record().await.unwrap();
        assert_eq!(
            (record.task.as_str(), record.settings.options.tools),
            ("one", Some(vec!["read".to_owned()]))
        );
        with_timeout(run.cancel()).await.unwrap();
    }
    check_session(world.runtime(), began.session_id()).await;
    world.finish().await;
}

/// Starts the same run several times concurrently, and checks that one start is accepted and the
/// others are rejected as `session_active`.
async fn only_one_of(world: &TestRuntime, start: &RunRequest) -> RunHandle {
    let starts = (0..8).map(|_| {
        let runtime = world.runtime().clone();
        let start = start.clone();
        tokio::spawn(async move { runtime.start(start).await })
    });
    let mut accepted = Vec::new();
    for outcome in futures::future::join_all(starts).await {
        match outcome.unwrap() {
            Ok(run) => accepted.push(run),
            Err(error) => assert!(
                error.code == ErrorCode::SessionActive && error.retryable,
                "{error:?}"
            ),
        }
    }
    assert_eq!(accepted.len(), 1, "{start:?}");
    accepted.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_concurrent_exclusive_starts_is_accepted() {
    let hangs = scripted_model(|_| Turn::Hang(""));
    let world = TestRuntime::open(hangs.clone()).await;
    let mut alone = RunRequest::new("x").session("s").reject_if_busy();
    // First with a session that is just being created, then with an existing one; below, with a
    // session that continues.
    for _ in 0..3 {
        let run = only_one_of(&world, &alone).await;
        let queued = world
            .runtime()
            .start(RunRequest::new("later").session("s"))
            .await
            .unwrap();
        with_timeout(run.cancel()).await.unwrap();
        // A queued run is as good a reason to reject as an active run.
        assert_eq!(
            world.runtime().start(alone.clone()).await.unwrap_err().code,
            ErrorCode::SessionActive
        );
        with_timeout(queued.cancel()).await.unwrap();
        check_session(world.runtime(), run.session_id()).await;
    }
    alone.message = None;
    let run = only_one_of(&world, &alone).await;
    with_timeout(run.cancel()).await.unwrap();
    let run = only_one_of(&world, &RunRequest::resume("s")).await;
    with_timeout(run.cancel()).await.unwrap();
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_still_busy_after_its_crash() {
    let model = scripted_model(|_| Turn::Hang(""));
    let world = TestRuntime::open(model.clone()).await;
    let alone = RunRequest::new("x").session("s").reject_if_busy();
    let run = world.runtime().start(alone.clone()).await.unwrap();
    for _ in 0..4 {
        world.runtime().tree().inject_crash("session:s").unwrap();
        let error = loop {
            match world.runtime().start(alone.clone()).await {
                // The session crashed with the request in its mailbox.
                Err(error) if error.code == ErrorCode::InternalError => {}
                outcome => break outcome.unwrap_err(),
            }
        };
        assert_eq!(error.code, ErrorCode::SessionActive);
    }
    with_timeout(run.cancel()).await.unwrap();
    let run = world.runtime().start(alone).await.unwrap();
    with_timeout(run.cancel()).await.unwrap();
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_concurrent_resumes_is_accepted() {
    for _ in 0..8 {
        // The answer arrives immediately: a late request finds the session idle again, but
        // answered.
        let world = TestRuntime::open(reached_at_the_second_try()).await;
        let run = world
            .runtime()
            .start(RunRequest::new("one").session("s"))
            .await
            .unwrap();
        with_timeout(run.wait()).await.unwrap();
        let starts = (0..8).map(|_| world.runtime().start(RunRequest::resume("s")));
        let outcomes = futures::future::join_all(starts).await;
        let accepted: Vec<_> = outcomes
            .iter()
            .filter_map(|outcome| outcome.as_ref().ok())
            .collect();
        assert_eq!(accepted.len(), 1);
        assert_eq!(
            with_timeout(accepted[0].wait()).await.unwrap().output,
            "did: one"
        );
        for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            assert!(
                matches!(
                    error.code,
                    ErrorCode::SessionActive | ErrorCode::ValidationError
                ),
                "{error:?}"
            );
        }
        drop((run, outcomes));
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_free_once_the_end_of_its_run_is_visible() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("ok"))).await;
    let alone = RunRequest::new("x").session("s").reject_if_busy();
    for step in 0..40 {
        let run = world.runtime().start(alone.clone()).await.unwrap();
        // By its last event, or by its handle.
        if step % 2 == 0 {
            read_to_end(run.events().unwrap()).await;
        } else {
            with_timeout(run.wait()).await.unwrap();
        }
    }
    check_session(world.runtime(), &SessionId::new("s")).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_run_becomes_active_once_an_end_is_recorded() {
    let (reached, mut is_reached) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(Some(released));
    let model = scripted_model(|request| {
        if last_of(request) == "one" {
            Turn::say("One.")
        } else {
            Turn::Hang("")
        }
    });
    let world = TestRuntime::with(model, |builder| {
        // Holds the first run between the record of its end and the notification about it. If the
        // test fails, the sender is dropped, which releases the run.
        builder.fault_hook(Arc::new(move |_, point| {
            if point == FaultPoint::Ended
                && let Some(released) = released.lock().unwrap().take()
            {
                reached.send(()).unwrap();
                let _ = released.recv();
            }
        }))
    })
    .await;
    let first = world
        .runtime()
        .start(RunRequest::new("one").session("s"))
        .await
        .unwrap();
    with_timeout(is_reached.recv()).await.unwrap();
    assert_eq!(first.status().await.unwrap(), RunStatus::Completed);
    let active = || {
        world
            .runtime()
            .traces()
            .active_run(first.trace_id())
            .map(|run| run.run_id().clone())
    };
    assert_eq!(active().as_ref(), Some(first.run_id()), "there is no other");
    let alone = RunRequest::new("two").session("s").reject_if_busy();
    let second = world.runtime().start(alone).await.unwrap();
    assert_eq!(active().as_ref(), Some(second.run_id()));
    release.send(()).unwrap();
    with_timeout(first.wait()).await.unwrap();
    assert_eq!(active().as_ref(), Some(second.run_id()));
    with_timeout(second.cancel()).await.unwrap();
    assert_eq!(active(), None);
    check_session(world.runtime(), first.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_requests_change_nothing() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("ok"))).await;
    for (start, part) in [
        (RunRequest::new(""), "empty"),
        (RunRequest::new("  \n"), "empty"),
        (RunRequest::new(" ").session("s"), "empty"),
        (RunRequest::default(), "no conversation to resume"),
        (RunRequest::resume("s"), "no conversation to resume"),
        (RunRequest::new("x").session("../x"), "not a valid id"),
        (RunRequest::new("x").session("a@b"), "not a valid id"),
        (RunRequest::new("x").preset("poet"), "no preset"),
        (RunRequest::new("x").tools(["fly"]), "no tool"),
        (
            RunRequest::new("x").project_dir("/does/not/exist"),
            "cannot be used",
        ),
    ] {
        let error = world.runtime().start(start).await.unwrap_err();
        assert!(
            error.code == ErrorCode::ValidationError || part == "cannot be used",
            "{error}"
        );
        assert!(error.message.contains(part), "{error}");
    }
    let sessions = world
        .runtime()
        .sessions()
        .list(soong::SessionFilter::default(), 10, None)
        .await
        .unwrap();
    assert!(sessions.items.is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn system_message_of_a_start_is_its_system_prompt() {
    let model = scripted_model(|request| Turn::say(request.system.join("|")));
    let world = TestRuntime::open(model).await;
    let given = |role, text: &str| GivenMessage {
        role,
        content: text.into(),
        tool_call_id: None,
    };
    let system = || given(Role::System, "Answer in one word.");
    let request = || RunRequest::new("x").tools([""; 0]);
    let run = world
        .runtime()
        .start(request().messages([system(), given(Role::User, "earlier")]))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().output,
        "Answer in one word."
    );
    assert_eq!(
        run.record()
            .await
            .unwrap()
            .settings
            .system_prompt
            .as_deref(),
        Some("Answer in one word.")
    );
    for (request, want) in [
        (request().messages([system(), system()]), "messages[1]"),
        (
            request().messages([given(Role::User, "earlier"), system()]),
            "messages[1]",
        ),
        (
            request().system_prompt("Be brief.").messages([system()]),
            "messages[0]",
        ),
    ] {
        let error = world.runtime().start(request).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::ValidationError);
        assert!(
            error.message.starts_with(want) && error.message.ends_with("use `system_prompt`"),
            "{error}"
        );
    }
    world.finish().await;
}
