//! The actions of a history, chosen by its seed.

use soong::{
    ActorKind, ActorView, ChildSpec, ErrorCode, ErrorInfo, Fork, MessagePath, PermissionFilter,
    QuestionFilter, RunFilter, RunRequest, Runtime,
    protocol::{
        Budget, Decision, Message, PermissionMode, PermissionStatus, QuestionStatus, Role, RunMode,
        SessionId, TraceId,
    },
};

use super::random::Random;

/// Number of actions of a history.
pub(crate) const ACTIONS: u64 = 24;
/// Ids of the sessions. They are used again after a deletion.
const SESSIONS: [&str; 4] = ["a", "b", "c", "d"];

/// One action.
#[derive(Debug)]
pub(crate) enum Action {
    /// Starts a run, or continues a conversation.
    Start {
        session: SessionId,
        number: u64,
        budget: Option<Budget>,
        mode: RunMode,
    },
    /// Starts a child of an active run from outside.
    Spawn {
        session: SessionId,
        number: u64,
        deliver: bool,
    },
    /// Cancels the active runs of a session.
    Cancel { session: SessionId },
    /// Crashes an actor.
    Crash { choice: u64 },
    /// Decides about all permissions, and answers all questions.
    Decide { allows: bool },
    /// Changes the permission mode of the active runs of a session.
    SetMode {
        session: SessionId,
        mode: PermissionMode,
    },
    /// Copies a session.
    Fork {
        session: SessionId,
        copy: SessionId,
        choice: u64,
    },
    /// Moves the head to a message.
    SwitchHead { session: SessionId, choice: u64 },
    /// Makes the answer to an earlier message anew, or continues there with another message.
    Regenerate {
        session: SessionId,
        choice: u64,
        number: u64,
    },
    /// Deletes a session.
    Delete { session: SessionId },
    /// Does nothing for a while.
    Pause { ms: u64 },
}

/// Returns the action of a history with this number.
pub(crate) fn action(seed: u64, number: u64) -> Action {
    let mut random = Random::new(seed.wrapping_mul(7_919).wrapping_add(number));
    let session = SessionId::new(SESSIONS[random.below(SESSIONS.len() as u64) as usize]);
    let choice = random.next();
    match random.below(26) {
        0..8 => {
            let budget = match random.below(8) {
                0 => Some(Budget {
                    tool_calls: Some(random.below(6)),
                    ..Budget::default()
                }),
                1 => Some(Budget {
                    tokens: Some(10_000 + random.below(60_000)),
                    ..Budget::default()
                }),
                2 => Some(Budget {
                    children: Some(random.below(3)),
                    ..Budget::default()
                }),
                3 => Some(Budget {
                    model_calls: Some(1 + random.below(5)),
                    ..Budget::default()
                }),
                _ => None,
            };
            let mode = if random.below(3) == 0 {
                RunMode::Normal
            } else {
                RunMode::Orchestrator
            };
            Action::Start {
                session,
                number,
                budget,
                mode,
            }
        }
        8..11 => Action::Spawn {
            session,
            number,
            deliver: random.below(2) == 0,
        },
        11 | 12 => Action::Cancel { session },
        13..16 => Action::Crash { choice },
        16..18 => Action::Decide {
            allows: random.below(3) > 0,
        },
        18 => Action::SetMode {
            session,
            mode: PermissionMode::ALL[random.below(4) as usize],
        },
        19 | 20 => {
            let copy = SessionId::new(SESSIONS[random.below(SESSIONS.len() as u64) as usize]);
            Action::Fork {
                session,
                copy,
                choice,
            }
        }
        21 => Action::SwitchHead { session, choice },
        22 => Action::Regenerate {
            session,
            choice,
            number,
        },
        23 => Action::Delete { session },
        _ => Action::Pause {
            ms: random.below(40),
        },
    }
}

/// Errors with which an action may be refused, because of the state that it meets.
const EXPECTED: [ErrorCode; 10] = [
    ErrorCode::SessionNotFound,
    ErrorCode::TraceNotFound,
    ErrorCode::RunNotFound,
    ErrorCode::SessionActive,
    ErrorCode::NothingRunning,
    ErrorCode::ValidationError,
    ErrorCode::AlreadyDecided,
    ErrorCode::ChildLimitExceeded,
    ErrorCode::BudgetExceeded,
    ErrorCode::ActorNotFound,
];

/// Carries out an action.
///
/// # Errors
/// An error that no state explains.
pub(crate) async fn carry_out(runtime: &Runtime, action: &Action) -> Result<(), ErrorInfo> {
    match try_action(runtime, action).await {
        Err(error) if !EXPECTED.contains(&error.code) && !error.retryable => Err(error),
        _ => Ok(()),
    }
}

async fn try_action(runtime: &Runtime, action: &Action) -> Result<(), ErrorInfo> {
    match action {
        Action::Start {
            session,
            number,
            budget,
            mode,
        } => {
            let mut request = RunRequest::new(format!("job {number}"))
                .session(session.as_str())
                .mode(*mode);
            if let Some(budget) = budget {
                request = request.budget(*budget);
            }
            runtime.start(request).await?;
        }
        Action::Spawn {
            session,
            number,
            deliver,
        } => {
            let active = runtime.runs(RunFilter::active().session(session));
            let Some(run) = active.get(*number as usize % active.len().max(1)) else {
                return Ok(());
            };
            let mut child = ChildSpec::new(format!("program {number}"));
            child.deliver = *deliver;
            run.spawn(child).await?;
        }
        Action::Cancel { session } => {
            for run in runtime.runs(RunFilter::active().session(session)) {
                run.request_cancel().await?;
            }
        }
        Action::Crash { choice } => {
            let actors = crashable_actors(runtime);
            let Some(actor_id) = actors.get(*choice as usize % actors.len().max(1)) else {
                return Ok(());
            };
            runtime.tree().inject_crash(actor_id)?;
        }
        Action::Decide { allows } => answer_people(runtime, *allows).await?,
        Action::SetMode { session, mode } => runtime.permissions().set_mode(session, *mode).await?,
        Action::Fork {
            session,
            copy,
            choice,
        } => {
            let messages = runtime
                .traces()
                .messages(&TraceId::root(session), MessagePath::All)
                .await?;
            let at = pick(&messages, *choice)
                .map(|message| message.sequence)
                .filter(|_| choice % 3 > 0);
            let request = Fork {
                at,
                session_id: Some(copy.to_string()),
                name: None,
            };
            runtime.sessions().fork(session, request).await?;
        }
        Action::SwitchHead { session, choice } => {
            let messages = runtime
                .traces()
                .messages(&TraceId::root(session), MessagePath::All)
                .await?;
            let Some(message) = pick(&messages, *choice) else {
                return Ok(());
            };
            runtime
                .sessions()
                .switch_head(session, message.sequence)
                .await?;
        }
        Action::Regenerate {
            session,
            choice,
            number,
        } => {
            let messages = runtime
                .traces()
                .messages(&TraceId::root(session), MessagePath::Main)
                .await?;
            let requests: Vec<Message> = messages
                .into_iter()
                .filter(|message| message.role == Role::User)
                .collect();
            let Some(message) = pick(&requests, *choice) else {
                return Ok(());
            };
            let request = if choice.is_multiple_of(2) {
                RunRequest::resume(session.as_str())
            } else {
                RunRequest::new(format!("again {number}")).session(session.as_str())
            };
            runtime.start(request.after(message.sequence)).await?;
        }
        Action::Delete { session } => runtime.sessions().delete(session).await?,
        Action::Pause { ms } => tokio::time::sleep(std::time::Duration::from_millis(*ms)).await,
    }
    Ok(())
}

/// Answers all questions, and decides about all permissions.
pub(crate) async fn answer_people(runtime: &Runtime, allows: bool) -> Result<(), ErrorInfo> {
    let filter = QuestionFilter {
        status: Some(QuestionStatus::Pending),
        ..QuestionFilter::default()
    };
    for question in runtime.questions().list(filter).await? {
        ignore_late(
            runtime
                .questions()
                .answer(&question.question_id, "the first one")
                .await,
        )?;
    }
    let filter = PermissionFilter {
        status: Some(PermissionStatus::Pending),
        ..PermissionFilter::default()
    };
    for permission in runtime.permissions().list(filter).await? {
        let decision = if allows {
            Decision::AllowOnce
        } else {
            Decision::Deny
        };
        ignore_late(
            runtime
                .permissions()
                .decide(&permission.permission_id, decision, None)
                .await,
        )?;
    }
    Ok(())
}

/// Ignores that a request was answered meanwhile, or deleted with its session.
fn ignore_late<T>(answered: Result<T, ErrorInfo>) -> Result<(), ErrorInfo> {
    let late = [
        ErrorCode::AlreadyDecided,
        ErrorCode::QuestionNotFound,
        ErrorCode::PermissionNotFound,
    ];
    match answered {
        Err(error) if !late.contains(&error.code) => Err(error),
        _ => Ok(()),
    }
}

/// Returns the ids of the actors below the sessions.
fn crashable_actors(runtime: &Runtime) -> Vec<String> {
    fn collect(actor: &ActorView, found: &mut Vec<String>) {
        let kinds = [
            ActorKind::Run,
            ActorKind::WorkingSet,
            ActorKind::Session,
            ActorKind::RunSupervisor,
            ActorKind::SubAgentSupervisor,
        ];
        if kinds.contains(&actor.kind) {
            found.push(actor.actor_id.clone());
        }
        actor
            .children
            .iter()
            .for_each(|child| collect(child, found));
    }
    let mut found = Vec::new();
    if let Some(tree) = runtime.tree().snapshot() {
        collect(&tree, &mut found);
    }
    found
}

fn pick(messages: &[Message], choice: u64) -> Option<&Message> {
    messages.get(choice as usize % messages.len().max(1))
}
