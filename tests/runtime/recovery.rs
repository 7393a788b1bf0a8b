//! Runs that survive their process: the whole tree resumes under the same ids, and nothing is done
//! twice (DUR-3, DUR-4).

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::{Value, json};
use soong::{
    ChildSpec, EventStream, RecoveryPolicy, RunHandle, RunRequest, RuntimeBuilder, StreamItem,
    model::Completion,
    protocol::{
        Budget, Config, EndReason, ErrorCode, Event, EventRecord, ModelEvent, PermissionMode, Role,
        Run, RunEvent, RunMode, RunStatus, SessionId, TraceId, Usage,
    },
    testing::{hang, respond_async},
};
use tokio::time;

use crate::support::{
    history::{check_session, stored},
    model::{ScriptedModel, Turn, assistant_count, is_parent, last_of, scripted_model, task_of},
    tool::HangOnceTool,
    world::{
        TestRuntime, kinds, quick_config, read_until, wait_for_permissions, wait_for_questions,
        wait_until, with_timeout,
    },
};

fn kind(events: &[Arc<EventRecord>], kind: &str) -> usize {
    kinds(events).into_iter().filter(|one| *one == kind).count()
}

fn narrow(slots: usize) -> impl FnOnce(RuntimeBuilder) -> RuntimeBuilder {
    move |builder| {
        let mut config: Config = quick_config();
        config.agents.max_concurrent_children_per_session = slots;
        builder.config(config)
    }
}

/// Returns the resumed run, found by its trace.
fn resumed(world: &TestRuntime, run: &RunHandle) -> RunHandle {
    world
        .runtime()
        .traces()
        .active_run(run.trace_id())
        .expect("the run is active")
}

/// Model of an orchestrator that explores with `children` tasks, and answers with the number of
/// completed results. `child` returns the turn of a child.
fn exploring(
    children: usize,
    child: impl Fn(&str) -> Turn + Send + Sync + 'static,
) -> Arc<ScriptedModel> {
    scripted_model(
        move |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => {
                let tasks: Vec<String> = (0..children).map(|n| format!("task {n}")).collect();
                Turn::call("agent", json!({ "task": tasks }))
            }
            (true, _) => Turn::say(format!(
                "got {}",
                last_of(request).matches("\"completed\"").count()
            )),
            (false, _) => child(task_of(request)),
        },
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_resumes_after_restart_and_starts_no_child_twice() {
    // Of 24 children, 2 have ended, 4 are active, and 18 wait for a slot.
    let slow = |task: &str| {
        if task < "task 2" && task.len() == 6 {
            Turn::say("early")
        } else {
            Turn::Hang("half")
        }
    };
    let first = exploring(24, slow);
    let mut world = TestRuntime::with(first.clone(), narrow(4)).await;
    let start = RunRequest::new("job")
        .mode(RunMode::Orchestrator)
        .session("s");
    let run = world.runtime().start(start).await.unwrap();
    let queued = world
        .runtime()
        .start(RunRequest::new("after it").session("s"))
        .await
        .unwrap();
    wait_until("two are done and the slots are full", || {
        first.in_flight() == 4 && first.calls() >= 7
    })
    .await;
    let children = run.children().await.unwrap();

    // There are fewer slots than there were active children.
    let second = exploring(24, |_| Turn::say("late"));
    world.reopen_with(second.clone(), narrow(2)).await;
    assert_eq!(
        world.runtime().info().interrupted_runs().resumed.len(),
        1 + 22 + 1,
        "{:?}",
        world.runtime().info().interrupted_runs()
    );
    let same = resumed(&world, &run);
    assert_eq!(same.run_id(), run.run_id());
    assert_eq!(with_timeout(same.wait()).await.unwrap().output, "got 24");
    assert!(
        second.max_in_flight() <= 3,
        "{} at once",
        second.max_in_flight()
    );

    let ids = |runs: &[Run]| {
        runs.iter()
            .map(|run| run.run_id.clone())
            .collect::<Vec<_>>()
    };
    let after = same.children().await.unwrap();
    assert_eq!(ids(&after), ids(&children), "the same children");
    assert!(after.iter().all(|run| run.status == RunStatus::Completed));
    let events = stored(world.runtime(), run.trace_id()).await;
    assert_eq!(
        (
            kind(&events, "sub_trace_started"),
            kind(&events, "sub_trace_completed")
        ),
        (24, 24)
    );
    assert_eq!(kind(&events, "run_recovered"), 1);
    // The queued run follows, in its order.
    let last = world
        .runtime()
        .traces()
        .handle(queued.run_id())
        .map(|run| async move { run.wait().await });
    if let Ok(last) = last {
        with_timeout(last).await.unwrap();
    }
    let runs = [
        world.runtime().traces().run(run.run_id()).await.unwrap(),
        world.runtime().traces().run(queued.run_id()).await.unwrap(),
    ];
    assert!(runs[0].completed_at <= runs[1].started_at && runs[1].status == RunStatus::Completed);
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_call_is_reported_or_rerun_if_idempotent() {
    for (idempotent, healed, made) in [(false, 1, 1), (true, 0, 2)] {
        let begun = Arc::new(AtomicUsize::new(0));
        let tool = || HangOnceTool::new(idempotent, &begun);
        let script = |request: &soong::model::ModelRequest| match assistant_count(request) {
            0 => Turn::call("hang", json!({})),
            _ => Turn::say(last_of(request).to_owned()),
        };
        let mut world =
            TestRuntime::with(scripted_model(script), |builder| builder.tool(tool())).await;
        let run = world
            .runtime()
            .start(RunRequest::new("x").session("s"))
            .await
            .unwrap();
        wait_until("the tool is at work", || begun.load(SeqCst) == 1).await;
        world
            .reopen_with(scripted_model(script), |builder| builder.tool(tool()))
            .await;
        let run = resumed(&world, &run);
        let outcome = with_timeout(run.wait()).await.unwrap();
        let is_interrupted = outcome.output.contains("Error [interrupted]");
        assert_eq!(
            (is_interrupted, begun.load(SeqCst)),
            (!idempotent, made),
            "idempotent: {idempotent}: {}",
            outcome.output
        );
        let events = stored(world.runtime(), run.trace_id()).await;
        let recovered = events.iter().find_map(|event| match event.event {
            Event::Run(RunEvent::Recovered { healed_calls }) => Some(healed_calls),
            _ => None,
        });
        assert_eq!(recovered, Some(healed));
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

#[tokio::test]
async fn interrupted_model_call_is_charged_what_it_had_used() {
    // A call that is killed in its first second has recorded nothing.
    let lost_early = lost_call(Duration::ZERO, Budget::default()).await;
    assert_eq!(lost_early.completion_tokens, 0);
    let lost = lost_call(Duration::from_secs(2), Budget::default()).await;
    assert_eq!(lost.completion_tokens, 100);
    // The budget pays for one such call. What the restarted run estimates for the lost one does not
    // count. The prompt names the folder of the project, so its size varies.
    let budget = Budget {
        tokens: Some(lost.total_tokens() + 50),
        ..Budget::default()
    };
    assert_eq!(
        lost_call(Duration::from_secs(2), budget)
            .await
            .completion_tokens,
        100
    );
}

/// A run that has failed, and only waits for a child, starts nothing in the next process, whose
/// limits allow more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_is_kept_while_the_run_waits_for_a_child() {
    let limited = |turns: u32| {
        move |builder: RuntimeBuilder| {
            let mut config = quick_config();
            config.runtime.max_turns = turns;
            builder.config(config)
        }
    };
    let model = scripted_model(|request| match task_of(request) {
        "parent" => Turn::call("ask_human", json!({ "question": "which one?" })),
        _ => Turn::Hang("half"),
    });
    let mut world = TestRuntime::with(model, limited(1)).await;
    let run = world
        .runtime()
        .start(RunRequest::new("parent").session("s"))
        .await
        .unwrap();
    let question = with_timeout(wait_for_questions(world.runtime(), 1))
        .await
        .remove(0);
    run.spawn(ChildSpec::new("child")).await.unwrap();
    world
        .runtime()
        .questions()
        .answer(&question.question_id, "the first one")
        .await
        .unwrap();
    let mut events = run.events().unwrap();
    read_until(&mut events, "run_ending").await;
    drop(events);
    let calls_of_parent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls_of_parent);
    let next = scripted_model(move |request| {
        counter.fetch_add(usize::from(task_of(request) == "parent"), SeqCst);
        Turn::say("whole")
    });
    world.reopen_with(next, limited(30)).await;
    let run = resumed(&world, &run);
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.end_reason),
        (RunStatus::Failed, EndReason::MaxTurns)
    );
    assert_eq!(
        calls_of_parent.load(SeqCst),
        0,
        "the run makes no further call"
    );
    let events = stored(world.runtime(), run.trace_id()).await;
    assert_eq!(kind(&events, "run_ending"), 1);
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn estimates_of_ended_sub_agents_do_not_count_after_another_restart() {
    let (run, used, estimate) = lost_call_of_a_child(Budget::default()).await;
    assert_eq!(run.status, RunStatus::Completed);
    assert!(estimate > 100, "{estimate}");
    // The budget has no room for what the child's lost call is estimated to have used.
    let budget = Budget {
        tokens: Some(used + estimate / 2),
        ..Budget::default()
    };
    let (run, _, _) = lost_call_of_a_child(budget).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.error);
}

/// Interrupts the model call of a child, resumes both runs, interrupts the parent's call when the
/// child has ended, and resumes the parent. Returns the parent, what both runs use before the end
/// of the parent's last call, and what the child's lost call was charged, both in tokens.
async fn lost_call_of_a_child(budget: Budget) -> (Run, u64, u64) {
    let configured = |builder: RuntimeBuilder| {
        let mut config = quick_config();
        config.model.max_output_tokens = Some(50);
        builder.config(config)
    };
    let model = |process: usize| {
        scripted_model(
            move |request| match (task_of(request), assistant_count(request), process) {
                ("parent", 0, _) => Turn::call("agent", json!({ "task": "child" })),
                ("parent", _, 2) => Turn::Hang("half"),
                ("child", _, 1) => Turn::Hang("half"),
                // It reports no usage, so the estimate of the lost call is not corrected.
                ("child", _, _) => Turn::Whole(Vec::new(), Box::new(Completion::text("whole"))),
                _ => Turn::say("whole"),
            },
        )
    };
    let first = model(1);
    let mut world = TestRuntime::with(first.clone(), configured).await;
    let request = RunRequest::new("parent").session("s").budget(budget);
    let run = world.runtime().start(request).await.unwrap();
    wait_until("the child calls the model", || {
        first.calls() == 2 && first.in_flight() == 1
    })
    .await;
    let second = model(2);
    world.reopen_with(second.clone(), configured).await;
    wait_until("the parent calls the model", || {
        second.calls() == 2 && second.in_flight() == 1
    })
    .await;
    world.reopen_with(model(3), configured).await;
    let run = resumed(&world, &run);
    with_timeout(run.wait()).await.unwrap();
    let child = run.children().await.unwrap().remove(0);
    let mut estimate = 0;
    for event in stored(world.runtime(), &child.trace_id).await {
        if let Event::Model(ModelEvent::Retrying {
            usage: Some(usage), ..
        }) = &event.event
        {
            estimate = usage.total_tokens();
        }
    }
    let mut prompt_tokens = 0;
    for event in stored(world.runtime(), run.trace_id()).await {
        if let Event::Model(ModelEvent::ContextBuilt {
            estimated_tokens, ..
        }) = event.event
        {
            prompt_tokens = estimated_tokens;
        }
    }
    let record = world.runtime().traces().run(run.run_id()).await.unwrap();
    world.finish().await;
    // The parent's first answer, the child's answer, and the parent's next call.
    (
        record,
        15 + child.usage.total_tokens - estimate + prompt_tokens,
        estimate,
    )
}

/// Interrupts the model call of a run when it has streamed 100 tokens, `answered_after` its start,
/// and resumes the run. Returns what the call is charged.
async fn lost_call(answered_after: Duration, budget: Budget) -> Usage {
    let words = "word ".repeat(100);
    let model = Arc::new(respond_async(move |_| {
        let text = words.clone();
        async move {
            time::pause();
            time::advance(answered_after).await;
            time::resume();
            hang(text)
        }
    }));
    let mut world = TestRuntime::open(model).await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").session("s").budget(budget))
        .await
        .unwrap();
    let mut stream = run.events().unwrap();
    wait_for_text(&mut stream).await;
    drop(stream);
    // The answer to this request says that everything the run received before it is stored.
    world
        .runtime()
        .permissions()
        .set_mode(run.session_id(), PermissionMode::Edits)
        .await
        .unwrap();

    world.reopen(scripted_model(|_| Turn::say("whole"))).await;
    let run = resumed(&world, &run);
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.output, "whole");
    let events = stored(world.runtime(), run.trace_id()).await;
    let charged = events.iter().find_map(|event| match &event.event {
        Event::Model(ModelEvent::Retrying {
            usage: Some(usage), ..
        }) => Some(*usage),
        _ => None,
    });
    let charged = charged.expect("the call is charged");
    assert!(
        charged.estimated && charged.prompt_tokens > 0,
        "{charged:?}"
    );
    let record = world.runtime().traces().run(run.run_id()).await.unwrap();
    // The model reports 10 tokens for the same prompt, so that part of the charge is corrected.
    assert_eq!(record.usage.prompt_tokens, 20);
    assert_eq!(
        record.usage.completion_tokens,
        charged.completion_tokens + 5
    );
    assert_eq!(
        record.usage.total_tokens,
        record.usage.prompt_tokens + record.usage.completion_tokens
    );
    assert_eq!(trace_tokens(&world, &run).await, record.usage.total_tokens);
    assert_eq!(
        outcome.stats.own.total_tokens, record.usage.total_tokens,
        "the state says what the row says"
    );
    assert_eq!(record.turn, 1, "it is the same turn");
    let trace = world.runtime().traces().get(run.trace_id()).await.unwrap();
    assert!(trace.estimated && record.usage.estimated);
    world.finish().await;
    charged
}

async fn trace_tokens(world: &TestRuntime, run: &RunHandle) -> u64 {
    world
        .runtime()
        .traces()
        .get(run.trace_id())
        .await
        .unwrap()
        .total_tokens
}

/// Waits until a text of the model was streamed.
async fn wait_for_text(stream: &mut EventStream) {
    loop {
        let item = with_timeout(stream.next())
            .await
            .expect("the stream ended")
            .unwrap();
        if matches!(item, StreamItem::Delta(_)) {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_tree_makes_no_further_step_after_restart() {
    let first = exploring(3, |_| Turn::Hang("half"));
    let fail = soong_storage::fault::FaultPlan::new();
    let plan = fail.clone();
    let wrap = move |builder: RuntimeBuilder| {
        builder
            .config(quick_config())
            .wrap_store(move |store| Box::new(soong_storage::fault::FaultStore::new(store, plan)))
    };
    let mut world = TestRuntime::with(first.clone(), wrap).await;
    let start = RunRequest::new("job")
        .mode(RunMode::Orchestrator)
        .session("s");
    let run = world.runtime().start(start).await.unwrap();
    wait_until("the children think", || first.in_flight() == 3).await;
    let mut stream = world.runtime().traces().events(run.trace_id(), 0);
    // The cancel request is recorded. Then the disk rejects every write, and the process ends.
    let cancelling = {
        let run = run.clone();
        tokio::spawn(async move { run.cancel().await })
    };
    crate::support::world::read_until(&mut stream, "cancel_requested").await;
    fail.inject_always(soong_storage::fault::Fault::FailBeforeWrite(
        soong_storage::store::StoreError::Io("full".into()),
    ));
    drop(stream);
    let before = world.runtime().traces().run(run.run_id()).await.unwrap();
    let second = exploring(3, |_| Turn::say("late"));
    world.reopen(second.clone()).await;
    let _ = cancelling.await;
    if !before.status.is_terminal() {
        assert!(before.cancel_requested);
    }
    if let Some(run) = world.runtime().traces().active_run(run.trace_id()) {
        with_timeout(run.wait()).await.unwrap();
    }
    assert_eq!(second.calls(), 0, "nobody is asked anything");
    let ended = world.runtime().traces().run(run.run_id()).await.unwrap();
    assert_eq!(ended.status, RunStatus::Cancelled);
    for child in run.children().await.unwrap_or_default() {
        assert!(child.status.is_terminal());
    }
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_runs_stay_unchanged_until_their_session_is_used() {
    let mut world = TestRuntime::open(scripted_model(|_| Turn::Hang("half"))).await;
    let mut left = Vec::new();
    for session in ["a", "b", "c", "d"] {
        left.push(
            world
                .runtime()
                .start(RunRequest::new("first").session(session))
                .await
                .unwrap(),
        );
    }
    let nobody =
        |builder: RuntimeBuilder| builder.recover(RecoveryPolicy::Session(SessionId::new("a")));
    let model = scripted_model(|request| Turn::say(format!("{} messages", request.messages.len())));
    world.reopen_with(model.clone(), nobody).await;
    let found = world.runtime().info().interrupted_runs();
    assert_eq!(
        (
            found.resumed.len(),
            found.ended.len(),
            found.unchanged.len()
        ),
        (1, 0, 3)
    );
    let runtime = world.runtime();
    if let Some(run) = runtime.traces().active_run(&TraceId::new("a")) {
        with_timeout(run.wait()).await.unwrap();
    }
    assert!(runtime.traces().active_run(&TraceId::new("b")).is_none());
    assert_eq!(
        runtime.traces().run(left[1].run_id()).await.unwrap().status,
        RunStatus::Interrupted,
        "nobody has touched it"
    );

    // Resuming without a message resumes the interrupted run.
    let gone_on = runtime.start(RunRequest::resume("b")).await.unwrap();
    assert_eq!(gone_on.run_id(), left[1].run_id());
    assert_eq!(
        with_timeout(gone_on.wait()).await.unwrap().output,
        "1 messages"
    );
    // A new message is queued after the interrupted run.
    let next = runtime
        .start(RunRequest::new("second").session("c"))
        .await
        .unwrap();
    assert_eq!(
        with_timeout(next.wait()).await.unwrap().output,
        "3 messages"
    );
    let before = runtime.traces().run(left[2].run_id()).await.unwrap();
    assert_eq!(before.status, RunStatus::Completed);
    // Ending an interrupted run makes no model call, for this run or any other.
    let calls = model.calls();
    let ended = runtime
        .traces()
        .cancel_interrupted(&TraceId::new("d"))
        .await
        .unwrap();
    assert_eq!(&ended.run_id, left[3].run_id());
    assert_eq!(
        (ended.status, ended.end_reason),
        (RunStatus::Cancelled, Some(EndReason::Cancelled))
    );
    assert_eq!((model.calls(), runtime.info().live_runs()), (calls, 0));
    let nothing = runtime
        .traces()
        .cancel_interrupted(&TraceId::new("d"))
        .await
        .unwrap_err();
    assert_eq!(nothing.code, ErrorCode::NothingRunning);
    for session in ["a", "b", "c", "d"] {
        check_session(runtime, &SessionId::new(session)).await;
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_complete_despite_repeated_restarts() {
    // Each process answers one to three model calls, and ends.
    let steps = Arc::new(AtomicUsize::new(0));
    let mut world = TestRuntime::open(scripted_model(|_| Turn::Hang("half"))).await;
    let start = RunRequest::new("job")
        .mode(RunMode::Orchestrator)
        .session("s");
    let run = world.runtime().start(start).await.unwrap();
    for round in 0.. {
        assert!(round < 40, "it does not come to an end");
        let left = Arc::new(AtomicUsize::new(round % 3 + 1));
        let counted = Arc::clone(&steps);
        let allowed = Arc::clone(&left);
        let model = scripted_model(move |request| {
            if allowed
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                .is_err()
            {
                return Turn::Hang("half");
            }
            counted.fetch_add(1, SeqCst);
            match (is_parent(request), assistant_count(request)) {
                (true, 0) => Turn::call("goal", json!({ "add": ["look", "tell"], "focus": "1" })),
                (true, 1) => Turn::call("agent", json!({ "task": ["one", "two", "three"] })),
                (true, 2) => Turn::call(
                    "create_artifact",
                    json!({ "name": "report.md", "content": "found\n" }),
                ),
                (true, _) => Turn::say("done"),
                (false, 0) => Turn::call("read", json!({ "path": "a.txt" })),
                (false, _) => Turn::say("alpha"),
            }
        });
        world.reopen(model.clone()).await;
        let Some(run) = world.runtime().traces().active_run(run.trace_id()) else {
            break;
        };
        let hangs =
            || model.in_flight() > 0 && left.load(SeqCst) == 0 && model.calls() > round % 3 + 1;
        let ended = || {
            world
                .runtime()
                .traces()
                .active_run(run.trace_id())
                .is_none()
        };
        wait_until("it neither hangs nor ends", || hangs() || ended()).await;
    }
    let ended = world.runtime().traces().run(run.run_id()).await.unwrap();
    assert_eq!((ended.status, ended.turn), (RunStatus::Completed, 4));
    let messages = world
        .runtime()
        .traces()
        .messages(run.trace_id(), soong::MessagePath::Main)
        .await
        .unwrap();
    assert_eq!(
        messages
            .iter()
            .filter(|message| message.role == Role::Tool)
            .count(),
        3
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_branch_ends_alone_and_the_rest_resumes_later() {
    let first = exploring(3, |_| Turn::Hang("half"));
    let mut world = TestRuntime::open(first.clone()).await;
    let start = RunRequest::new("job")
        .mode(RunMode::Orchestrator)
        .session("s");
    let run = world.runtime().start(start).await.unwrap();
    let queued = world
        .runtime()
        .start(RunRequest::new("after it").session("s"))
        .await
        .unwrap();
    wait_until("the children think", || first.in_flight() == 3).await;
    let child = run.children().await.unwrap().remove(1);
    let second = exploring(3, |_| Turn::say("late"));
    world
        .reopen_with(second.clone(), |builder| {
            builder.recover(RecoveryPolicy::Nothing)
        })
        .await;
    let ended = world
        .runtime()
        .traces()
        .cancel_interrupted(&child.trace_id)
        .await
        .unwrap();
    assert_eq!(
        (&ended.run_id, ended.status),
        (&child.run_id, RunStatus::Cancelled)
    );
    assert_eq!((second.calls(), world.runtime().info().live_runs()), (0, 0));
    assert_eq!(
        world
            .runtime()
            .traces()
            .run(run.run_id())
            .await
            .unwrap()
            .status,
        RunStatus::Interrupted,
        "nobody has touched it"
    );
    // A trace that has ended cannot be ended again, and the attempt affects no other run.
    let nothing = world
        .runtime()
        .traces()
        .cancel_interrupted(&child.trace_id)
        .await
        .unwrap_err();
    assert_eq!(
        (nothing.code, world.runtime().info().live_runs()),
        (ErrorCode::NothingRunning, 0)
    );
    let same = world
        .runtime()
        .sessions()
        .resume(&SessionId::new("s"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(with_timeout(same.wait()).await.unwrap().output, "got 2");
    if let Ok(last) = world.runtime().traces().handle(queued.run_id()) {
        with_timeout(last.wait()).await.unwrap();
    }
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (MSG-6)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_sub_agent_calls_say_how_to_continue() {
    let calls = [
        ("agent", json!({ "task": ["done", "left", "right"] })),
        ("agent", json!({ "task": "alone" })),
        ("evaluate", json!({})),
    ];
    for (tool, arguments) in calls {
        let call_arguments = arguments.clone();
        let first = scripted_model(
            move |request| match (is_parent(request), task_of(request)) {
                (true, _) => Turn::call(tool, call_arguments.clone()),
                (_, "done") => Turn::say("found it"),
                _ => Turn::Hang("half"),
            },
        );
        let mut world = TestRuntime::with(first.clone(), narrow(8)).await;
        let run = world
            .runtime()
            .start(
                RunRequest::new("job")
                    .mode(RunMode::Orchestrator)
                    .session("s"),
            )
            .await
            .unwrap();
        let explores = arguments["task"].is_array();
        // The first call is the parent's; wait for the calls of the children.
        let hang = || first.calls() > 1 && first.in_flight() == if explores { 2 } else { 1 };
        wait_until("those that hang are at work", hang).await;
        while explores && run.results().await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }

        // The next process ends the interrupted runs. A new run of the session must find one result
        // for the call.
        let healed: Arc<Mutex<Vec<String>>> = Arc::default();
        let received = Arc::clone(&healed);
        let second = scripted_model(move |request| {
            let results = request
                .messages
                .iter()
                .filter(|message| message.role == Role::Tool);
            *received.lock().unwrap() =
                results.map(|message| message.content.to_string()).collect();
            Turn::say("I see")
        });
        let ends = |builder: RuntimeBuilder| {
            let mut config = quick_config();
            config.runtime.recovery = Some(soong::protocol::RecoveryMode::Fail);
            builder.config(config)
        };
        world.reopen_with(second.clone(), ends).await;
        for round in 0..2 {
            let next = world
                .runtime()
                .start(RunRequest::new("and now?").session("s"))
                .await
                .unwrap();
            assert_eq!(
                with_timeout(next.wait()).await.unwrap().status,
                RunStatus::Completed
            );
            let healed = healed.lock().unwrap().clone();
            assert_eq!(
                healed.len(),
                1,
                "round {round}: the call has one outcome: {healed:?}"
            );
            let healed: Value = serde_json::from_str(&healed[0]).unwrap();
            let mut results = healed["results"]
                .as_array()
                .cloned()
                .unwrap_or_else(|| vec![healed.clone()]);
            if explores {
                assert_eq!(results.len(), 3);
                let done = results.remove(0);
                assert_eq!(
                    (&done["status"], &done["summary"]),
                    (&json!("completed"), &json!("found it"))
                );
            }
            for cut_off in results {
                let trace = cut_off["sub_trace_id"].as_str().unwrap();
                assert!(trace.starts_with("s@"), "{trace}");
                assert_eq!(cut_off["status"], "interrupted", "{cut_off:#}");
                let hint = cut_off["hint"].as_str().unwrap();
                assert!(
                    hint.contains(&format!("call {tool}("))
                        && hint.contains(&format!("continue_from=\"{trace}\""))
                );
                assert!(
                    cut_off["stats"]["own"]["total_tokens"].is_u64(),
                    "{cut_off:#}"
                );
            }
        }
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

/// The temporary file of a `write` that was cut off by a kill goes when the home is opened again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporary_file_of_a_killed_write_is_removed() {
    let model = scripted_model(|request| match assistant_count(request) {
        0 => Turn::call("write", json!({"path": "sub/new.txt", "content": "x"})),
        _ => Turn::say("done"),
    });
    let mut world =
        TestRuntime::with(model.clone(), |builder| builder.permissions_by_users()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap();
    wait_for_permissions(world.runtime(), 1).await;
    drop(run);
    world.close_runtime().await;
    let folder = world.project().join("sub");
    std::fs::create_dir_all(&folder).unwrap();
    let abandoned = folder.join(".soong-0199c0de9e7b7a6b8d1f0a1b2c3d4e5f.tmp");
    std::fs::write(&abandoned, "half of it").unwrap();
    let beside = world
        .project()
        .join(".soong-0199c0de9e7b7a6b8d1f0a1b2c3d4e5f.tmp");
    std::fs::write(&beside, "in a folder that no call wrote").unwrap();
    world
        .reopen_with(model, |builder| {
            builder
                .permissions_by_users()
                .recover(RecoveryPolicy::Nothing)
        })
        .await;
    wait_until("the temporary file is removed", || !abandoned.exists()).await;
    assert!(beside.exists());
    world.finish().await;
}
