//! Follows one run: its events, Ctrl-C, and its end.
//!
//! Invariant: every event that the run and its descendants record up to the end of the run is
//! shown.
//!
//! Elsewhere: the report on the finished run (`report.rs`).

use std::{collections::HashSet, path::Path, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use soong::{
    ErrorCode, ErrorInfo, StreamItem,
    protocol::{
        Event, EventRecord, ModelEvent, PermissionEvent, PermissionMode, RunId, SubAgentEvent,
        ToolEvent,
        api::{
            Accepted, PermissionModeBody,
            operation::{CancelRun, ReadRun, SetPermissionMode},
        },
    },
};
use soong_client::{Client, EventStream};
use soong_tui::{attention, request::UserRequest, typed_messages::KeyRequest};
use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    exit::{Exit, Failure},
    input,
    interrupt::Interrupt,
    progress::{Progress, ProgressEnd},
    prompts::{self, OpenRequests, PromptOutcome},
    report::{self, DeniedCall, FollowedRun, TypedDuringRun},
};

/// Interval between checks whether a run with open requests waits only for user input.
const REQUEST_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of denied calls that are recorded.
const MAX_REFUSED: usize = 100;
/// Interval between redraws of the live display.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between checks for keys. A typed character is shown after at most this time.
const KEY_INTERVAL: Duration = Duration::from_millis(25);
/// Notifications are sent only if the user has answered nothing for this long.
const NOTIFY_AFTER: Duration = Duration::from_secs(10);

/// Note that events are polled instead of streamed.
pub(crate) const POLLING_NOTE: &str = "note: the event stream of the server is silent, as with a proxy that buffers responses; \
                                 polling its events instead";

/// Maximum time for cancelling a run after following it has failed.
const CANCEL_LIMIT: Duration = Duration::from_secs(2);

/// Outcome of following a run.
enum FollowOutcome {
    /// The run has ended.
    Run {
        interrupted: bool,
        output_closed: bool,
    },
    /// The run waits for user input, and no user can be prompted.
    AwaitsInput(Vec<UserRequest>),
    /// The user ends the chat, and the run is to continue in another process.
    Background,
    /// This process received a signal to end; the run continues at the server.
    Detached(Failure),
}

/// The followed run and all its descendants. Other runs of the session are ignored.
struct RunFamily {
    own: RunId,
    /// The followed run and its descendants.
    runs: HashSet<RunId>,
    refused: Vec<DeniedCall>,
    /// Size of the last prompt of the followed run in tokens, as estimated.
    context_tokens: Option<u64>,
}

impl RunFamily {
    fn of(own: RunId) -> Self {
        Self {
            runs: HashSet::from([own.clone()]),
            own,
            refused: Vec::new(),
            context_tokens: None,
        }
    }

    fn observe(&mut self, item: &StreamItem) -> bool {
        let record = match item {
            StreamItem::Delta(delta) => return self.runs.contains(&delta.run_id),
            StreamItem::Lost(lost) => return self.runs.contains(&lost.run_id),
            StreamItem::Event(record) => record,
        };
        let is_ours = record
            .run_id
            .as_ref()
            .is_some_and(|id| self.runs.contains(id));
        match &record.event {
            Event::Model(ModelEvent::ContextBuilt {
                estimated_tokens, ..
            }) if record.run_id.as_ref() == Some(&self.own) => {
                self.context_tokens = Some(*estimated_tokens);
            }
            Event::SubAgent(SubAgentEvent::Started { run_id, .. }) if is_ours => {
                self.runs.insert(run_id.clone());
            }
            Event::Tool(ToolEvent::Denied {
                name,
                target,
                allow,
                ..
            }) if is_ours => {
                let refused = DeniedCall {
                    tool: name.clone(),
                    target: target.clone(),
                    allow: allow.clone(),
                };
                if self.refused.len() < MAX_REFUSED && !self.refused.contains(&refused) {
                    self.refused.push(refused);
                }
            }
            _ => {}
        }
        is_ours
    }
}

/// A run to follow, with the means to cancel it.
pub(crate) struct WatchTarget<'a> {
    pub(crate) client: &'a Client,
    pub(crate) run: &'a Accepted,
    /// Home that the command line names, for advice.
    pub(crate) home: Option<&'a Path>,
    pub(crate) interrupt: &'a Interrupt,
    /// Maximum time for the run to end after it was cancelled here.
    pub(crate) end_timeout: Duration,
}

/// Follows the run until it has ended and its last event was shown. `events` must start before the
/// run does.
///
/// If following fails, the run is cancelled, since its result would not be seen.
pub(crate) async fn watch(
    target: &WatchTarget<'_>,
    events: EventStream,
    progress: Progress,
) -> Result<FollowedRun, Failure> {
    let client = target.client;
    let run_id = &target.run.run_id;
    let mut follower = Follower::new(target, progress);
    let followed = follower.follow(events).await;
    let Follower {
        family,
        progress,
        goes_back,
        requests,
        cancelled_by_key,
        ..
    } = follower;
    let permission_mode = progress.permission_mode();
    let in_background = matches!(followed, Ok(FollowOutcome::Background));
    let is_ended_by_user = in_background
        || matches!(
            followed,
            Ok(FollowOutcome::Run {
                interrupted: true,
                ..
            })
        );
    if permission_mode.is_some()
        && requests.has_not_answered_recently()
        && !is_ended_by_user
        && !progress.is_typing()
    {
        attention::notify("soong: the run has ended");
    }
    let ProgressEnd {
        has_printed_answer,
        folded_step,
    } = progress.finish();
    let (interrupted, output_closed, asks) = match followed {
        Ok(FollowOutcome::Run {
            interrupted,
            output_closed,
        }) => (interrupted, output_closed, Vec::new()),
        Ok(FollowOutcome::AwaitsInput(asks)) => (false, false, asks),
        Ok(FollowOutcome::Background) => (false, false, Vec::new()),
        Ok(FollowOutcome::Detached(failure)) => return Err(failure),
        Err(failure) => {
            let _ = tokio::time::timeout(
                CANCEL_LIMIT,
                client.call(CancelRun {
                    run_id: run_id.clone(),
                }),
            )
            .await;
            return Err(failure);
        }
    };
    let run = if interrupted {
        match tokio::time::timeout(
            CANCEL_LIMIT,
            client.call(ReadRun {
                run_id: run_id.clone(),
            }),
        )
        .await
        {
            Ok(run) => run?,
            Err(_) => return Err(no_record(target)),
        }
    } else {
        client
            .call(ReadRun {
                run_id: run_id.clone(),
            })
            .await?
    };
    Ok(FollowedRun {
        run,
        interrupted,
        output_closed,
        answer_printed: has_printed_answer,
        open_requests: asks,
        refused: family.refused,
        context_tokens: family.context_tokens,
        typed: TypedDuringRun {
            permission_mode,
            cancelled_by_key,
            goes_back,
            in_background,
        },
        folded_step,
    })
}

/// State of following a run.
struct Follower<'a> {
    target: &'a WatchTarget<'a>,
    family: RunFamily,
    progress: Progress,
    requests: RequestPoll,
    /// Time at which the wait for the run ends; `None` until the user cancels the run.
    exit_at: Option<Instant>,
    /// Whether the reader of the output is gone.
    output_closed: bool,
    /// Whether Esc cancelled the run.
    cancelled_by_key: bool,
    /// Whether Esc was pressed after the run was cancelled.
    goes_back: bool,
}

impl<'a> Follower<'a> {
    fn new(target: &'a WatchTarget<'a>, progress: Progress) -> Self {
        Self {
            target,
            family: RunFamily::of(target.run.run_id.clone()),
            requests: RequestPoll::new(&progress),
            progress,
            exit_at: None,
            output_closed: false,
            cancelled_by_key: false,
            goes_back: false,
        }
    }

    async fn follow(&mut self, mut events: EventStream) -> Result<FollowOutcome, Failure> {
        let target = self.target;
        let mut frames = tokio::time::interval(FRAME_INTERVAL);
        frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut key_checks = tokio::time::interval(KEY_INTERVAL);
        key_checks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut is_polled = false;
        loop {
            let outcome = tokio::select! {
                item = events.next() => match item {
                    Some(Ok(item)) => self.handle_item(&item)?,
                    Some(Err(error)) if error.code != ErrorCode::Closing => return Err(error.into()),
                    Some(Err(_)) | None => return Err(owner_lost(target)),
                },
                () = target.interrupt.first(), if self.exit_at.is_none() => {
                    let outcome = self.handle_interrupt().await;
                    // The end of the run is not awaited on a stream that may be held back.
                    events.poll();
                    outcome
                }
                () = tokio::time::sleep_until(self.exit_at.unwrap_or_else(Instant::now)), if self.exit_at.is_some() => {
                    return Err(cancel_timed_out(target.end_timeout));
                }
                _ = key_checks.tick(), if self.progress.reads_keys() => {
                    self.handle_keys()
                }
                open = self.requests.fetched() => self.handle_requests(open).await?,
                _ = frames.tick() => {
                    self.handle_frame();
                    None
                }
            };
            // The first poll may return the end of the run.
            if events.is_polled() && !is_polled {
                is_polled = true;
                if self.exit_at.is_none() {
                    self.progress.note(POLLING_NOTE);
                }
            }
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
    }

    /// Shows an item of the stream. Returns the outcome if it is the last event of the run. Fails
    /// if the run was lost.
    fn handle_item(&mut self, item: &StreamItem) -> Result<Option<FollowOutcome>, Failure> {
        let run = self.target.run;
        if is_user_request(item) {
            self.requests.expect();
        }
        if !self.family.observe(item) {
            return Ok(None);
        }
        if let Err(failure) = self.progress.show(item) {
            if !failure.is_output_closed() {
                return Err(failure);
            }
            // The reader of the output is gone, so the run is cancelled.
            self.output_closed = true;
            self.progress = Progress::Closed;
            cancel(self.target.client, run);
        }
        match item {
            StreamItem::Event(record) if ends(record, run) => {
                let interrupted = self.exit_at.is_some();
                let output_closed = self.output_closed;
                Ok(Some(FollowOutcome::Run {
                    interrupted,
                    output_closed,
                }))
            }
            StreamItem::Lost(lost) if lost.run_id == run.run_id => Err(lost.error.clone().into()),
            _ => Ok(None),
        }
    }

    /// Cancels the run after Ctrl-C or a signal. If the signal ends this process, a run at a server
    /// continues.
    async fn handle_interrupt(&mut self) -> Option<FollowOutcome> {
        if let Some(url) = self.target.client.server()
            && self.target.interrupt.is_end_requested().await
        {
            return Some(FollowOutcome::Detached(detached(self.target.run, url)));
        }
        self.cancel_by_user();
        None
    }

    /// Redraws the display, and fetches the requests that wait for the user unless the user has
    /// cancelled the run.
    fn handle_frame(&mut self) {
        self.progress.draw(self.target.client);
        if self.exit_at.is_none() {
            self.requests.fetch_if_due(self.target, &self.progress);
        }
    }

    /// Prompts the user for the open requests unless the user has cancelled the run.
    async fn handle_requests(
        &mut self,
        open: Result<OpenRequests, ErrorInfo>,
    ) -> Result<Option<FollowOutcome>, Failure> {
        if self.exit_at.is_some() {
            return Ok(None);
        }
        match self
            .requests
            .handle(open, self.target, &mut self.progress)
            .await?
        {
            PollOutcome::Continue => Ok(None),
            PollOutcome::AwaitsInput(requests) => Ok(Some(FollowOutcome::AwaitsInput(requests))),
            PollOutcome::Cancel => {
                self.cancel_by_user();
                Ok(None)
            }
        }
    }

    fn handle_keys(&mut self) -> Option<FollowOutcome> {
        for request in self.progress.read_keys() {
            match request {
                KeyRequest::Cancel if self.exit_at.is_none() => {
                    self.cancelled_by_key = true;
                    self.cancel_by_user();
                }
                KeyRequest::Cancel => self.goes_back = true,
                KeyRequest::Background if self.exit_at.is_none() => {
                    return Some(FollowOutcome::Background);
                }
                // The run that was cancelled has not ended yet.
                KeyRequest::Background => {}
                KeyRequest::Unfold => self.progress.unfold(),
                KeyRequest::NextPermissionMode => {
                    if let Some(mode) = self
                        .progress
                        .permission_mode()
                        .map(input::next_permission_mode)
                    {
                        self.progress.set_permission_mode(mode);
                        set_permission_mode(self.target.client, self.target.run, mode);
                    }
                }
            }
        }
        None
    }

    fn cancel_by_user(&mut self) {
        self.progress.cancelling(self.cancelled_by_key);
        cancel(self.target.client, self.target.run);
        self.exit_at = Some(Instant::now() + self.target.end_timeout);
    }
}

/// Returns whether a run asks the user for an answer or a permission.
fn is_user_request(item: &StreamItem) -> bool {
    matches!(
        item,
        StreamItem::Event(record) if matches!(
            record.event,
            Event::SubAgent(SubAgentEvent::QuestionAsked { .. }) | Event::Permission(PermissionEvent::Requested { .. })
        )
    )
}

/// Looks for requests that wait for the user.
struct RequestPoll {
    /// The requests that are being fetched: a server may not answer for a while.
    fetching: Option<BoxFuture<'static, Result<OpenRequests, ErrorInfo>>>,
    /// Whether a run has made a request since the fetch began.
    expected_again: bool,
    /// Whether requests may be open.
    expected: bool,
    next_at: Instant,
    can_ask: bool,
    /// Time of the user's last answer, or of the start.
    answered_at: Instant,
}

/// Result of a poll of the open requests.
enum PollOutcome {
    Continue,
    /// The user cancels the run.
    Cancel,
    /// The run waits for input, and no user can be asked here.
    AwaitsInput(Vec<UserRequest>),
}

impl RequestPoll {
    fn new(progress: &Progress) -> Self {
        // A request of an earlier run of the session can block this run.
        let now = Instant::now();
        Self {
            fetching: None,
            expected_again: false,
            expected: true,
            next_at: now,
            can_ask: progress.can_ask(),
            answered_at: now,
        }
    }

    /// Returns whether the user has answered nothing for a while, and may be elsewhere.
    fn has_not_answered_recently(&self) -> bool {
        self.answered_at.elapsed() >= NOTIFY_AFTER
    }

    /// Polls at the next opportunity, because a run has made a request.
    fn expect(&mut self) {
        self.expected = true;
        self.expected_again = true;
        self.next_at = Instant::now();
    }

    fn fetch_if_due(&mut self, target: &WatchTarget<'_>, progress: &Progress) {
        // A prompt would receive what the user is typing as its answer.
        if self.fetching.is_some()
            || !self.expected
            || Instant::now() < self.next_at
            || progress.is_typing()
        {
            return;
        }
        self.next_at = Instant::now() + REQUEST_POLL_INTERVAL;
        self.expected_again = false;
        let client = target.client.clone();
        let session_id = target.run.session_id.clone();
        let fetching =
            async move { prompts::fetch_open_requests(&client, Some(&session_id)).await };
        self.fetching = Some(fetching.boxed());
    }

    /// Waits for the requests that are being fetched. Cancel-safe.
    async fn fetched(&mut self) -> Result<OpenRequests, ErrorInfo> {
        let Some(fetching) = &mut self.fetching else {
            return std::future::pending().await;
        };
        let open = fetching.await;
        self.fetching = None;
        open
    }

    async fn handle(
        &mut self,
        open: Result<OpenRequests, ErrorInfo>,
        target: &WatchTarget<'_>,
        progress: &mut Progress,
    ) -> Result<PollOutcome, Failure> {
        let open = open.map_err(|error| {
            if error.code == ErrorCode::Closing {
                owner_lost(target)
            } else {
                error.into()
            }
        })?;
        if progress.is_typing() {
            // They are fetched again.
            return Ok(PollOutcome::Continue);
        }
        let has_requests = !open.requests.is_empty();
        self.expected = has_requests || self.expected_again;
        if has_requests && self.can_ask {
            progress.pause();
            if self.has_not_answered_recently() {
                attention::notify("soong: an agent needs your answer");
            }
            let outcome = prompt_all(target, &open.requests, progress).await?;
            progress.resume();
            self.answered_at = Instant::now();
            match outcome {
                PromptOutcome::Answered | PromptOutcome::DecidedElsewhere => {}
                // Other runs continue as far as they can without the answer.
                PromptOutcome::Dismissed => (self.can_ask, self.next_at) = (false, Instant::now()),
                PromptOutcome::Cancel => return Ok(PollOutcome::Cancel),
            }
        } else if has_requests && open.awaits_input {
            return Ok(PollOutcome::AwaitsInput(open.requests));
        }
        Ok(PollOutcome::Continue)
    }
}

/// Prompts the user for one request after the other.
async fn prompt_all(
    target: &WatchTarget<'_>,
    asks: &[UserRequest],
    progress: &mut Progress,
) -> Result<PromptOutcome, Failure> {
    let WatchTarget {
        client, interrupt, ..
    } = target;
    for ask in asks {
        let asker = progress.child_label(ask.run_id());
        let outcome =
            prompts::prompt_user(client, ask, asker.as_deref(), interrupt, progress.paint())
                .await?;
        match (outcome, ask) {
            // Calls of sub-agents are not in the transcript, and may have the same ids.
            (PromptOutcome::Answered, UserRequest::Permission(permission))
                if permission.diff.is_some() && permission.run_id == target.run.run_id =>
            {
                progress.mark_change_seen(&permission.tool_call_id);
            }
            (PromptOutcome::Answered | PromptOutcome::DecidedElsewhere, _) => {}
            (PromptOutcome::Cancel | PromptOutcome::Dismissed, _) => return Ok(outcome),
        }
    }
    Ok(PromptOutcome::Answered)
}

/// Requests the cancellation in the background, since its answer waits for the disk. The end of the
/// run arrives as an event.
fn cancel(client: &Client, run: &Accepted) {
    let client = client.clone();
    let run = run.run_id.clone();
    tokio::spawn(async move {
        if let Err(error) = client
            .call(CancelRun {
                run_id: run.clone(),
            })
            .await
        {
            tracing::debug!(%run, %error, "failed to cancel the run");
        }
    });
}

/// Sets the permission mode in the background. The change arrives as an event.
fn set_permission_mode(client: &Client, run: &Accepted, mode: PermissionMode) {
    let client = client.clone();
    let session = run.session_id.clone();
    tokio::spawn(async move {
        if let Err(error) = client
            .call(SetPermissionMode {
                session_id: session.clone(),
                body: PermissionModeBody {
                    permission_mode: mode,
                },
            })
            .await
        {
            tracing::debug!(%session, %error, "failed to set the permission mode");
        }
    });
}

fn ends(record: &EventRecord, run: &Accepted) -> bool {
    record.event.is_terminal() && record.run_id.as_ref() == Some(&run.run_id)
}

/// Returns the failure for a client that is ended by a signal: the run at the server is not
/// cancelled.
fn detached(run: &Accepted, url: &str) -> Failure {
    let what = format!(
        "stopped by a signal; run {} continues on the server",
        run.run_id
    );
    let soong = report::command(None, Some(url));
    Failure::new(
        Exit::Interrupted,
        what,
        format!(
            "Follow it: {soong} traces events {} --follow",
            run.session_id
        ),
    )
}

/// Returns the failure for a server that does not send the record of a run that the user has
/// cancelled.
fn no_record(target: &WatchTarget<'_>) -> Failure {
    let what = format!(
        "run {} was cancelled; the server does not send its record",
        target.run.run_id
    );
    let soong = report::command(target.home, target.client.server());
    Failure::new(
        Exit::Interrupted,
        what,
        format!("Show it later: {soong} traces show {}", target.run.trace_id),
    )
}

fn cancel_timed_out(limit: Duration) -> Failure {
    let what = format!(
        "the run has not ended {} s after it was cancelled; no longer waiting for it",
        limit.as_secs()
    );
    let advice = "Recorded data is safe. Check the disk with `soong doctor`, and see the logs.";
    Failure::new(Exit::Interrupted, what, advice)
}

fn owner_lost(target: &WatchTarget<'_>) -> Failure {
    let what = "the process that executed the run has exited; the run is recorded up to that point";
    let soong = report::command(target.home, target.client.server());
    Failure::new(
        Exit::Failed,
        what,
        format!("Resume it: {soong} run --trace {}", target.run.session_id),
    )
}
