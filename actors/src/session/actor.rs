//! The session actor: runs one user run at a time and queues the others in order (SES-1, SES-2,
//! SES-3).
//!
//! It owns the queue and the two supervisors of its runs. After a crash it reads the session's
//! unfinished runs from the store and resumes them (`actor/restore.rs`).

mod restore;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use soong_protocol::{
    EndReason, ErrorCode, ErrorInfo, EventDraft, Run, RunEvent, RunId, RunStatus, RunWrite,
    SessionId, TraceWrite, Write,
};
use soong_storage::{
    store::{Append, StoreError},
    writer::AppendCallback,
};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use super::{
    SessionHistory, SessionKey, StartRequest,
    message::{SessionMsg, SessionSupervisorMsg},
    registry::RunSessionHandle,
};
use crate::{
    actor_base::{Mailbox, restart},
    actor_tree::{ActorKind, ActorStatus},
    clock::now,
    run::{
        Ending, RunEntry, RunStart, RunSupervisorActor, RunSupervisorMsg, SessionLinks,
        SubAgentMsg, SubAgentSupervisorActor,
    },
    session::SessionServices,
};

/// How the actor of a session is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartMode {
    /// With its first run; the session is not stored yet.
    New,
    /// The session is stored; it has no live runs.
    Stored,
    /// After a crash of the actor: the session has live runs.
    Restore,
    /// With runs that an earlier process left unfinished (DUR-3).
    Recover,
}

/// Maximum number of queued runs per session. Further runs are rejected with `overloaded`.
const MAX_QUEUED_RUNS: usize = 1_000;

/// The session actor.
pub(crate) struct SessionActor {
    pub(crate) services: Arc<SessionServices>,
    pub(crate) status: Arc<ActorStatus>,
    pub(crate) key: SessionKey,
}

struct QueuedRun {
    run: Run,
    reply: Option<oneshot::Sender<Result<Arc<RunEntry>, ErrorInfo>>>,
    recorded: bool,
}

/// Mutable state of a session actor.
pub(crate) struct SessionState {
    runs: Mailbox<RunSupervisorMsg>,
    sub_agents: Mailbox<SubAgentMsg>,
    start_mode: StartMode,
    /// Start requests held until the state of the session is known.
    held_requests: Vec<StartRequest>,
    /// Whether the first run is being accepted, or the session is being read after a crash.
    is_holding: bool,
    /// Reply channels of callers that ask whether the session is idle.
    idle_queries: Vec<oneshot::Sender<bool>>,
    active: Option<RunId>,
    queue: VecDeque<QueuedRun>,
    starts: u64,
    generation: u64,
    idle_timer: Option<AbortOnDropHandle<()>>,
    /// Task that waits for runs that have ended, but whose actors have not reported it.
    end_waiter: Option<AbortOnDropHandle<()>>,
}

impl Actor for SessionActor {
    type Msg = SessionMsg;
    type State = SessionState;
    type Arguments = StartMode;

    async fn pre_start(
        &self,
        myself: ActorRef<SessionMsg>,
        mode: StartMode,
    ) -> Result<SessionState, ActorProcessingErr> {
        let id = &self.key.session_id;
        let parent_id = Some(ActorStatus::actor_id(ActorKind::Session, id.as_str()));
        let session = Mailbox::new(myself.clone(), Arc::clone(&self.status));
        let register = |kind| {
            self.services.actor_tree.register(
                kind,
                id.as_str(),
                parent_id.clone(),
                restart::SUPERVISOR.label,
                None,
            )
        };
        let status = register(ActorKind::RunSupervisor);
        let services = &self.services.run_services;
        let resolver = &self.services.resolver;
        let actor = RunSupervisorActor {
            services: Arc::clone(services),
            resolver: Arc::clone(resolver),
            status: Arc::clone(&status),
        };
        let (actor, _) = Actor::spawn_linked(None, actor, (), myself.get_cell()).await?;
        let runs = Mailbox::new(actor, status);
        let status = register(ActorKind::SubAgentSupervisor);
        let actor = SubAgentSupervisorActor {
            services: Arc::clone(services),
            resolver: Arc::clone(resolver),
            slots: self
                .services
                .core
                .config
                .agents
                .max_concurrent_children_per_session,
            status: Arc::clone(&status),
        };
        let (actor, _) = Actor::spawn_linked(None, actor, (), myself.get_cell()).await?;
        let sub_agents = Mailbox::new(actor, status);
        let project_dir = Arc::clone(&self.key.project_dir);
        let sessions = &self.services.sessions;
        let run_session = RunSessionHandle {
            id: id.clone(),
            session: session.clone(),
            sessions: Arc::clone(sessions),
        };
        sessions.insert(id.clone(), session, Arc::clone(&project_dir));
        let links = SessionLinks {
            session: Arc::new(run_session),
            runs: runs.clone(),
            sub_agents: sub_agents.clone(),
            project_dir,
        };
        self.services.core.runs.link_session(id.clone(), links);
        self.status.set_state("idle", "");
        let restores = matches!(mode, StartMode::Restore | StartMode::Recover);
        if restores {
            self.restore(&myself, mode == StartMode::Recover);
        }
        Ok(SessionState {
            runs,
            sub_agents,
            is_holding: restores,
            start_mode: mode,
            held_requests: Vec::new(),
            idle_queries: Vec::new(),
            active: None,
            queue: VecDeque::new(),
            starts: 0,
            generation: 0,
            idle_timer: None,
            end_waiter: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<SessionMsg>,
        message: SessionMsg,
        state: &mut SessionState,
    ) -> Result<(), ActorProcessingErr> {
        self.status.message_handled();
        match message {
            SessionMsg::Start(request) => {
                state.starts += 1;
                self.start(&myself, state, *request);
            }
            SessionMsg::Created(is_stored) => {
                state.is_holding = false;
                state.start_mode = if is_stored {
                    StartMode::Stored
                } else {
                    StartMode::New
                };
                self.start_held(&myself, state);
            }
            SessionMsg::Recorded { run_id, outcome } => self.recorded(state, &run_id, outcome),
            SessionMsg::QueryIdle(reply) => state.idle_queries.push(reply),
            SessionMsg::RunEnded(run) => {
                if state.active.as_ref() == Some(&run) {
                    state.active = None;
                }
            }
            SessionMsg::EndsReported => state.end_waiter = None,
            SessionMsg::CancelQueued(run) => self.cancel_queued(state, &run),
            SessionMsg::Restored { known, runs, used } => {
                self.restored(state, runs, &used);
                state.is_holding = false;
                state.start_mode = if known {
                    StartMode::Stored
                } else {
                    StartMode::New
                };
                self.start_held(&myself, state);
            }
            SessionMsg::LoadFailed(error) => self.unreadable(state, &error),
            SessionMsg::Idle { generation } => {
                if generation == state.generation {
                    let session = self.key.session_id.clone();
                    let actor = myself.get_id();
                    self.services
                        .sessions
                        .send_to_supervisor(SessionSupervisorMsg::Idle {
                            session,
                            actor,
                            starts: state.starts,
                        });
                }
                // If a start request is on its way, it sets the next timer.
                return Ok(());
            }
            SessionMsg::Crash => return Err("crashed on request".into()),
        }
        self.advance(&myself, state);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<SessionMsg>,
        event: SupervisionEvent,
        _: &mut SessionState,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            // One for all: if a supervisor crashes, the session restarts from the store.
            SupervisionEvent::ActorFailed(_, error) => {
                Err(format!("a supervisor of the session crashed: {error}").into())
            }
            _ => Ok(()),
        }
    }
}

/// Returns the error for a start in a session that was deleted after the caller had seen it.
pub(crate) fn deleted_meanwhile(id: &SessionId) -> ErrorInfo {
    let message = format!("session {id} was deleted in the meantime: retry to create it again");
    ErrorInfo::retryable(ErrorCode::SessionNotFound, message)
}

impl SessionActor {
    fn start(
        &self,
        myself: &ActorRef<SessionMsg>,
        state: &mut SessionState,
        request: StartRequest,
    ) {
        if state.is_holding {
            state.held_requests.push(request);
            return;
        }
        if let Err(error) = self.check_start(state, &request) {
            let _ = request.reply.send(Err(error));
            return;
        }
        if request.history != SessionHistory::None {
            state.start_mode = StartMode::Stored;
        }
        if state.start_mode == StartMode::New {
            self.start_first(myself, state, request);
            return;
        }
        let claim = request.claim();
        let StartRequest {
            run,
            reply,
            continues_from,
            ..
        } = request;
        if state.queue.len() >= MAX_QUEUED_RUNS {
            let message = format!(
                "the session already has {MAX_QUEUED_RUNS} queued runs: retry when some have ended"
            );
            let _ = reply.send(Err(ErrorInfo::retryable(ErrorCode::Overloaded, message)));
            return;
        }
        let entry = self.services.core.runs.register(&run);
        let position = state.queue.len() + usize::from(state.active.is_some());
        let mut writes: Vec<Write> = continues_from
            .into_iter()
            .map(|point| Write::Trace(TraceWrite::Require(point)))
            .collect();
        writes.push(Write::Run(RunWrite::Create(Box::new(run.clone()))));
        writes.extend(claim);
        if position > 0 {
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            entry
                .status
                .set_state("queued", format!("position {position}"));
            entry.set_was_queued();
            let event = RunEvent::Queued { position };
            writes.push(Write::Event(EventDraft::new(
                run.trace_id.clone(),
                Some(run.run_id.clone()),
                now(),
                event,
            )));
        }
        let run_id = run.run_id.clone();
        let session = Mailbox::new(myself.clone(), Arc::clone(&self.status));
        let done: AppendCallback = Box::new(move |outcome| {
            let outcome = outcome
                .map(|ack| ack.events.first().map_or(0, |event| event.event_id))
                .map_err(|(error, _)| error);
            session.send(SessionMsg::Recorded { run_id, outcome });
        });
        state.queue.push_back(QueuedRun {
            run,
            reply: Some(reply),
            recorded: false,
        });
        self.services.core.journal.append(
            Append {
                fence: None,
                writes,
            },
            done,
        );
    }

    /// Rejects a run that must not wait while the session is busy, and one that continues a
    /// conversation from a certain point while a run that may move its end has not ended: a run of
    /// the same trace, or of one above it.
    fn check_start(&self, state: &SessionState, request: &StartRequest) -> Result<(), ErrorInfo> {
        let active = state
            .active
            .as_ref()
            .and_then(|run| self.services.core.runs.get(run));
        let active = active
            .filter(|entry| !entry.is_ending())
            .map(|entry| entry.identity.trace_id.clone());
        let queued = state.queue.iter().map(|queued| queued.run.trace_id.clone());
        let mut is_in_conflict = false;
        for trace_id in active.into_iter().chain(queued) {
            let moves_end =
                request.continues_from.is_some() && request.run.trace_id.is_within(&trace_id);
            is_in_conflict |= request.reject_if_busy || moves_end;
        }
        if !is_in_conflict {
            return Ok(());
        }
        let id = &self.key.session_id;
        let message = if self
            .services
            .core
            .runs
            .sessions_awaiting_input()
            .contains(id)
        {
            format!(
                "session {id} is waiting for input: answer or decide its request, or stop its run"
            )
        } else {
            format!("session {id} has an active run: wait for it, or stop it")
        };
        Err(ErrorInfo::retryable(ErrorCode::SessionActive, message))
    }

    fn is_busy(&self, state: &SessionState) -> bool {
        let is_active = |run: &RunId| {
            self.services
                .core
                .runs
                .get(run)
                .is_some_and(|run| !run.is_ending())
        };
        !state.queue.is_empty() || state.active.as_ref().is_some_and(is_active)
    }

    /// Starts the first run of a new session, in one commit with the session's rows (DUR-2a).
    fn start_first(
        &self,
        myself: &ActorRef<SessionMsg>,
        state: &mut SessionState,
        request: StartRequest,
    ) {
        let claim = request.claim();
        let StartRequest {
            run,
            mut rows,
            reply,
            ..
        } = request;
        let entry = self.services.core.runs.register(&run);
        state.is_holding = true;
        state.active = Some(run.run_id.clone());
        rows.push(Write::Run(RunWrite::Create(Box::new(run.clone()))));
        rows.extend(claim);
        let (accepted, outcome) = oneshot::channel::<Result<(), ErrorInfo>>();
        let session = Mailbox::new(myself.clone(), Arc::clone(&self.status));
        self.services.core.lifetime.spawn(async move {
            match outcome.await {
                Ok(outcome) => {
                    session.send(SessionMsg::Created(outcome.is_ok()));
                    let _ = reply.send(outcome.map(|()| entry));
                }
                // The run's actor crashed before it replied. The store knows whether the session
                // exists, and the caller looks up its run there.
                Err(_) => {
                    session.send(SessionMsg::Crash);
                }
            }
        });
        let start = RunStart::New {
            rows,
            accepted: Some(accepted),
        };
        state.runs.send(RunSupervisorMsg::Start {
            run: Box::new(run),
            start,
        });
    }

    fn recorded(&self, state: &mut SessionState, run_id: &RunId, outcome: Result<u64, StoreError>) {
        let outcome = outcome.map_err(|error| match error {
            // The session was deleted after the start request had been prepared. The next start
            // creates it again.
            StoreError::NotFound(_) => {
                state.start_mode = StartMode::New;
                deleted_meanwhile(&self.key.session_id)
            }
            error => ErrorInfo::from(&error),
        });
        let Some(index) = state
            .queue
            .iter()
            .position(|queued| queued.run.run_id == *run_id)
        else {
            return;
        };
        match outcome {
            Ok(first_event) => {
                let queued = &mut state.queue[index];
                queued.recorded = true;
                let entry = self.services.core.runs.register(&queued.run);
                entry.set_first_event(first_event);
                if let Some(reply) = queued.reply.take() {
                    let _ = reply.send(Ok(entry));
                }
            }
            Err(error) => {
                // If it was recorded anyway, it is ended.
                if let Some(entry) = self.services.core.runs.get(run_id) {
                    let ending = Ending {
                        status: RunStatus::Failed,
                        reason: EndReason::Failed,
                        error: Some(error.clone()),
                    };
                    self.services.finalizer.finalize_orphan(entry, ending);
                }
                if let Some(reply) = state.queue.remove(index).and_then(|queued| queued.reply) {
                    let _ = reply.send(Err(error));
                }
            }
        }
    }

    fn cancel_queued(&self, state: &mut SessionState, run: &RunId) {
        let Some(entry) = self.services.core.runs.get(run) else {
            return;
        };
        let Some(index) = state
            .queue
            .iter()
            .position(|queued| queued.run.run_id == *run)
        else {
            // It has left the queue: its actor sees the cancelled token, or this input.
            self.services.core.runs.notify(
                &entry,
                crate::run::RunInput::End(crate::run::EndInput::Cancel),
            );
            return;
        };
        if let Some(queued) = state.queue.remove(index)
            && let Some(reply) = queued.reply
        {
            let _ = reply.send(Ok(Arc::clone(&entry)));
        }
        let ending = Ending {
            status: RunStatus::Cancelled,
            reason: EndReason::Cancelled,
            error: None,
        };
        self.services.finalizer.finalize_orphan(entry, ending);
    }

    /// Starts the next run if none is active; starts the idle timer if there is no run.
    fn advance(&self, myself: &ActorRef<SessionMsg>, state: &mut SessionState) {
        if !state.is_holding {
            let is_free = !self.is_busy(state);
            for reply in state.idle_queries.drain(..) {
                let _ = reply.send(is_free);
            }
        }
        if state.active.is_none()
            && !state.is_holding
            && state.queue.front().is_some_and(|queued| queued.recorded)
            && let Some(queued) = state.queue.pop_front()
        {
            if self
                .services
                .core
                .runs
                .register(&queued.run)
                .control
                .token
                .is_cancelled()
            {
                // Its cancellation is on the way: it does not start any more (RT-6).
                let run = queued.run.run_id.clone();
                state.queue.push_front(queued);
                self.cancel_queued(state, &run);
                return self.advance(myself, state);
            }
            state.active = Some(queued.run.run_id.clone());
            let start = RunStart::Load { restarted: None };
            state.runs.send(RunSupervisorMsg::Start {
                run: Box::new(queued.run),
                start,
            });
        }
        let has_work = state.active.is_some() || state.is_holding || !state.queue.is_empty();
        if !has_work && state.end_waiter.is_none() {
            self.wait_for_unreported_ends(myself, state);
        }
        if has_work || state.end_waiter.is_some() {
            state.generation += 1;
            state.idle_timer = None;
            let waiting = state.queue.len();
            self.status.set_state(
                "running",
                if waiting > 0 {
                    format!("{waiting} runs queued")
                } else {
                    String::new()
                },
            );
        } else {
            self.status.set_state("idle", "");
            let session = self.key.session_id.clone();
            let actor = myself.get_id();
            let starts = state.starts;
            self.services
                .sessions
                .send_to_supervisor(SessionSupervisorMsg::BecameIdle {
                    session,
                    actor,
                    starts,
                });
            let generation = state.generation;
            let after = Duration::from_secs(self.services.core.config.runtime.idle_session_s);
            let session = Mailbox::new(myself.clone(), Arc::clone(&self.status));
            state.idle_timer = Some(AbortOnDropHandle::new(tokio::spawn(async move {
                tokio::time::sleep(after).await;
                session.send(SessionMsg::Idle { generation });
            })));
        }
    }

    /// Starts to wait for runs of an otherwise idle session that have not reported their end, if
    /// there are any.
    ///
    /// A parent that was restarted reads the end of a child from the store, possibly before the
    /// actor of the child has reported it. If that actor stopped with its session, callers would
    /// wait for the child forever.
    fn wait_for_unreported_ends(&self, myself: &ActorRef<SessionMsg>, state: &mut SessionState) {
        let unreported = self.live_runs(|_| true);
        if unreported.is_empty() {
            return;
        }
        let session = Mailbox::new(myself.clone(), Arc::clone(&self.status));
        state.end_waiter = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            for run in unreported {
                // The outcome does not matter: the run has left the registry.
                let _ = run.wait_outcome().await;
            }
            session.send(SessionMsg::EndsReported);
        })));
    }

    fn start_held(&self, myself: &ActorRef<SessionMsg>, state: &mut SessionState) {
        for request in std::mem::take(&mut state.held_requests) {
            self.start(myself, state, request);
        }
    }
}
