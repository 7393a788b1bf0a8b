//! Follows one run: its events, Ctrl-C, and its end.
//!
//! Invariant: every event that the run and its descendants record up to the end of the run is shown.
//!
//! Elsewhere: the report on the finished run (`report.rs`).

use std::{collections::HashSet, time::Duration};

use soong::protocol::api::Accepted;
use soong::{
    ErrorCode, StreamItem,
    protocol::{Event, EventRecord, PermissionEvent, RunId, SubAgentEvent, ToolEvent},
};

use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    client::{Client, EventStream},
    exit::{Exit, Failure},
    interrupt::Interrupt,
    progress::Progress,
    prompts::{self, PromptOutcome, UserRequest},
    report::{self, DeniedCall, FollowedRun},
};

/// Interval between checks whether a run with open requests waits only for user input.
const REQUEST_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of denied calls that are recorded.
const MAX_REFUSED: usize = 100;
/// Interval between redraws of the live display.
const FRAME_INTERVAL: Duration = Duration::from_millis(100);

/// Note that events are polled instead of streamed.
pub(crate) const POLLING_NOTE: &str = "note: the event stream of the server is silent, as with a proxy that buffers responses; \
                                 polling its events instead";

/// Maximum time for cancelling a run after following it has failed.
const CANCEL_LIMIT: Duration = Duration::from_secs(2);

/// Outcome of following a run.
enum FollowOutcome {
    /// The run has ended.
    Run { interrupted: bool, unread: bool },
    /// The run waits for user input, and no user can be prompted.
    AwaitsInput(Vec<UserRequest>),
    /// This process received a signal to end; the run continues at the server.
    Detached(Failure),
}

/// The followed run and all its descendants. Other runs of the session are ignored.
struct RunFamily {
    runs: HashSet<RunId>,
    refused: Vec<DeniedCall>,
}

impl RunFamily {
    fn observe(&mut self, item: &StreamItem) -> bool {
        let record = match item {
            StreamItem::Delta(delta) => return self.runs.contains(&delta.run_id),
            StreamItem::Lost(lost) => return self.runs.contains(&lost.run_id),
            StreamItem::Event(record) => record,
        };
        let is_ours = record.run_id.as_ref().is_some_and(|id| self.runs.contains(id));
        match &record.event {
            Event::SubAgent(SubAgentEvent::Started { run_id, .. }) if is_ours => {
                self.runs.insert(run_id.clone());
            }
            Event::Tool(ToolEvent::Denied { name, target, allow, .. }) if is_ours => {
                let refused = DeniedCall { tool: name.clone(), target: target.clone(), allow: allow.clone() };
                if self.refused.len() < MAX_REFUSED && !self.refused.contains(&refused) {
                    self.refused.push(refused);
                }
            }
            _ => {}
        }
        is_ours
    }
}

/// Follows the run until it has ended and its last event was shown. `events` must start before the run does.
/// `limit` is the maximum time for the run to end after it was cancelled here.
///
/// If following fails, the run is cancelled, since its result would not be seen.
pub(crate) async fn watch(
    client: &Client,
    run: &Accepted,
    events: EventStream,
    mut progress: Progress,
    interrupt: &Interrupt,
    end_timeout: Duration,
) -> Result<FollowedRun, Failure> {
    let mut family = RunFamily { runs: HashSet::from([run.run_id.clone()]), refused: Vec::new() };
    let followed = follow((client, run), events, &mut family, &mut progress, interrupt, end_timeout).await;
    let is_printed = progress.finish();
    let (interrupted, unread, asks) = match followed {
        Ok(FollowOutcome::Run { interrupted, unread }) => (interrupted, unread, Vec::new()),
        Ok(FollowOutcome::AwaitsInput(asks)) => (false, false, asks),
        Ok(FollowOutcome::Detached(failure)) => return Err(failure),
        Err(failure) => {
            let _ = tokio::time::timeout(CANCEL_LIMIT, client.cancel(&run.run_id)).await;
            return Err(failure);
        }
    };
    let run = client.run(&run.run_id).await?;
    Ok(FollowedRun {
        run,
        interrupted,
        output_closed: unread,
        answer_printed: is_printed,
        open_requests: asks,
        refused: family.refused,
    })
}

async fn follow(
    (client, run): (&Client, &Accepted),
    mut events: EventStream,
    family: &mut RunFamily,
    progress: &mut Progress,
    interrupt: &Interrupt,
    end_timeout: Duration,
) -> Result<FollowOutcome, Failure> {
    let mut frames = tokio::time::interval(FRAME_INTERVAL);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut interrupted, mut unread, mut exit_at) = (false, false, Instant::now());
    let mut requests = RequestPoll::new(progress);
    let mut is_polled = false;
    loop {
        tokio::select! {
            item = events.next() => {
                let item = match item {
                    Some(Err(error)) if error.code != ErrorCode::Closing => return Err(error.into()),
                    Some(Ok(item)) => item,
                    Some(Err(_)) | None => return Err(owner_lost()),
                };
                if let StreamItem::Event(record) = &item
                    && matches!(
                        record.event,
                        Event::SubAgent(SubAgentEvent::QuestionAsked { .. })
                            | Event::Permission(PermissionEvent::Requested { .. })
                    )
                {
                    requests.expect();
                }
                if !family.observe(&item) {
                    continue;
                }
                if let Err(failure) = progress.show(&item) {
                    if !failure.is_output_closed() {
                        return Err(failure);
                    }
                    // The reader of the output is gone, so the run is cancelled.
                    unread = true;
                    *progress = Progress::Closed;
                    cancel(client, run);
                }
                match &item {
                    StreamItem::Event(record) if ends(record, run) => return Ok(FollowOutcome::Run { interrupted, unread }),
                    StreamItem::Lost(lost) if lost.run_id == run.run_id => return Err(lost.error.clone().into()),
                    _ => {}
                }
            }
            () = interrupt.first(), if !interrupted => {
                if let Some(url) = client.server()
                    && interrupt.is_end_requested().await
                {
                    return Ok(FollowOutcome::Detached(detached(run, url)));
                }
                interrupted = true;
                progress.cancelling();
                cancel(client, run);
                exit_at = Instant::now() + end_timeout;
            }
            () = tokio::time::sleep_until(exit_at), if interrupted => return Err(cancel_timed_out(end_timeout)),
            _ = frames.tick() => {
                if events.is_polled() && !is_polled {
                    is_polled = true;
                    progress.note(POLLING_NOTE);
                }
                progress.draw(client);
                if interrupted {
                    continue;
                }
                match requests.poll(client, run, progress, interrupt).await? {
                    PollOutcome::Continue => {}
                    PollOutcome::AwaitsInput(requests) => return Ok(FollowOutcome::AwaitsInput(requests)),
                    PollOutcome::Cancel => {
                        interrupted = true;
                        progress.cancelling();
                        cancel(client, run);
                        exit_at = Instant::now() + end_timeout;
                    }
                }
            }
        }
    }
}

/// Looks for requests that wait for the user.
struct RequestPoll {
    /// Whether requests may be open.
    expected: bool,
    next_at: Instant,
    can_ask: bool,
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
        Self { expected: true, next_at: Instant::now(), can_ask: progress.can_ask() }
    }

    /// Polls at the next opportunity, because a run has made a request.
    fn expect(&mut self) {
        (self.expected, self.next_at) = (true, Instant::now());
    }

    async fn poll(
        &mut self,
        client: &Client,
        run: &Accepted,
        progress: &mut Progress,
        interrupt: &Interrupt,
    ) -> Result<PollOutcome, Failure> {
        if !self.expected || Instant::now() < self.next_at {
            return Ok(PollOutcome::Continue);
        }
        self.next_at = Instant::now() + REQUEST_POLL_INTERVAL;
        let open = prompts::fetch_open_requests(client, Some(&run.session_id)).await?;
        self.expected = !open.requests.is_empty();
        if self.expected && self.can_ask {
            progress.pause();
            let asked = prompt_all(client, &open.requests, progress, interrupt).await?;
            progress.resume();
            match asked {
                PromptOutcome::Answered => {}
                // Other runs continue as far as they can without the answer.
                PromptOutcome::Dismissed => (self.can_ask, self.next_at) = (false, Instant::now()),
                PromptOutcome::Cancel => return Ok(PollOutcome::Cancel),
            }
        } else if self.expected && open.awaits_input {
            return Ok(PollOutcome::AwaitsInput(open.requests));
        }
        Ok(PollOutcome::Continue)
    }
}

/// Prompts the user for one request after the other.
async fn prompt_all(
    client: &Client,
    asks: &[UserRequest],
    progress: &Progress,
    interrupt: &Interrupt,
) -> Result<PromptOutcome, Failure> {
    for ask in asks {
        let asker = progress.child_label(ask.run_id());
        let asked = prompts::prompt_user(client, ask, asker.as_deref(), interrupt, progress.paint()).await?;
        if asked != PromptOutcome::Answered {
            return Ok(asked);
        }
    }
    Ok(PromptOutcome::Answered)
}

/// Requests the cancellation in the background, since its answer waits for the disk. The end of the run arrives as an
/// event.
fn cancel(client: &Client, run: &Accepted) {
    let (client, run) = (client.clone(), run.run_id.clone());
    tokio::spawn(async move {
        if let Err(error) = client.cancel(&run).await {
            tracing::debug!(%run, %error, "failed to cancel the run");
        }
    });
}

fn ends(record: &EventRecord, run: &Accepted) -> bool {
    record.event.is_terminal() && record.run_id.as_ref() == Some(&run.run_id)
}

/// Returns the failure for a client that is ended by a signal: the run at the server is not cancelled.
fn detached(run: &Accepted, url: &str) -> Failure {
    let what = format!("stopped by a signal; run {} continues on the server", run.run_id);
    let soong = report::command(None, Some(url));
    Failure::new(Exit::Interrupted, what, format!("Follow it: {soong} traces events {} --follow", run.session_id))
}

fn cancel_timed_out(limit: Duration) -> Failure {
    let what = format!("the run has not ended {} s after it was cancelled; no longer waiting for it", limit.as_secs());
    let advice = "Recorded data is safe. Check the disk with `soong doctor`, and see the logs.";
    Failure::new(Exit::Interrupted, what, advice)
}

fn owner_lost() -> Failure {
    let what = "the process that executed the run has exited; the run is recorded up to that point";
    Failure::new(Exit::Failed, what, "Resume it: soong run --continue \"…\"")
}
