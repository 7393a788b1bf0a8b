//! A place to work in: the home's owner, reached or become, and runs that are watched there.

use std::{path::Path, time::Duration};

use soong::{
    ErrorCode, ErrorInfo, Recover, RuntimeBuilder, SessionFilter, StreamItem,
    protocol::{RunMode, Session, SessionId},
};
use soong_server::http::{Accepted, StartBody};
use tokio::time::Instant;

use crate::{
    client::{Client, Watch},
    context::{Context, Shown},
    exit::{Exit, Failure},
    figure,
    interrupt::Interrupt,
    log::{self, Place},
    monitor::{self, Whom},
    owner::{Owner, Reached},
    print,
    progress::Progress,
    records::{Records, Unfinished, unfinished},
    report::{self, Refused, Stored},
    text,
    watch::watch,
};

/// How much longer than cancelling may take one waits for the end.
const MARGIN: Duration = Duration::from_secs(3);
/// How long an end may take that was asked of another owner, whose settings are not known.
const OTHERS_PATIENCE: Duration = Duration::from_secs(30);
/// How long an owner that is about to leave is asked again.
const HANDOVER: Duration = Duration::from_secs(10);
/// How often an owner that wants to leave looks whether it may.
const LOOK: Duration = Duration::from_millis(50);

/// A place to work in. Leave it with [`Workplace::leave`], however the work ended.
pub(super) struct Workplace<'a> {
    context: &'a Context<'a>,
    home: &'a Path,
    build: Box<dyn Fn() -> RuntimeBuilder + 'a>,
    reached: Reached,
    interrupt: Interrupt,
}

/// What came out of a run.
pub(super) struct Done {
    pub(super) session: SessionId,
    /// What it stored.
    pub(super) stored: Vec<Stored>,
    /// Whether nobody reads on.
    pub(super) unread: bool,
    /// Calls that were refused.
    pub(super) refused: Vec<Refused>,
    /// How the process ends if that was all.
    pub(super) exit: Result<Exit, Failure>,
}

impl<'a> Workplace<'a> {
    /// Reaches the owner of the home, or becomes it; `build` says with what.
    pub(super) async fn enter(
        context: &'a Context<'a>,
        home: &'a Path,
        build: impl Fn() -> RuntimeBuilder + 'a,
    ) -> Result<Self, Failure> {
        let interrupt = prepare(context, home);
        let address = context.address(home);
        let reached = tokio::select! {
            reached = Reached::find(&address, &build) => reached?,
            () = interrupt.first() => return Err(left()),
        };
        Ok(Self::begin(context, home, Box::new(build), reached, interrupt))
    }

    /// The same without a word about another owner, for what is done in a moment.
    pub(super) async fn slip_in(
        context: &'a Context<'a>,
        home: &'a Path,
        build: impl Fn() -> RuntimeBuilder + 'a,
    ) -> Result<Self, Failure> {
        let interrupt = prepare(context, home);
        let address = context.address(home);
        let reached = tokio::select! {
            reached = Reached::find(&address, &build) => reached?,
            () = interrupt.first() => return Err(left()),
        };
        let place = Self { context, home, build: Box::new(build), reached, interrupt };
        if matches!(place.reached, Reached::Own(_)) {
            place.introduce();
        }
        Ok(place)
    }

    /// Becomes the owner of the home; fails with `home_locked` if another process is.
    pub(super) async fn own(
        context: &'a Context<'a>,
        home: &'a Path,
        build: impl Fn() -> RuntimeBuilder + 'a,
    ) -> Result<Self, Failure> {
        let interrupt = prepare(context, home);
        let owner = tokio::select! {
            owner = Owner::open(build(), Recover::Nothing) => owner?,
            () = interrupt.first() => return Err(left()),
        };
        let reached = Reached::Own(owner);
        Ok(Self::begin(context, home, Box::new(build), reached, interrupt))
    }

    fn begin(
        context: &'a Context<'a>,
        home: &'a Path,
        build: Box<dyn Fn() -> RuntimeBuilder + 'a>,
        reached: Reached,
        interrupt: Interrupt,
    ) -> Self {
        let place = Self { context, home, build, reached, interrupt };
        place.introduce();
        place
    }

    /// Says whose home it is, where that is not what one expects.
    fn introduce(&self) {
        if self.context.global.json {
            return;
        }
        match &self.reached {
            Reached::Own(owner) => {
                // What cannot be read was said when the home was opened.
                let read = |home| Records::open(home).ok().and_then(|records| unfinished(&records.reader).ok());
                let left = match owner.runtime().left_behind().untouched {
                    0 => None,
                    _ => read(self.home),
                };
                // Those that wait for people are listed by `questions list` and `permissions list`.
                let Unfinished { at_work, .. } = left.unwrap_or_default();
                let left_behind = at_work.len();
                if left_behind > 0 {
                    let runs = figure::plural(left_behind, "run was", "runs were");
                    let soong =
                        report::command(self.context.global.home.as_deref(), self.context.global.url.as_deref());
                    print::error_line(&format!(
                        "note: {runs} left unfinished by an earlier process; what belongs to the session that is used here \
                         goes on now, the rest by `{soong} run --trace SESSION` (see `{soong} sessions list`)"
                    ));
                }
            }
            Reached::Other(_, ready) => {
                let has_own = self.context.global.config.is_some();
                let config = if has_own { ", not yours" } else { "" };
                let own = env!("CARGO_PKG_VERSION");
                let version = match ready.version.as_str() {
                    same if same == own => String::new(),
                    other => format!(" (version {}, this is {own})", text::line(other)),
                };
                if let Some(remote) = &self.context.remote {
                    let url = text::line(remote.url());
                    print::error_line(&format!(
                        "note: the server at {url}{version} does the work, with its own settings"
                    ));
                    return;
                }
                let pid = ready.pid;
                print::error_line(&format!(
                    "note: process {pid}{version} owns this home and does the work, with its own settings and key{config}"
                ));
            }
        }
    }

    /// Starts a run; with another owner, or as the owner, where the one that was there has left.
    async fn start(&mut self, wish: &StartBody) -> Result<(Accepted, Watch), Failure> {
        match self.client().start_and_watch(wish).await {
            // Not taken in, for sure.
            Err(error) if error.code == ErrorCode::Closing && error.retryable => {
                self.reached = Reached::find(&self.context.address(self.home), &self.build).await?;
                self.introduce();
                Ok(self.client().start_and_watch(wish).await?)
            }
            other => Ok(other?),
        }
    }

    /// Asks the owner for something; the next one, or this process as the owner, where the one that was there
    /// has left. Ctrl-C ends the wait.
    pub(super) async fn ask<T>(
        &mut self,
        mut ask: impl AsyncFnMut(&Client) -> Result<T, ErrorInfo>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + HANDOVER;
        loop {
            let answer = tokio::select! {
                answer = ask(self.client()) => answer,
                () = self.interrupt.first() => {
                    let what = "interrupted; what was asked for last may be done or not";
                    return Err(Failure::new(Exit::Interrupted, what, "Look, and try again."));
                }
            };
            match answer {
                // Not taken in, for sure.
                Err(error) if error.code == ErrorCode::Closing && error.retryable && Instant::now() < deadline => {
                    tokio::time::sleep(LOOK).await;
                    self.reached = Reached::find(&self.context.address(self.home), &self.build).await?;
                }
                other => return Ok(other?),
            }
        }
    }

    pub(super) fn client(&self) -> &Client {
        self.reached.client()
    }

    /// Waits for a request to end that is more than a Ctrl-C.
    pub(super) async fn ended(&self) {
        self.interrupt.ended().await;
    }

    /// Forgets a Ctrl-C that was meant for what has ended.
    pub(super) fn calm(&self) {
        self.interrupt.calm();
    }

    /// Returns how long an end may take that was asked for here.
    fn patience(&self) -> Duration {
        match &self.reached {
            Reached::Own(owner) => Duration::from_millis(owner.runtime().config().runtime.cancel_timeout_ms) + MARGIN,
            Reached::Other(..) => OTHERS_PATIENCE,
        }
    }

    /// Does one run and tells about it. `Err` = it did not begin, or was lost.
    pub(super) async fn run(&mut self, wish: StartBody, shown: Shown) -> Result<Done, Failure> {
        let context = self.context;
        let task = wish.prompt.clone().unwrap_or_else(|| "goes on".to_owned());
        let kind = match (wish.agent_type.as_ref().and_then(Option::as_ref), wish.mode.flatten()) {
            (Some(kind), _) => kind.clone(),
            (None, Some(RunMode::Orchestrator)) => "orchestrator".to_owned(),
            (None, _) => "default".to_owned(),
        };
        let (run, mut events) = self.start(&wish).await?;
        let client = self.client().clone();
        if shown == Shown::Monitored {
            events = self.monitor(&client, &run, events).await?;
        }
        let progress = Progress::choose(context, shown, &run, &kind, &task);
        let watched = watch(&client, &run, events, progress, &self.interrupt, self.patience()).await?;
        self.interrupt.calm();
        let stored = report::stored(self.context.remote.is_none().then_some(self.home), &watched.run);
        let exit = report::exit(context, &watched);
        if !watched.unread {
            report::tell(context, self.home, &watched, &stored)?;
        }
        Ok(Done { session: run.session_id, stored, unread: watched.unread, refused: watched.refused, exit })
    }

    /// Shows the monitor until it is left; returns the run's events from its beginning on. What cannot be drawn does
    /// not hold up the run.
    async fn monitor(&self, client: &Client, run: &Accepted, mut events: Watch) -> Result<Watch, Failure> {
        // Nobody reads them meanwhile, and a server does not wait for long: they are asked for again.
        let first = loop {
            match events.next().await {
                Some(Ok(StreamItem::Event(record))) => break Some(record.session_seq),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break None,
            }
        };
        drop(events);
        let server = self.context.remote.as_ref().map(|remote| remote.url().to_owned());
        let title = server.unwrap_or_else(|| self.home.display().to_string());
        let (whom, own) = (Whom::Reached(client.clone()), Some(run.run_id.clone()));
        if let Err(failure) = monitor::show(whom, title, own, self.context.terminal, &self.interrupt).await {
            print::error_line(&format!("note: {}", failure.what));
        }
        Ok(client.session_events(&run.trace_id, first.map_or(0, |first| first.saturating_sub(1))).await?)
    }

    /// Deletes all sessions but the newest, if the home is this process's.
    pub(super) async fn keep_sessions(&self, most: usize) {
        let Reached::Own(owner) = &self.reached else { return };
        let runtime = owner.runtime();
        let Ok(page) = runtime.sessions(SessionFilter::default(), 100, None).await else { return };
        for session in page.items.into_iter().skip(most) {
            if let Err(error) = runtime.delete_session(&session.session_id).await {
                tracing::warn!(%error, "an earlier session could not be deleted");
            }
        }
    }

    /// Leaves; an owner stays until the runs have ended that others started here.
    pub(super) async fn leave(self) {
        let Some(owner) = self.reached.own() else { return };
        linger(&owner, &self.interrupt).await;
        owner.close().await;
    }
}

fn left() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted before anything was started", "Nothing is lost: try again.")
}

fn prepare(context: &Context<'_>, home: &Path) -> Interrupt {
    let has_picture = context.terminal.can_redraw && !context.global.json;
    log::start(context.global.verbose, Place::Run { home, has_picture });
    Interrupt::listen()
}

async fn linger(owner: &Owner, interrupt: &Interrupt) {
    // A run of ours may need a moment to be struck from the living.
    for _ in 0..2 {
        if owner.shut_if_idle() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
    match owner.runtime().user_runs_at_work() {
        0 => {
            print::error_line("note: another terminal is still storing something; this process stays until it is done")
        }
        runs => print::error_line(&format!(
            "note: {} still at work in this home; this process stays until all have ended (Ctrl-C cancels them)",
            figure::plural(runs, "run is", "runs are")
        )),
    }
    let (mut cancelled, mut leave_at) = (false, Instant::now());
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {
                if owner.shut_if_idle() {
                    return;
                }
            }
            () = interrupt.first(), if !cancelled => {
                cancelled = true;
                print::error_line("cancelling; Ctrl-C again leaves at once");
                // Waits for their ends, but no longer than cancelling may take.
                owner.cancel_all().await;
                leave_at = Instant::now() + MARGIN;
            }
            () = tokio::time::sleep_until(leave_at), if cancelled => {
                print::error_line("note: not every run has ended; `soong run --trace SESSION` resumes what is left");
                return;
            }
        }
    }
}

/// Picks the session of a project folder in which something happened last.
pub(super) fn last_of(sessions: Vec<Session>, project: &Path) -> Option<Session> {
    let project = project.display().to_string();
    let last = sessions.into_iter().filter(|session| session.project_dir == project);
    last.max_by_key(|session| session.updated_at)
}

/// Finds the session of a project folder in which something happened last.
pub(super) async fn last_session(client: &Client, project: Option<&Path>) -> Result<Session, Failure> {
    let project = project.ok_or_else(|| {
        let advice = "Name the session with --session ID, or the folder on the server's machine with --path DIR.";
        Failure::usage("which session is to go on at the server is not known", advice)
    })?;
    last_of(client.sessions().await?, project).ok_or_else(|| {
        let what = format!("no session of the project {} can be continued", project.display());
        Failure::new(Exit::NotFound, what, "Begin one without --continue, or name one with --session ID.")
    })
}
