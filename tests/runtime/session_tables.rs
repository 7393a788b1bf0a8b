//! Session rules as tables: the order of the queue, requests that are rejected while a run is
//! active, and the message from which a session continues (SES-1 … SES-5). Elsewhere: single cases
//! in detail (`sessions.rs`).

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use serde_json::json;
use soong::{
    ErrorCode, ErrorInfo, MessagePath, RunHandle, RunRequest,
    model::{Failure, ModelError, ModelRequest},
    protocol::{EndReason, Message, Role, RunStatus, SessionId, TraceId},
};

use crate::support::{
    history::{check_messages, check_session, stored},
    model::{ScriptedModel, Turn, last_of, scripted_model},
    tool::HangOnceTool,
    world::{
        TestRuntime, kinds, quick_non_durable_config, read_to_end, read_until, wait_until,
        with_timeout,
    },
};

/// Returns a model that answers with the last user message, but answers `first` only after a
/// notification; also its requests, in order, and the notification.
fn first_come() -> (
    Arc<ScriptedModel>,
    Arc<Mutex<Vec<String>>>,
    Arc<tokio::sync::Notify>,
) {
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let go = Arc::new(tokio::sync::Notify::new());
    let log = Arc::clone(&requests);
    let signal = Arc::clone(&go);
    let model = scripted_model(move |request| {
        let prompt = last_of(request).to_owned();
        log.lock().unwrap().push(prompt.clone());
        if prompt == "first" {
            Turn::When(Arc::clone(&signal), prompt)
        } else {
            Turn::say(prompt)
        }
    });
    (model, requests, go)
}

/// (SES-1, SES-3)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_queued_runs_keeps_the_order_of_the_others() {
    for order in [
        &[0][..],
        &[2],
        &[4],
        &[1, 3],
        &[4, 0],
        &[0, 1, 2, 3, 4],
        &[4, 3, 2, 1, 0],
        &[2, 0, 4, 1, 3],
    ] {
        for at_once in [false, true] {
            let row = format!("{order:?} at once: {at_once}");
            let (model, requests, go) = first_come();
            let world = TestRuntime::with(model.clone(), |builder| {
                builder.config(quick_non_durable_config())
            })
            .await;
            let begin = async |name: &str| {
                world
                    .runtime()
                    .start(RunRequest::new(name).session("s"))
                    .await
                    .unwrap()
            };
            let first = begin("first").await;
            let mut waiting = Vec::new();
            for name in ["a", "b", "c", "d", "e"] {
                waiting.push(begin(name).await);
            }
            wait_until("the first is at work", || model.in_flight() == 1).await;
            if at_once {
                with_timeout(futures::future::join_all(
                    order.iter().map(|index| waiting[*index].cancel()),
                ))
                .await;
            } else {
                for index in order {
                    with_timeout(waiting[*index].cancel()).await.unwrap();
                }
            }
            for index in order {
                let run = &waiting[*index];
                let outcome = with_timeout(run.wait()).await.unwrap();
                assert_eq!(
                    (outcome.status, outcome.end_reason),
                    (RunStatus::Cancelled, EndReason::Cancelled),
                    "{row}"
                );
                let events = read_to_end(run.events().unwrap()).await;
                assert_eq!(
                    kinds(&events),
                    ["run_queued", "run_dequeued", "run_cancelled"],
                    "{row}"
                );
                assert!(
                    events[1].data.contains("\"cancelled\":true"),
                    "{row}: {}",
                    events[1].data
                );
                assert!(
                    events[2].data.contains("\"queued\":true"),
                    "{row}: {}",
                    events[2].data
                );
            }
            go.notify_one();
            let mut want = vec!["first"];
            assert_eq!(
                with_timeout(first.wait()).await.unwrap().output,
                "first",
                "{row}"
            );
            for (index, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
                if !order.contains(&index) {
                    assert_eq!(
                        with_timeout(waiting[index].wait()).await.unwrap().output,
                        name,
                        "{row}"
                    );
                    want.push(name);
                }
            }
            assert_eq!(
                *requests.lock().unwrap(),
                want,
                "{row}: a cancelled run sends no request"
            );
            check_session(world.runtime(), first.session_id()).await;
            world.finish().await;
        }
    }
}

/// (SES-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_a_session_execute_in_start_order() {
    const RUNS: usize = 60;
    let (model, requests, go) = first_come();
    let world =
        TestRuntime::with(model, |builder| builder.config(quick_non_durable_config())).await;
    let mut runs = vec![
        world
            .runtime()
            .start(RunRequest::new("first").session("s"))
            .await
            .unwrap(),
    ];
    for n in 1..RUNS {
        runs.push(
            world
                .runtime()
                .start(RunRequest::new(n.to_string()).session("s"))
                .await
                .unwrap(),
        );
    }
    go.notify_one();
    for run in runs.iter().rev() {
        with_timeout(run.wait()).await.unwrap();
    }
    let want: Vec<String> = ["first".to_owned()]
        .into_iter()
        .chain((1..RUNS).map(|n| n.to_string()))
        .collect();
    assert_eq!(*requests.lock().unwrap(), want);
    let mut ended = None;
    for run in &runs {
        let record = run.record().await.unwrap();
        assert!(ended <= record.started_at, "one at a time: {record:?}");
        ended = record.completed_at;
    }
    check_session(world.runtime(), runs[0].session_id()).await;
    world.finish().await;
}

/// Makes every kind of request that needs exclusive use of a session, and returns the outcomes by
/// name.
async fn exclusive_requests(world: &TestRuntime) -> Vec<(&'static str, Result<(), ErrorInfo>)> {
    let runtime = world.runtime();
    let id = SessionId::new("s");
    let alone = RunRequest::new("x").session("s").reject_if_busy();
    vec![
        ("alone", runtime.start(alone).await.map(drop)),
        (
            "go on",
            runtime.start(RunRequest::resume("s")).await.map(drop),
        ),
        (
            "rewind",
            runtime
                .start(RunRequest::new("x").session("s").after(2))
                .await
                .map(drop),
        ),
        (
            "rewind and go on",
            runtime
                .start(RunRequest::resume("s").after(2))
                .await
                .map(drop),
        ),
        (
            "switch",
            runtime.sessions().switch_head(&id, 2).await.map(drop),
        ),
        ("delete", runtime.sessions().delete(&id).await),
    ]
}

/// (SES-1, SES-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exclusive_requests_are_rejected_while_a_run_is_unfinished() {
    let world = TestRuntime::with(
        scripted_model(|request| match last_of(request) {
            "hang" => Turn::Hang("half"),
            _ => Turn::say("answer"),
        }),
        |builder| builder.config(quick_non_durable_config()),
    )
    .await;
    let begin = async |name: &str| {
        world
            .runtime()
            .start(RunRequest::new(name).session("s"))
            .await
            .unwrap()
    };
    let trace = TraceId::new("s");
    with_timeout(begin("one").await.wait()).await.unwrap();
    let refused = async |state: &str| {
        let before = stored(world.runtime(), &trace).await.len();
        for (request, outcome) in exclusive_requests(&world).await {
            let error = outcome.expect_err(request);
            assert_eq!(
                (error.code, error.retryable),
                (ErrorCode::SessionActive, true),
                "{state}, {request}: {error}"
            );
        }
        assert_eq!(
            stored(world.runtime(), &trace).await.len(),
            before,
            "{state}: nothing changes"
        );
    };
    let at_work = begin("hang").await;
    read_until(&mut at_work.events().unwrap(), "model_started").await;
    refused("a run is at work").await;
    let waiting = begin("hang").await;
    refused("another one waits").await;
    with_timeout(at_work.cancel()).await.unwrap();
    read_until(&mut waiting.events().unwrap(), "model_started").await;
    refused("the one that waited is at work").await;
    with_timeout(waiting.cancel()).await.unwrap();
    // Now each of them is accepted, one after the other.
    let runtime = world.runtime();
    let id = SessionId::new("s");
    let alone = RunRequest::new("x").session("s").reject_if_busy();
    for start in [
        alone,
        RunRequest::new("x").session("s").after(2),
        RunRequest::resume("s").after(2),
    ] {
        with_timeout(runtime.start(start).await.unwrap().wait())
            .await
            .unwrap();
    }
    runtime.sessions().switch_head(&id, 2).await.unwrap();
    with_timeout(runtime.start(RunRequest::resume("s")).await.unwrap().wait())
        .await
        .unwrap();
    check_session(runtime, &id).await;
    runtime.sessions().delete(&id).await.unwrap();
    drop((at_work, waiting));
    world.finish().await;
}

/// Kind of end of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Answer,
    Refusal,
    BrokenStream,
    CutAtItsLimit,
    CancelBeforeText,
    CancelInText,
    CancelInTools,
    LastTurn,
}

/// State after a run: its status and end reason, the message at the head of the conversation, and
/// the partial text.
struct Left {
    status: RunStatus,
    reason: EndReason,
    head: &'static str,
    partial: Option<&'static str>,
}

fn left(
    status: RunStatus,
    reason: EndReason,
    head: &'static str,
    partial: Option<&'static str>,
) -> Left {
    Left {
        status,
        reason,
        head,
        partial,
    }
}

fn ending(end: End, request: &ModelRequest) -> Turn {
    let user_index = request
        .messages
        .iter()
        .rposition(|message| message.role == Role::User)
        .unwrap();
    let is_first = request.messages[user_index..]
        .iter()
        .all(|message| message.role != Role::Assistant);
    match (request.messages[user_index].content.as_str(), end) {
        ("try", End::Refusal) => Turn::Fail(ModelError::new(Failure::Rejected, "no")),
        ("try", End::BrokenStream) => Turn::Break("half", ModelError::new(Failure::Rejected, "no")),
        ("try", End::CutAtItsLimit) => Turn::Cut("half"),
        ("try", End::CancelBeforeText) => Turn::Hang(""),
        ("try", End::CancelInText) => Turn::Hang("half"),
        ("try", End::CancelInTools) => Turn::Call(vec![
            ("read", json!({"path": "a.txt"})),
            ("hang", json!({})),
        ]),
        ("try", End::LastTurn) if is_first => Turn::call("read", json!({"path": "a.txt"})),
        (said, _) => Turn::say(format!("{said}: done")),
    }
}

/// State after each kind of end.
fn ends() -> [(End, Left); 8] {
    use EndReason as R;
    use RunStatus::{Cancelled, Completed, Failed};
    [
        (
            End::Answer,
            left(Completed, R::Completed, "try: done", None),
        ),
        (End::Refusal, left(Failed, R::Failed, "try", None)),
        (
            End::BrokenStream,
            left(Failed, R::AbortedStreaming, "try", Some("half")),
        ),
        (
            End::CutAtItsLimit,
            left(Failed, R::MaxOutputTokens, "try", Some("half")),
        ),
        (
            End::CancelBeforeText,
            left(Cancelled, R::AbortedStreaming, "try", None),
        ),
        (
            End::CancelInText,
            left(Cancelled, R::AbortedStreaming, "try", Some("half")),
        ),
        (
            End::CancelInTools,
            left(
                Cancelled,
                R::AbortedTools,
                "Error [cancelled]: cancelled",
                None,
            ),
        ),
        (
            End::LastTurn,
            left(Failed, R::MaxTurns, "    1\talpha", None),
        ),
    ]
}

async fn run_to_its_end(
    world: &TestRuntime,
    model: &ScriptedModel,
    called: &AtomicUsize,
    end: End,
) -> RunHandle {
    let mut start = RunRequest::new("try").session("s");
    start.settings.max_turns = (end == End::LastTurn).then_some(1).into();
    // Subscribes before the run starts, because text that has already been streamed is not sent to
    // new subscribers.
    let mut events = world.runtime().sessions().events(&SessionId::new("s"), 0);
    let run = world.runtime().start(start).await.unwrap();
    match end {
        End::CancelBeforeText => wait_until("it thinks", || model.in_flight() == 1).await,
        End::CancelInText => {
            while !matches!(
                with_timeout(events.next()).await.unwrap().unwrap(),
                soong::StreamItem::Delta(_)
            ) {}
        }
        End::CancelInTools => {
            // The other call has its result, which precedes the result of the interrupted call.
            read_until(&mut events, "tool_completed").await;
            wait_until("the tool is at work", || called.load(SeqCst) == 1).await;
        }
        _ => {
            with_timeout(run.wait()).await.unwrap();
        }
    }
    with_timeout(run.cancel()).await.unwrap();
    run
}

async fn main_path(world: &TestRuntime) -> Vec<Message> {
    let messages = world
        .runtime()
        .traces()
        .messages(&TraceId::new("s"), MessagePath::Main)
        .await
        .unwrap();
    check_messages(&messages);
    let head = world
        .runtime()
        .traces()
        .get(&TraceId::new("s"))
        .await
        .unwrap()
        .head_sequence;
    assert_eq!(
        messages.last().unwrap().sequence,
        head,
        "the path ends at the head"
    );
    messages
}

/// (SES-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_continues_from_last_complete_message_after_any_end() {
    for (end, want) in ends() {
        for reopened in [false, true] {
            let row = format!("{end:?}, reopened: {reopened}");
            let seen: Arc<Mutex<Vec<ModelRequest>>> = Arc::default();
            let log = Arc::clone(&seen);
            let model = scripted_model(move |request| {
                log.lock().unwrap().push(request.clone());
                ending(end, request)
            });
            let called = Arc::new(AtomicUsize::new(0));
            let hang = HangOnceTool::new(false, &called);
            let hang_after_reopen = HangOnceTool::new(false, &called);
            let mut world = TestRuntime::with(model.clone(), |builder| {
                builder.config(quick_non_durable_config()).tool(hang)
            })
            .await;
            let run = run_to_its_end(&world, &model, &called, end).await;
            let outcome = with_timeout(run.wait()).await.unwrap();
            assert_eq!(
                (outcome.status, outcome.end_reason),
                (want.status, want.reason),
                "{row}"
            );
            let run_id = run.run_id().clone();
            drop((run, outcome));
            if reopened {
                world
                    .reopen_with(model.clone(), |builder| {
                        builder
                            .config(quick_non_durable_config())
                            .tool(hang_after_reopen)
                    })
                    .await;
            }
            let before = main_path(&world).await;
            let head = before.last().unwrap();
            assert_eq!(
                (head.content.lines().next(), head.partial),
                (Some(want.head), false),
                "{row}"
            );
            let whole = world
                .runtime()
                .traces()
                .messages(&TraceId::new("s"), MessagePath::All)
                .await
                .unwrap();
            let partial: Vec<&str> = whole
                .iter()
                .filter(|message| message.partial)
                .map(|message| message.content.as_str())
                .collect();
            assert_eq!(
                partial,
                want.partial.into_iter().collect::<Vec<_>>(),
                "{row}: it is kept, and marked"
            );
            let stored = world
                .runtime()
                .traces()
                .outcome(&run_id)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(
                (stored.status, stored.end_reason),
                (want.status, want.reason),
                "{row}"
            );

            seen.lock().unwrap().clear();
            let next = world
                .runtime()
                .start(RunRequest::new("next").session("s"))
                .await
                .unwrap();
            assert_eq!(
                with_timeout(next.wait()).await.unwrap().output,
                "next: done",
                "{row}"
            );
            let after = main_path(&world).await;
            assert_eq!(
                after[..before.len()],
                before,
                "{row}: what was there stays as it was"
            );
            let requests = std::mem::take(&mut *seen.lock().unwrap());
            // The model was sent the main path, and never the partial text.
            let shown: Vec<&str> = requests[0]
                .messages
                .iter()
                .map(|message| message.content.as_str())
                .collect();
            let path: Vec<&str> = after[1..after.len() - 1]
                .iter()
                .map(|message| message.content.as_str())
                .collect();
            assert_eq!(shown, path, "{row}");
            let all_shown = requests.iter().flat_map(|request| &request.messages);
            assert!(
                all_shown.clone().count() > 0 && all_shown.clone().all(|one| !one.partial),
                "{row}"
            );
            assert!(all_shown.clone().all(|one| one.content != "half"), "{row}");
            check_session(world.runtime(), &SessionId::new("s")).await;
            world.finish().await;
        }
    }
}
