//! What is alive: runs and sessions by id, and what every actor of a runtime shares.
//!
//! A [`LiveRun`] names a run, not an incarnation: it outlives crashes of its actor, so handles go
//! on working. Readers look in without asking an actor.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
};

use dashmap::{DashMap, DashSet};
use ractor::ActorRef;
use soong_protocol::{ChildResult, Config, ErrorInfo, Run, RunId, RunStatus, SessionId, StatsPair};
use tokio::sync::{oneshot, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Span;

use crate::{
    actor_base::{Mailbox, closing, restart},
    artifact::ArtifactStore,
    budget::Purse,
    clock::now,
    events::Hub,
    fault::Faults,
    journal::JournalHandle,
    model::tokens::TokenDeviations,
    observatory::{ActorKind, Gauge, Observatory},
    permission::Permissions,
    reading::Reading,
    redaction::Redactor,
    run::{
        Door, Fate, LiveRun, News, Profiles, RunClock, RunFace, RunMsg, RunOutcome, RunSupervisorMsg, Sent,
        SubAgentMsg, WaitsFor, approvals::Awaited, first_view, spans,
    },
    runtime::supervisor::RuntimeMsg,
    session::{SessionMsg, SessionSupervisorMsg, Waiting},
    task_journal::TaskJournals,
};

/// A session with actors.
#[derive(Clone)]
pub(crate) struct LiveSession {
    pub(crate) session: Mailbox<SessionMsg>,
    pub(crate) runs: Mailbox<RunSupervisorMsg>,
    pub(crate) sub_agents: Mailbox<SubAgentMsg>,
    pub(crate) project_dir: Arc<std::path::Path>,
}

/// What every actor of a runtime shares.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) home: PathBuf,
    pub(crate) profiles: Profiles,
    pub(crate) journal: JournalHandle,
    pub(crate) reading: Reading,
    pub(crate) hub: Arc<Hub>,
    pub(crate) artifacts: Arc<ArtifactStore>,
    pub(crate) observatory: Arc<Observatory>,
    pub(crate) token_deviations: TokenDeviations,
    pub(crate) faults: Faults,
    pub(crate) runs: DashMap<RunId, Arc<LiveRun>>,
    pub(crate) sessions: DashMap<SessionId, LiveSession>,
    /// Sessions that are being deleted, with those who wait for it: nothing is started in them.
    pub(crate) leaving: DashMap<SessionId, Waiting>,
    /// Decisions and answers of which it is not known whether they are stored.
    pub(crate) unclear: DashSet<Awaited>,
    /// Work that belongs to no single run: burials, reads of supervisors.
    pub(crate) tasks: TaskTracker,
    /// Tripped when the runtime closes.
    pub(crate) closing: CancellationToken,
    /// Why the runtime takes no new work: it has lost a part that it cannot work without.
    pub(crate) failure: OnceLock<ErrorInfo>,
    pub(crate) session_supervisor: OnceLock<RwLock<Mailbox<SessionSupervisorMsg>>>,
    pub(crate) task_journals: Arc<TaskJournals>,
    /// Takes secrets out of what is stored or shown.
    pub(crate) redactor: Redactor,
    /// Who is asked whether calls may run, and what holds without asking.
    pub(crate) permissions: Permissions,
    /// The root of the tree.
    pub(crate) root: OnceLock<ActorRef<RuntimeMsg>>,
}

impl Shared {
    /// Enters a run among the living, or finds it there.
    pub(crate) fn enter_run(&self, run: &Run) -> Arc<LiveRun> {
        let fresh = || {
            let parent = run.parent_run_id.as_ref().and_then(|id| self.runs.get(id).map(|run| Arc::clone(run.value())));
            let purse = parent.as_ref().and_then(|parent| parent.purse.as_ref());
            let purse = Purse::open(&run.run_id, purse, run.settings.budget);
            let span = spans::of_run(run, parent.as_ref().map(|parent| parent.span()).as_ref());
            let parent = parent.map(|parent| parent.token.child_token());
            let clock = Arc::new(RunClock::default());
            clock.progress(now());
            let keeper = match run.parent_run_id {
                Some(_) => ActorKind::SubAgentSupervisor,
                None => ActorKind::RunSupervisor,
            };
            let gauge = self.observatory.enter(
                ActorKind::Run,
                run.run_id.as_str(),
                Some(Gauge::actor_id(keeper, run.session_id.as_str())),
                restart::RUN.shown,
                Some(first_view(run)),
            );
            let budget = purse.clone().filter(|_| !run.settings.budget.is_open());
            let wall_time_s = run.settings.budget.wall_time_s;
            gauge.set_face(RunFace { clock: Arc::clone(&clock), budget, wall_time_s });
            gauge.show("queued", "");
            Arc::new(LiveRun {
                run_id: run.run_id.clone(),
                trace_id: run.trace_id.clone(),
                session_id: run.session_id.clone(),
                parent_run_id: run.parent_run_id.clone(),
                mode: run.mode,
                driven: run.settings.driven,
                handles: AtomicUsize::new(0),
                token: parent.unwrap_or_default(),
                gauge,
                purse,
                clock,
                span: Mutex::new(span),
                door: Door::default(),
                time_is_watched: AtomicBool::new(false),
                time_is_told: AtomicBool::new(false),
                fate: watch::Sender::new(Fate::Open),
                work: Mutex::new(TaskTracker::new()),
                first_event: AtomicU64::new(0),
                events_taken: AtomicBool::new(false),
                was_queued: AtomicBool::new(false),
                begun: AtomicBool::new(false),
                left_behind: AtomicBool::new(false),
                waits_for: AtomicU8::new(WaitsFor::Nobody as u8),
                over: AtomicBool::new(false),
                journaled: AtomicBool::new(false),
                finish: OnceLock::new(),
            })
        };
        if let Some(run) = self.runs.get(&run.run_id) {
            return Arc::clone(run.value());
        }
        let live = fresh();
        let live = Arc::clone(self.runs.entry(run.run_id.clone()).or_insert(live).value());
        // Whoever closes may have looked already for those that are to be parked.
        if self.is_closing() || self.failure.get().is_some() {
            self.leave_run(&live, Fate::Parked(self.why_parked()));
        }
        live
    }

    /// Strikes a run from the living: it ended, or never came to be.
    pub(crate) fn leave_run(&self, live: &LiveRun, fate: Fate) {
        self.runs.remove(&live.run_id);
        match &fate {
            Fate::Ended(outcome) => self.observatory.leave_ended(outcome.end()),
            _ => self.observatory.leave(ActorKind::Run, live.run_id.as_str()),
        }
        live.door.shut();
        let span = std::mem::replace(&mut *live.span.lock().unwrap_or_else(PoisonError::into_inner), Span::none());
        if let Fate::Ended(outcome) = &fate {
            spans::run_ended(&span, outcome.status.as_str(), outcome.error.as_ref());
        }
        live.end(fate);
    }

    /// Strikes all runs of a session from the living that nobody has taken up.
    pub(crate) fn strike(&self, session: &SessionId) {
        let runs: Vec<Arc<LiveRun>> =
            self.runs.iter().filter(|run| run.session_id == *session).map(|run| Arc::clone(run.value())).collect();
        for run in runs {
            self.leave_run(&run, Fate::Parked(self.why_parked()));
        }
    }

    /// Says why runs are parked that nobody stopped.
    pub(crate) fn why_parked(&self) -> ErrorInfo {
        self.failure.get().cloned().unwrap_or_else(closing)
    }

    /// Strikes an ended run from the living, and tells its keepers, its parent and those who wait.
    pub(crate) fn run_ended(&self, live: &LiveRun, outcome: RunOutcome, result: Option<Box<ChildResult>>) {
        let run_id = &live.run_id;
        let (status, error) = (outcome.status.as_str(), outcome.error.as_ref().map(|error| error.code.as_str()));
        match &live.parent_run_id {
            None => tracing::info!(run = %run_id, status, error, "a run has ended"),
            Some(parent) => tracing::debug!(run = %run_id, %parent, status, error, "a child run has ended"),
        }
        self.leave_run(live, Fate::Ended(Arc::new(outcome)));
        self.tell_keepers(live, result);
    }

    /// Strikes a run from the living whose end cannot be recorded: those who wait hear why. In the store it has not
    /// ended; the next owner of the home finds it there.
    pub(crate) fn run_lost(&self, live: &LiveRun, error: ErrorInfo) {
        tracing::error!(run = %live.run_id, %error, "a run ended, and that cannot be recorded");
        let result = live.parent_run_id.as_ref().and(live.trace_id.child_mode()).map(|mode| {
            Box::new(ChildResult {
                mode,
                sub_trace_id: live.trace_id.clone(),
                run_id: live.run_id.clone(),
                status: RunStatus::Failed,
                summary: String::new(),
                findings: Vec::new(),
                passed: None,
                artifacts: Vec::new(),
                stats: StatsPair::zero(),
                error: Some(error.clone()),
            })
        });
        self.leave_run(live, Fate::Lost(error.clone()));
        self.journal.tell_lost(live.lost(error));
        self.tell_keepers(live, result);
    }

    /// Tells the keepers and the parent of a run that it is over.
    fn tell_keepers(&self, live: &LiveRun, result: Option<Box<ChildResult>>) {
        let (run_id, parent) = (live.run_id.clone(), live.parent_run_id.clone());
        // Without a session there is no keeper to tell; the parent hears of it all the same.
        match (self.session(&live.session_id), parent) {
            (Some(session), None) => {
                session.session.cast(SessionMsg::RunEnded(run_id));
            }
            (Some(session), parent) => {
                session.sub_agents.cast(SubAgentMsg::Ended { run_id, parent, result });
            }
            (None, Some(parent)) => self.tell_parent(&parent, result),
            (None, None) => {}
        }
    }

    /// Tells a parent that a child of it has ended.
    pub(crate) fn tell_parent(&self, parent: &RunId, result: Option<Box<ChildResult>>) {
        if let (Some(parent), Some(result)) = (self.run(parent), result) {
            self.tell(&parent, News::ChildEnded(result));
        }
    }

    /// Strikes a user's run that was not accepted from the living, and frees its place.
    pub(crate) fn never_began(&self, live: &LiveRun) {
        self.leave_run(live, Fate::Parked(self.why_parked()));
        if let Some(session) = self.session(&live.session_id).filter(|_| live.parent_run_id.is_none()) {
            session.session.cast(SessionMsg::RunEnded(live.run_id.clone()));
        }
    }

    /// Returns the sessions that wait for people, and for nothing else: some run of theirs does, and no other one can
    /// make a step before.
    pub(crate) fn parked(&self) -> HashSet<SessionId> {
        let (mut waiting, mut at_work) = (HashSet::new(), HashSet::new());
        for run in &self.runs {
            // A user's run that has not begun waits for the one before it.
            let is_next = run.parent_run_id.is_none() && !run.begun.load(Ordering::Acquire);
            if run.waits_for(WaitsFor::People) {
                waiting.insert(run.session_id.clone());
            } else if !is_next && !run.waits_for(WaitsFor::Children) {
                at_work.insert(run.session_id.clone());
            }
        }
        waiting.retain(|session| !at_work.contains(session));
        waiting
    }

    pub(crate) fn run(&self, id: &RunId) -> Option<Arc<LiveRun>> {
        self.runs.get(id).map(|run| Arc::clone(run.value()))
    }

    /// Sends a run a piece of news; dropped (`false`) while it is between two actors, since the next one rebuilds.
    pub(crate) fn tell(&self, live: &LiveRun, news: News) -> bool {
        self.send(live, RunMsg::News(Box::new(news)))
    }

    /// Sends a run a message; where its actor has left, that is started again for it (ACT-7).
    pub(crate) fn send(&self, live: &LiveRun, message: RunMsg) -> bool {
        let sent = live.door.send(message);
        if sent == Sent::Calls
            && let Some(session) = self.session(&live.session_id)
        {
            match live.parent_run_id {
                Some(_) => session.sub_agents.cast(SubAgentMsg::Activate(live.run_id.clone())),
                None => session.runs.cast(RunSupervisorMsg::Activate(live.run_id.clone())),
            };
        }
        sent != Sent::Dropped
    }

    pub(crate) fn session(&self, id: &SessionId) -> Option<LiveSession> {
        self.sessions.get(id).map(|session| session.value().clone())
    }

    /// Makes sure that the gateway of a profile (or of the model that `name` means) has its actor.
    pub(crate) async fn ensure_gateway(&self, name: &str) -> Result<(), ErrorInfo> {
        let (profile, _) = self.profiles.split_model(&self.config, name);
        let gateway = self.profiles.gateway(&self.config, profile)?;
        if let Some(failure) = gateway.failure() {
            return Err(failure);
        }
        if !gateway.is_seated() {
            let (started, ready) = oneshot::channel();
            let asked =
                self.root.get().is_some_and(|root| root.cast(RuntimeMsg::StartGateway { gateway, started }).is_ok());
            if !asked || ready.await.is_err() {
                return Err(closing());
            }
        }
        Ok(())
    }

    /// Sends to the session supervisor, whichever incarnation.
    pub(crate) fn to_sessions(&self, message: SessionSupervisorMsg) -> bool {
        let Some(slot) = self.session_supervisor.get() else { return false };
        slot.read().unwrap_or_else(PoisonError::into_inner).cast(message)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Cancels a run and everything below it: tokens first, so that nothing new starts (RT-6).
    pub(crate) fn cancel_run(&self, live: &LiveRun) {
        live.token.cancel();
        live.gauge.show("cancelling", "");
        if live.begun.load(Ordering::Acquire) {
            self.tell(live, News::Cancel);
            return;
        }
        if let Some(session) = self.session(&live.session_id) {
            match live.parent_run_id {
                Some(_) => session.sub_agents.cast(SubAgentMsg::Cancel(live.run_id.clone())),
                None => session.session.cast(SessionMsg::Cancel(live.run_id.clone())),
            };
        }
    }
}
