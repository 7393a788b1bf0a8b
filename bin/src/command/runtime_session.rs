//! Connection of a command to the runtime of a home: connects to the owner process or becomes the
//! owner, and follows runs.

use std::{path::Path, time::Duration};

use soong::{
    ErrorCode, ErrorInfo, RecoveryPolicy, RuntimeBuilder, SessionFilter, StreamItem,
    protocol::{
        RecoveryMode, RunId, SessionId,
        api::{
            Accepted, StartBody,
            operation::{ReadRun, ReadSession, ReadSettingsDigests},
        },
    },
};
use soong_client::{Client, EventStream};
use soong_tui::{format, text, transcript::Step};
use tokio::time::Instant;

use super::host;
use crate::{
    context::{Context, RunDisplay},
    exit::{Exit, Failure},
    interrupt::Interrupt,
    log::{self, LogTarget},
    monitor::{self, TreeSource},
    offline_store::{OfflineStore, UnfinishedRuns, unfinished},
    owner::{HomeConnection, Owner},
    print,
    progress::Progress,
    report::{self, DeniedCall, FollowedRun, StoredArtifact, TypedDuringRun},
    slow_step::with_note,
    watch::{WatchTarget, watch},
};

/// Time added to the runtime's cancel timeout when waiting for a run to end.
const CANCEL_MARGIN: Duration = Duration::from_secs(3);
/// Maximum wait for a cancelled run of another owner, whose cancel timeout is unknown.
const REMOTE_CANCEL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for retrying a request while the owner is shutting down.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks whether the owner can shut down, and between retries of a request.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time that this process stays open for the name of a conversation.
const NAME_TIMEOUT: Duration = Duration::from_secs(2);

/// Step that is reported if the owner is slow to accept a run.
const STARTING: &str = "starting the run; `soong tree` in another terminal shows what it waits for";

/// Connection to the runtime of a home. End it with [`RuntimeSession::close`], even after an error.
pub(super) struct RuntimeSession<'a> {
    context: &'a Context<'a>,
    home: &'a Path,
    build: Box<dyn Fn() -> RuntimeBuilder + 'a>,
    owner: HomeConnection,
    interrupt: Interrupt,
    /// Variables with keys and addresses that are set here and that another owner does not have
    /// like this.
    changed_variables: Vec<String>,
}

/// Result of a run.
pub(super) struct RunReport {
    pub(super) session: SessionId,
    /// Short name of the session.
    pub(super) session_name: String,
    /// Artifacts that the run stored.
    pub(super) stored: Vec<StoredArtifact>,
    /// Whether the reader of the output is gone.
    pub(super) output_closed: bool,
    /// Tool calls that were denied.
    pub(super) denied: Vec<DeniedCall>,
    /// The answer, if there is one.
    pub(super) answer: Option<String>,
    /// Size of the last prompt in tokens, as estimated.
    pub(super) context_tokens: Option<u64>,
    /// Input that the user typed while the run was active.
    pub(super) typed: TypedDuringRun,
    /// The last step of the transcript of which not all rows were shown.
    pub(super) folded_step: Option<Step>,
    /// Exit code or failure of the process if this was its only run.
    pub(super) exit: Result<Exit, Failure>,
}

impl<'a> RuntimeSession<'a> {
    /// Connects to the owner of the home, or becomes the owner with a runtime from `build`. Prints
    /// notes about the owner.
    pub(super) async fn connect(
        context: &'a Context<'a>,
        home: &'a Path,
        build: impl Fn() -> RuntimeBuilder + 'a,
    ) -> Result<Self, Failure> {
        let session = Self::connect_or_own(context, home, build).await?;
        session.print_owner_note();
        Ok(session)
    }

    /// Like [`RuntimeSession::connect`], but prints no note about another owner. For short
    /// operations.
    pub(super) async fn connect_quiet(
        context: &'a Context<'a>,
        home: &'a Path,
        build: impl Fn() -> RuntimeBuilder + 'a,
    ) -> Result<Self, Failure> {
        let session = Self::connect_or_own(context, home, build).await?;
        if matches!(session.owner, HomeConnection::Own(_)) {
            session.print_owner_note();
        }
        Ok(session)
    }

    /// Becomes the owner of the home. Fails with `home_locked` if another process owns it.
    pub(super) async fn exclusive(
        context: &'a Context<'a>,
        home: &'a Path,
        build: impl Fn() -> RuntimeBuilder + 'a,
    ) -> Result<Self, Failure> {
        let interrupt = prepare(context, home);
        let owner = tokio::select! {
            owner = with_note("opening the home", Owner::open(build(), RecoveryPolicy::Nothing)) => owner?,
            () = interrupt.first() => return Err(interrupted_before_start()),
        };
        let session = Self {
            context,
            home,
            build: Box::new(build),
            owner: HomeConnection::Own(owner),
            interrupt,
            changed_variables: Vec::new(),
        };
        session.print_owner_note();
        Ok(session)
    }

    async fn connect_or_own(
        context: &'a Context<'a>,
        home: &'a Path,
        build: impl Fn() -> RuntimeBuilder + 'a,
    ) -> Result<Self, Failure> {
        let interrupt = prepare(context, home);
        let address = context.address(home);
        let owner = tokio::select! {
            reached = HomeConnection::connect_or_own(&address, &build) => reached?,
            () = interrupt.first() => return Err(interrupted_before_start()),
        };
        let session = Self {
            context,
            home,
            build: Box::new(build),
            owner,
            interrupt,
            changed_variables: Vec::new(),
        };
        tokio::select! {
            compared = session.compare_settings() => {
                let changed_variables = compared?;
                Ok(Self { changed_variables, ..session })
            }
            () = session.interrupt.first() => Err(interrupted_before_start()),
        }
    }

    /// Compares the settings of this process with those of another owner on this machine. Returns
    /// the variables with keys and addresses that differ.
    ///
    /// Fails if a configuration was given with `--config` that the owner does not use. Without one,
    /// the owner's settings apply.
    async fn compare_settings(&self) -> Result<Vec<String>, Failure> {
        let HomeConnection::Other(client, ready) = &self.owner else {
            return Ok(Vec::new());
        };
        if self.context.remote.is_some() {
            return Ok(Vec::new());
        }
        let owner_digests = match client.call(ReadSettingsDigests {}).await {
            // Of an earlier version, or it is exiting: the next request finds the next owner.
            Err(error) if matches!(error.code, ErrorCode::RouteNotFound | ErrorCode::Closing) => {
                return Ok(Vec::new());
            }
            digests => digests?,
        };
        let own_digests = (self.build)().settings_digests()?;
        let changed_settings = own_digests.changed_settings(&owner_digests);
        if let Some(path) = self
            .context
            .global
            .config
            .as_ref()
            .filter(|_| !changed_settings.is_empty())
        {
            let names = text::safe_line(&changed_settings.join(", "));
            let message = format!(
                "process {} owns this home with other settings than {}: {names}",
                ready.pid,
                text::safe_line(&path.display().to_string())
            );
            let error = ErrorInfo::new(ErrorCode::HomeLocked, message);
            let advice =
                "Stop that process, leave out --config to use its settings, or use another --home.";
            return Err(Failure {
                advice: advice.to_owned(),
                ..Failure::from(error)
            });
        }
        Ok(own_digests.changed_variables(&owner_digests))
    }

    /// Connects to the next owner of the home, or becomes it.
    async fn reconnect(&mut self) -> Result<(), Failure> {
        self.owner =
            HomeConnection::connect_or_own(&self.context.address(self.home), &self.build).await?;
        self.changed_variables = self.compare_settings().await?;
        Ok(())
    }

    /// Prints a note if another process owns the home, or if an earlier process left runs
    /// unfinished.
    fn print_owner_note(&self) {
        if self.context.global.json {
            return;
        }
        match &self.owner {
            HomeConnection::Own(owner) => {
                // Read errors are ignored here: they were reported when the home was opened.
                let read = |home| {
                    OfflineStore::open(home)
                        .ok()
                        .and_then(|records| unfinished(&records.reader).ok())
                };
                let left = if owner
                    .runtime()
                    .info()
                    .interrupted_runs()
                    .unchanged
                    .is_empty()
                {
                    None
                } else {
                    read(self.home)
                };
                // Runs that wait for user input are not counted; `questions list` and `permissions
                // list` show them.
                let UnfinishedRuns {
                    interrupted: at_work,
                    ..
                } = left.unwrap_or_default();
                let still_running = at_work.len();
                if still_running > 0 {
                    let runs = format::plural(still_running, "run was", "runs were");
                    let soong = report::command(
                        self.context.global.home.as_deref(),
                        self.context.global.url.as_deref(),
                    );
                    print::note(&format!(
                        "{runs} left unfinished by an earlier process; runs of the session used here resume now, \
                         the others with `{soong} run --trace SESSION` (see `{soong} sessions list`)"
                    ));
                }
            }
            HomeConnection::Other(_, ready) => {
                let own = env!("CARGO_PKG_VERSION");
                let version = match ready.version.as_str() {
                    same if same == own => String::new(),
                    other => format!(" (version {}, this is {own})", text::safe_line(other)),
                };
                if let Some(remote) = &self.context.remote {
                    let url = text::safe_line(remote.url());
                    print::note(&format!(
                        "the server at {url}{version} executes the runs, with its own settings"
                    ));
                    return;
                }
                let pid = ready.pid;
                let not_used = match self.changed_variables.as_slice() {
                    [] => String::new(),
                    changed => format!(", not with {} of this terminal", changed.join(", ")),
                };
                print::note(&format!(
                    "process {pid}{version} owns this home and executes the runs, with its own settings and key{not_used}"
                ));
            }
        }
    }

    /// Starts a run. If the owner is shutting down, connects again or becomes the owner, and starts
    /// it there.
    async fn start(&mut self, request: &StartBody) -> Result<(Accepted, EventStream), Failure> {
        if matches!(self.owner, HomeConnection::Own(_)) {
            // In this process a start is accepted quickly. A Ctrl-C then cancels the run.
            return self.start_at_owner(request).await;
        }
        let interrupted = self.interrupt.first();
        tokio::select! {
            biased;
            started = self.start_at_owner(request) => started,
            () = interrupted => {
                let what = "interrupted while the owner was starting the run, which may have been started";
                let soong = report::command(self.context.global.home.as_deref(), self.context.global.url.as_deref());
                Err(Failure::new(Exit::Interrupted, what, format!("See what is running: {soong} traces list")))
            }
        }
    }

    async fn start_at_owner(
        &mut self,
        request: &StartBody,
    ) -> Result<(Accepted, EventStream), Failure> {
        match with_note(STARTING, self.client().start_with_events(request)).await {
            // The owner certainly did not accept the run.
            Err(error) if error.code == ErrorCode::Closing && error.retryable => {
                self.reconnect().await?;
                self.print_owner_note();
                Ok(with_note(STARTING, self.client().start_with_events(request)).await?)
            }
            other => Ok(other?),
        }
    }

    /// Sends a request to the owner. If the owner is shutting down, retries with the next owner, or
    /// in this process after it has become the owner. Ctrl-C ends the wait.
    pub(super) async fn request<T>(
        &mut self,
        mut ask: impl AsyncFnMut(&Client) -> Result<T, ErrorInfo>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + HANDOVER_TIMEOUT;
        loop {
            let answer = tokio::select! {
                answer = ask(self.client()) => answer,
                () = self.interrupt.first() => {
                    let what = "interrupted; the last request may or may not have been executed";
                    return Err(Failure::new(Exit::Interrupted, what, "Check the state and try again."));
                }
            };
            match answer {
                // The owner certainly did not accept the request.
                Err(error)
                    if error.code == ErrorCode::Closing
                        && error.retryable
                        && Instant::now() < deadline =>
                {
                    tokio::time::sleep(POLL_INTERVAL).await;
                    self.reconnect().await?;
                }
                other => return Ok(other?),
            }
        }
    }

    /// Returns the short name of a session for a hint, or its id if it cannot be read.
    pub(super) async fn session_name(&self, id: &SessionId) -> String {
        match self
            .client()
            .call(ReadSession {
                session_id: id.clone(),
            })
            .await
        {
            Ok(view) => view.session.short_name().to_owned(),
            Err(_) => id.to_string(),
        }
    }

    pub(super) fn client(&self) -> &Client {
        self.owner.client()
    }

    /// Waits for a signal that ends the process, other than Ctrl-C.
    pub(super) async fn wait_for_end_signal(&self) {
        self.interrupt.wait_for_end().await;
    }

    /// Waits for a Ctrl-C.
    pub(super) async fn interrupted(&self) {
        self.interrupt.first().await;
    }

    /// Resets the interrupt after a Ctrl-C that was meant for a run that has ended.
    pub(super) fn reset_interrupt(&self) {
        self.interrupt.reset();
    }

    /// Returns the maximum time to wait for the end of a cancelled run.
    fn end_timeout(&self) -> Duration {
        match &self.owner {
            HomeConnection::Own(owner) => {
                Duration::from_millis(owner.runtime().info().config().runtime.cancel_timeout_ms)
                    + CANCEL_MARGIN
            }
            HomeConnection::Other(..) => REMOTE_CANCEL_TIMEOUT,
        }
    }

    /// Runs a prompt and shows its progress and result. Fails if the run could not be started or
    /// was lost.
    pub(super) async fn run(
        &mut self,
        request: StartBody,
        shown: RunDisplay,
    ) -> Result<RunReport, Failure> {
        let is_quiet = matches!(shown, RunDisplay::Quiet);
        let (watched, stored) = self.follow(request, shown).await?;
        let exit = if watched.typed.in_background {
            Ok(Exit::Success)
        } else {
            report::exit(self.context, &watched)
        };
        match (
            watched.output_closed || watched.typed.in_background,
            is_quiet,
        ) {
            (true, _) => {}
            (false, true) => report::print_answer(self.context, &watched).map(drop)?,
            (false, false) => report::print_result(self.context, self.home, &watched, &stored)?,
        }
        let session_name = self.session_name(&watched.run.run.session_id).await;
        Ok(RunReport {
            session: watched.run.run.session_id,
            session_name,
            stored,
            output_closed: watched.output_closed,
            denied: watched.refused,
            answer: watched.run.output,
            context_tokens: watched.context_tokens,
            typed: watched.typed,
            folded_step: watched.folded_step,
            exit,
        })
    }

    /// Runs a prompt and shows its progress, but not its result. Also returns the artifacts that it
    /// stored.
    pub(super) async fn follow(
        &mut self,
        request: StartBody,
        shown: RunDisplay,
    ) -> Result<(FollowedRun, Vec<StoredArtifact>), Failure> {
        let context = self.context;
        let (run, mut events) = self.start(&request).await?;
        let client = self.client().clone();
        if matches!(shown, RunDisplay::Monitored) {
            events = self.monitor(&client, &run, events).await?;
        }
        // A run that is resumed has its task and its agent from an earlier request.
        let record = tokio::select! {
            record = client.call(ReadRun { run_id: run.run_id.clone() }) => record.ok().map(|view| view.run),
            // It is handled below.
            () = self.interrupt.first() => None,
        };
        let (kind, task) = record
            .map(|run| (run.settings.agent_type, run.task))
            .unwrap_or_default();
        let progress = Progress::choose(context, shown, &run, &kind, &task);
        let home = context.global.home.as_deref();
        let interrupt = &self.interrupt;
        let end_timeout = self.end_timeout();
        let target = WatchTarget {
            client: &client,
            run: &run,
            home,
            interrupt,
            end_timeout,
        };
        let watched = watch(&target, events, progress).await?;
        self.interrupt.reset();
        let stored = report::stored(
            self.context.remote.is_none().then_some(self.home),
            &watched.run,
        );
        Ok((watched, stored))
    }

    /// Shows the monitor until the user closes it, then returns the run's events from its first
    /// one. A drawing error does not affect the run.
    async fn monitor(
        &self,
        client: &Client,
        run: &Accepted,
        mut events: EventStream,
    ) -> Result<EventStream, Failure> {
        // The monitor does not read this stream, and a server drops slow readers: the events are
        // requested again later.
        let first = loop {
            let item = tokio::select! {
                item = events.next() => item,
                () = self.interrupt.first() => break None,
            };
            match item {
                Some(Ok(StreamItem::Event(record))) => break Some(record.session_seq),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break None,
            }
        };
        drop(events);
        if let Err(failure) = self.show_monitor(Some(run.run_id.clone())).await {
            print::note(&failure.what);
        }
        Ok(client
            .session_events(
                &run.trace_id,
                first.map_or(0, |first| first.saturating_sub(1)),
            )
            .await?)
    }

    /// Shows the monitor until the user closes it. `own`: the run that is selected first.
    pub(super) async fn show_monitor(&self, own: Option<RunId>) -> Result<(), Failure> {
        let server = self
            .context
            .remote
            .as_ref()
            .map(|remote| remote.url().to_owned());
        let title = server.unwrap_or_else(|| self.home.display().to_string());
        let source = TreeSource::Connected(self.client().clone());
        monitor::check(self.context.terminal)?;
        monitor::show(source, title, own, self.context.terminal, &self.interrupt).await
    }

    /// Returns whether an earlier process has left a run of the session unfinished, and this
    /// process can resume it.
    pub(super) fn has_interrupted_run(&self, session: &SessionId) -> bool {
        let HomeConnection::Own(owner) = &self.owner else {
            return false;
        };
        let info = owner.runtime().info();
        let interrupted = &info.interrupted_runs().unchanged;
        let records = || OfflineStore::open(self.home).ok();
        info.config().runtime.recovery != Some(RecoveryMode::Fail)
            && !interrupted.is_empty()
            && records().is_some_and(|records| records.has_user_run(session, interrupted))
    }

    /// Deletes all sessions except the newest `most`, if this process owns the home.
    pub(super) async fn delete_old_sessions(&self, most: usize) {
        let HomeConnection::Own(owner) = &self.owner else {
            return;
        };
        let runtime = owner.runtime();
        let Ok(page) = runtime
            .sessions()
            .list(SessionFilter::default(), 100, None)
            .await
        else {
            return;
        };
        for session in page.items.into_iter().skip(most) {
            if let Err(error) = runtime.sessions().delete(&session.session_id).await {
                tracing::warn!(%error, "failed to delete an earlier session");
            }
        }
    }

    /// Closes the connection and leaves the active run of a session to another process: to the
    /// owner, or to a new background process if this one is the owner. Returns whether the run
    /// continues there.
    ///
    /// An owner continues until all runs have ended if it also executes runs of other sessions, or
    /// if `runtime.recovery = "fail"` prevents that another process resumes the run.
    pub(super) async fn hand_over(self, session: &SessionId) -> Result<bool, Failure> {
        let HomeConnection::Own(owner) = &self.owner else {
            return Ok(true);
        };
        let can_resume =
            owner.runtime().info().config().runtime.recovery != Some(RecoveryMode::Fail);
        // A request that is in progress may start a run.
        while !(can_resume && owner.shut_if_only(session)) {
            if !can_resume || owner.has_runs_besides(session) {
                self.close().await;
                return Ok(false);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let context = self.context;
        let home = self.home;
        if let Some(owner) = self.owner.into_owner() {
            // The run is stopped without an end, so that the next owner can resume it.
            owner.close().await;
        }
        resume_in_background(context, home, session)
            .await
            .map_err(|failure| {
                let what = format!(
                    "the run was interrupted and does not continue in the background: {}",
                    failure.what
                );
                let soong = report::command(
                    context.global.home.as_deref(),
                    context.global.url.as_deref(),
                );
                Failure::new(
                    failure.exit,
                    what,
                    format!("Resume it: {soong} run --trace {session}"),
                )
            })
    }

    /// Closes the connection. An owner first waits until the runs that other processes started here
    /// have ended, and a moment for the names of traces.
    pub(super) async fn close(self) {
        let Some(owner) = self.owner.into_owner() else {
            return;
        };
        wait_idle(&owner, &self.interrupt).await;
        wait_for_names(&owner, &self.interrupt).await;
        owner.close().await;
    }
}

/// Resumes the run of a session in the owner of the home, or in a new background process. Returns
/// `false` if the run has ended.
async fn resume_in_background(
    context: &Context<'_>,
    home: &Path,
    session: &SessionId,
) -> Result<bool, Failure> {
    let client = host::connect_or_spawn(context, home).await?;
    let is_active = client
        .call(ReadSession {
            session_id: session.clone(),
        })
        .await?
        .session
        .live_runs
        > 0;
    if is_active {
        client
            .start(&StartBody {
                session_id: Some(session.to_string()),
                ..StartBody::default()
            })
            .await?;
    }
    Ok(is_active)
}

fn interrupted_before_start() -> Failure {
    Failure::new(
        Exit::Interrupted,
        "interrupted before anything started",
        "Nothing was lost. Try again.",
    )
}

fn prepare(context: &Context<'_>, home: &Path) -> Interrupt {
    let has_picture = context.terminal.can_redraw && !context.global.json;
    log::start(context.global.verbose, LogTarget::Run { home, has_picture });
    Interrupt::listen()
}

/// Waits for calls for names that have outlived their runs, because closing the runtime ends them.
async fn wait_for_names(owner: &Owner, interrupt: &Interrupt) {
    let deadline = Instant::now() + NAME_TIMEOUT;
    while owner.runtime().info().pending_names() > 0 && Instant::now() < deadline {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = interrupt.first() => return,
        }
    }
}

async fn wait_idle(owner: &Owner, interrupt: &Interrupt) {
    // This process's own run may take a moment to leave the registry of live runs.
    for _ in 0..2 {
        if owner.shut_if_idle() {
            return;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    match owner.runtime().info().active_user_runs() {
        0 => print::note("another terminal is still writing; this process exits when that is done"),
        runs => print::note(&format!(
            "{} still active in this home; this process exits when all have ended (Ctrl-C cancels them)",
            format::plural(runs, "run is", "runs are")
        )),
    }
    let mut cancelled = false;
    let mut exit_at = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {
                if owner.shut_if_idle() {
                    return;
                }
            }
            () = interrupt.first(), if !cancelled => {
                cancelled = true;
                print::error_line("cancelling; press Ctrl-C again to exit immediately");
                // `cancel_all` waits for the runs to end, but no longer than the cancel timeout.
                owner.cancel_all().await;
                exit_at = Instant::now() + CANCEL_MARGIN;
            }
            () = tokio::time::sleep_until(exit_at), if cancelled => {
                print::note("some runs have not ended; resume them with `soong run --trace SESSION`");
                return;
            }
        }
    }
}
