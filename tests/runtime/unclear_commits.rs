//! The disk reports a failed commit that may or may not have been stored: no caller waits forever
//! for its command (DUR-6).
//!
//! Each case has one command, and one or two faults in the commits after it. A caller that receives
//! a retryable error repeats the command. Then the run must end, whichever commit failed in which
//! way.

use std::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};

use serde_json::json;
use soong::{
    ChildSpec, ErrorCode, ErrorInfo, RunHandle, RunRequest, Runtime, SessionSpec,
    model::ModelRequest,
    protocol::{Config, Decision, Role, RunStatus, SessionId, TraceId},
};
use soong_storage::{
    fault::{Fault, FaultPlan, FaultStore},
    store::StoreError,
};

use crate::support::{
    history::check_session,
    model::{Turn, last_of, scripted_model},
    stamp::StampTool,
    world::{
        TestRuntime, quick_non_durable_config, run_until_false, wait_for_permissions,
        wait_for_questions, wait_until, with_timeout,
    },
};

/// Number of commits after a command that may fail.
const COMMITS: u64 = 4;

/// Command to a run or to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Start,
    Queue,
    Cancel,
    CancelQueued,
    Answer,
    Allow,
    AllowForSession,
    Deny,
    LetTimePass,
    Spawn,
    Finish,
    Fork,
    Delete,
    Rewind,
    SwitchHead,
    Reflect,
    SpawnSeveral,
    SaveArtifact,
    EditArtifact,
    DeleteArtifact,
    CreateSession,
}

const COMMANDS: [Command; 21] = {
    use Command::{
        Allow, AllowForSession, Answer, Cancel, CancelQueued, CreateSession, Delete,
        DeleteArtifact, Deny, EditArtifact, Finish, Fork, LetTimePass, Queue, Reflect, Rewind,
        SaveArtifact, Spawn, SpawnSeveral, Start, SwitchHead,
    };
    [
        Start,
        Queue,
        Cancel,
        CancelQueued,
        Answer,
        Allow,
        AllowForSession,
        Deny,
        LetTimePass,
        Spawn,
        Finish,
        Fork,
        Delete,
        Rewind,
        SwitchHead,
        Reflect,
        SpawnSeveral,
        SaveArtifact,
        EditArtifact,
        DeleteArtifact,
        CreateSession,
    ]
};

/// Returns the combinations of faults: the position of each commit that fails, and whether its
/// writes are stored nevertheless.
fn faults() -> Vec<Vec<(u64, bool)>> {
    let single: Vec<(u64, bool)> = (1..=COMMITS)
        .flat_map(|at| [(at, false), (at, true)])
        .collect();
    let pairs = single.iter().flat_map(|first| {
        let later = single.iter().filter(|second| second.0 > first.0);
        later.map(|second| vec![*first, *second])
    });
    single
        .iter()
        .map(|fault| vec![*fault])
        .chain(pairs)
        .collect()
}

fn script(request: &ModelRequest) -> Turn {
    let user_index = request
        .messages
        .iter()
        .rposition(|message| message.role == Role::User)
        .unwrap();
    let answer_count = request.messages[user_index..]
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .count();
    match (request.messages[user_index].content.as_str(), answer_count) {
        ("ask", 0) => Turn::call("ask_human", json!({ "question": "which?" })),
        ("stamp", 0) => Turn::call("stamp", json!({ "word": "one", "place": "a" })),
        ("hang", _) => Turn::Hang("x"),
        _ if request.system[0].starts_with("You review an agent") => {
            Turn::say(r#"{"experiences": []}"#)
        }
        _ => Turn::say(format!("said {}", last_of(request))),
    }
}

/// Repeats a command while its error is retryable, at most 500 times. `None`: the command had
/// already taken effect, possibly by an earlier attempt.
async fn insist<T>(mut attempt: impl AsyncFnMut() -> Result<T, ErrorInfo>) -> Option<T> {
    let mut last = None;
    for _ in 0..500 {
        match with_timeout(attempt()).await {
            Ok(done) => return Some(done),
            // An earlier attempt was recorded, and its run has not ended.
            Err(error) if error.code == ErrorCode::SessionActive => {
                last = Some(error);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) if error.retryable => last = Some(error),
            Err(error) => {
                let was_first = matches!(
                    error.code,
                    ErrorCode::AlreadyDecided
                        | ErrorCode::SessionNotFound
                        | ErrorCode::ValidationError
                        | ErrorCode::NoMatch
                        | ErrorCode::ArtifactNotFound
                );
                assert!(was_first, "{error}");
                return None;
            }
        }
    }
    panic!("it is never done: {last:?}");
}

fn config(command: Command) -> Config {
    let mut config = quick_non_durable_config();
    config.permissions.timeout_s = u64::from(command == Command::LetTimePass);
    config
}

async fn begin(runtime: &Runtime, message: &str) -> RunHandle {
    runtime
        .start(RunRequest::new(message).session("s"))
        .await
        .unwrap()
}

/// Prepares the session, injects the faults, executes the command, and returns the run that has to
/// end.
async fn ask(
    world: &TestRuntime,
    plan: &FaultPlan,
    faults: &[(u64, bool)],
    command: Command,
) -> Option<RunHandle> {
    let runtime = world.runtime();
    let fail = || {
        let next = plan.commits();
        for (at, is_stored) in faults {
            let error = StoreError::Io("no space left on device".into());
            plan.inject_at(
                next + at,
                if *is_stored {
                    Fault::FailAfterWrite(error)
                } else {
                    Fault::FailBeforeWrite(error)
                },
            );
        }
    };
    let start = async |message: &str| {
        insist(async || runtime.start(RunRequest::new(message).session("s")).await).await
    };
    match command {
        Command::Start => {
            fail();
            start("hello").await
        }
        Command::Queue => {
            let first = begin(runtime, "hang").await;
            fail();
            let second = start("hello").await;
            insist(async || first.cancel().await).await;
            second
        }
        Command::Cancel => {
            let run = begin(runtime, "hang").await;
            fail();
            insist(async || run.request_cancel().await).await;
            Some(run)
        }
        Command::CancelQueued => {
            let first = begin(runtime, "hang").await;
            let second = begin(runtime, "hang").await;
            fail();
            insist(async || second.request_cancel().await).await;
            insist(async || first.request_cancel().await).await;
            Some(second)
        }
        Command::Answer => {
            let run = begin(runtime, "ask").await;
            let question = with_timeout(wait_for_questions(runtime, 1))
                .await
                .remove(0)
                .question_id;
            fail();
            insist(async || runtime.questions().answer(&question, "this one").await).await;
            Some(run)
        }
        Command::Allow | Command::AllowForSession | Command::Deny => {
            let run = begin(runtime, "stamp").await;
            let permission = with_timeout(wait_for_permissions(runtime, 1))
                .await
                .remove(0)
                .permission_id;
            let decision = match command {
                Command::Allow => Decision::AllowOnce,
                Command::Deny => Decision::Deny,
                _ => Decision::AllowForSession,
            };
            fail();
            insist(async || {
                runtime
                    .permissions()
                    .decide(&permission, decision, None)
                    .await
            })
            .await;
            Some(run)
        }
        Command::LetTimePass => {
            let run = begin(runtime, "stamp").await;
            with_timeout(wait_for_permissions(runtime, 1)).await;
            fail();
            Some(run)
        }
        Command::Spawn => {
            let parent = runtime
                .start(RunRequest::driven("work").session("s"))
                .await
                .unwrap();
            fail();
            let child = insist(async || parent.spawn(ChildSpec::new("hello")).await).await;
            with_timeout(child.unwrap().wait()).await.unwrap();
            parent.finish("done").unwrap();
            Some(parent)
        }
        Command::Finish => {
            let parent = runtime
                .start(RunRequest::driven("work").session("s"))
                .await
                .unwrap();
            fail();
            parent.finish("done").unwrap();
            Some(parent)
        }
        Command::Fork => {
            let run = begin(runtime, "hello").await;
            with_timeout(run.wait()).await.unwrap();
            let fork = || soong::Fork {
                session_id: Some("copy".to_owned()),
                ..Default::default()
            };
            fail();
            insist(async || runtime.sessions().fork(&SessionId::new("s"), fork()).await).await;
            runtime
                .sessions()
                .get(&SessionId::new("copy"))
                .await
                .unwrap();
            Some(run)
        }
        Command::Rewind | Command::SwitchHead | Command::Reflect => {
            let run = begin(runtime, "hello").await;
            with_timeout(run.wait()).await.unwrap();
            fail();
            match command {
                Command::Rewind => {
                    let back = || RunRequest::new("again").session("s").after(2);
                    insist(async || runtime.start(back()).await).await
                }
                Command::Reflect => {
                    insist(async || runtime.start(RunRequest::reflect("s", None)).await).await
                }
                _ => {
                    insist(async || {
                        runtime
                            .sessions()
                            .switch_head(&SessionId::new("s"), 2)
                            .await
                    })
                    .await;
                    assert_eq!(
                        runtime
                            .traces()
                            .get(&TraceId::new("s"))
                            .await
                            .unwrap()
                            .head_sequence,
                        2
                    );
                    Some(run)
                }
            }
        }
        Command::SpawnSeveral => {
            let parent = runtime
                .start(RunRequest::driven("work").session("s"))
                .await
                .unwrap();
            fail();
            let children = insist(async || parent.spawn_all(["one", "two"]).await).await;
            for outcome in with_timeout(children.unwrap().join()).await {
                outcome.unwrap();
            }
            parent.finish("done").unwrap();
            Some(parent)
        }
        Command::SaveArtifact | Command::EditArtifact | Command::DeleteArtifact => {
            let run = begin(runtime, "hello").await;
            with_timeout(run.wait()).await.unwrap();
            let owner = runtime
                .artifacts()
                .owner(&SessionId::new("s"))
                .await
                .unwrap();
            let save = async || {
                runtime
                    .artifacts()
                    .put(&owner, "note", "text/plain", "one".into())
                    .await
            };
            if command != Command::SaveArtifact {
                save().await.unwrap();
            }
            fail();
            match command {
                Command::SaveArtifact => drop(insist(save).await),
                Command::EditArtifact => {
                    insist(async || runtime.artifacts().edit(&owner, "note", "one", "two").await)
                        .await;
                }
                _ => drop(insist(async || runtime.artifacts().delete(&owner, "note").await).await),
            }
            plan.clear();
            let found = runtime.artifacts().list(&owner).await.unwrap();
            assert_eq!(
                found.len(),
                usize::from(command != Command::DeleteArtifact),
                "{command:?} {faults:?}"
            );
            Some(run)
        }
        Command::CreateSession => {
            fail();
            let new = || SessionSpec {
                session_id: Some("s".to_owned()),
                ..SessionSpec::default()
            };
            insist(async || runtime.sessions().create(new()).await).await;
            plan.clear();
            runtime.sessions().get(&SessionId::new("s")).await.unwrap();
            None
        }
        Command::Delete => {
            let run = begin(runtime, "hello").await;
            with_timeout(run.wait()).await.unwrap();
            fail();
            insist(async || runtime.sessions().delete(&SessionId::new("s")).await).await;
            assert_eq!(
                runtime
                    .sessions()
                    .get(&SessionId::new("s"))
                    .await
                    .unwrap_err()
                    .code,
                ErrorCode::SessionNotFound
            );
            None
        }
    }
}

#[test]
fn no_caller_waits_forever_after_an_unclear_commit() {
    let faults = faults();
    let cases: Vec<(Command, &[(u64, bool)])> = COMMANDS
        .iter()
        .flat_map(|command| faults.iter().map(|faults| (*command, faults.as_slice())))
        .collect();
    let ended = AtomicU64::new(0);
    run_until_false(async |number| {
        let Some((command, faults)) = cases.get(number as usize - 1) else {
            return false;
        };
        let plan = FaultPlan::new();
        let tool = StampTool::new();
        let wrapped = plan.clone();
        let world = TestRuntime::with(scripted_model(script), |builder| {
            let builder = builder
                .config(config(*command))
                .tool(tool.clone())
                .permissions_by_users();
            builder.wrap_store(move |store| Box::new(FaultStore::new(store, wrapped)))
        })
        .await;
        if let Some(run) = ask(&world, &plan, faults, *command).await {
            let ending = tokio::time::timeout(Duration::from_secs(20), run.wait()).await;
            let status = ending
                .unwrap_or_else(|_| panic!("{command:?} with {faults:?}: the run waits"))
                .unwrap()
                .status;
            let is_cancel = matches!(command, Command::Cancel | Command::CancelQueued);
            let want = if is_cancel {
                RunStatus::Cancelled
            } else {
                RunStatus::Completed
            };
            assert_eq!(status, want, "{command:?} with {faults:?}");
            plan.clear();
            // A start that was rejected, but recorded, ends later.
            wait_until("all runs end", || world.runtime().info().live_runs() == 0).await;
            check_session(world.runtime(), run.session_id()).await;
        }
        ended.fetch_add(1, SeqCst);
        plan.clear();
        world.finish().await;
        true
    });
    assert_eq!(ended.load(SeqCst), cases.len() as u64);
}
