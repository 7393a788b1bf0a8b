//! One model call: waits in the queue, calls the provider, and repeats this until it ends.
//!
//! A call runs in its caller's task and is cancelled by dropping it; guards release its permit, its
//! place in the queue and its reserved rate. It keeps its ticket, so it never loses its place.
//! While it waits, it holds no permit and reports the reason; that time is not counted as run time.
//!
//! Elsewhere: whether a call may begin, and whether it is retried (`ledger.rs`).

use std::{
    collections::HashSet,
    sync::{Arc, OnceLock},
    task::Poll,
    time::Duration,
};

use soong_model::{
    AnswerProgress, Completion, DeltaSink, Failure, Model, ModelError, ModelRequest,
    endless_text::EndlessText,
};
use soong_protocol::{Delta, ErrorCode, ErrorInfo, FallbackReason, ModelEvent, SessionId};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until},
};

use super::{
    CallLimits, CallResult, CallSink,
    actor::format_reason,
    fallback_reason,
    ledger::{Attempts, Blocked, RetryDecision, WaitReason},
    shared::{AcquireRequest, GatewayMsg, GatewayShared, Permit},
};

/// Time after which a call is shown as waiting; an unblocked call gets its permit sooner.
const SHOW_WAIT_AFTER: Duration = Duration::from_millis(5);
/// Waiting time after which a call records the wait in its trace.
const LOG_WAIT_AFTER: Duration = Duration::from_millis(200);
/// Interval at which a waiting call checks whether it should keep waiting, and shows the reason.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time before a waiting call records a different reason in its trace.
const LOG_WAIT_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum time that a gateway may be without an actor. Longer than all of its allowed restarts
/// take.
const ACTOR_DOWN_LIMIT: Duration = Duration::from_secs(30);
/// Interval at which a gateway without an actor is asked again.
const ACQUIRE_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// A model call in progress.
pub(super) struct Call<'a> {
    shared: &'a Arc<GatewayShared>,
    limits: CallLimits<'a>,
    sink: &'a mut dyn CallSink,
    /// When the call first noticed that the service is overloaded, limits the rate or is down.
    service_failing_since: Option<Instant>,
    ticket: u64,
    tries: Attempts,
    waited: Duration,
    /// Whether the call was admitted before without success: it was rate limited, or could not use
    /// its permit.
    is_requeued: bool,
}

/// A place in the queue, given up when dropped.
struct QueuePlace<'a> {
    shared: &'a GatewayShared,
    session: &'a SessionId,
    ticket: u64,
    was_served: bool,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        if !self.was_served {
            self.shared.cast(GatewayMsg::Cancel {
                session: self.session.clone(),
                ticket: self.ticket,
            });
        }
    }
}

/// One wait for a permit.
struct Wait {
    start: Instant,
    /// Since when the call has waited for a provider that is down.
    down_since: Option<Instant>,
    last_logged: Option<(WaitReason, Instant)>,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        shared: &'a Arc<GatewayShared>,
        limits: CallLimits<'a>,
        sink: &'a mut dyn CallSink,
    ) -> Self {
        let ticket = shared.ticket();
        let tries = shared.ledger().register();
        Self {
            shared,
            limits,
            sink,
            service_failing_since: None,
            ticket,
            tries,
            waited: Duration::ZERO,
            is_requeued: false,
        }
    }

    pub(super) async fn complete(
        mut self,
        model: &dyn Model,
        request: &ModelRequest,
    ) -> CallResult {
        let outcome = self.run_to_end(model, request).await;
        CallResult {
            outcome,
            waited_ms: ms(self.waited),
        }
    }

    async fn run_to_end(
        &mut self,
        model: &dyn Model,
        request: &ModelRequest,
    ) -> Result<Completion, ErrorInfo> {
        loop {
            let permit = self.acquire_permit().await?;
            self.sink.request_sent();
            let start = Instant::now();
            let outcome = attempt(model, request, self.shared, self.sink).await;
            let next = permit.end(&mut self.tries, &outcome);
            let (error, reason) = match outcome {
                Ok(completion) => return Ok(completion),
                // The service answered, though not well.
                Err(error) if error.failure == Failure::InvalidResponse => {
                    (ErrorInfo::from(&error), None)
                }
                Err(error) => {
                    let error = ErrorInfo::from(&error);
                    let reason = fallback_reason(&error);
                    (error, reason)
                }
            };
            match next {
                RetryDecision::GiveUp => return Err(error),
                RetryDecision::Requeue(wait) | RetryDecision::Backoff(wait)
                    if self.exceeds_service_wait(reason, start, wait) =>
                {
                    return Err(error);
                }
                RetryDecision::Requeue(pause) => {
                    self.is_requeued = true;
                    self.report_retry(error, pause);
                }
                RetryDecision::Backoff(wait) => {
                    self.is_requeued = false;
                    self.report_retry(error, wait);
                    let then = self.tries.made + 1;
                    self.sink.set_wait_reason(Some(format!(
                        "waiting {:.1} s before attempt {then}",
                        wait.as_secs_f64()
                    )));
                    let start = Instant::now();
                    sleep(wait).await;
                    self.waited += start.elapsed();
                    self.sink.set_wait_reason(None);
                }
            }
        }
    }

    /// Returns whether the call would wait for the service for longer than its limit. `start`: when
    /// the failure began, if it is the first one; `wait`: the minimum further wait.
    fn exceeds_service_wait(
        &mut self,
        reason: Option<FallbackReason>,
        start: Instant,
        wait: Duration,
    ) -> bool {
        let Some(reason) = reason else { return false };
        let since = *self.service_failing_since.get_or_insert(start);
        self.limits.fallback_reasons.contains(&reason)
            && since.elapsed() + wait > self.limits.max_service_wait
    }

    fn report_retry(&mut self, error: ErrorInfo, wait: Duration) {
        let attempt = self.tries.made;
        let wait_ms = ms(wait);
        self.sink.record(ModelEvent::Retrying {
            attempt,
            error,
            wait_ms,
            usage: None,
            cost: None,
        });
        self.sink.start_over();
    }

    /// Waits for a permit and begins the call with it.
    async fn acquire_permit(&mut self) -> Result<Permit, ErrorInfo> {
        let mut wait = Wait {
            start: Instant::now(),
            down_since: None,
            last_logged: None,
        };
        if self.is_requeued || self.shared.ledger().is_blocked() {
            self.check_wait(&mut wait)?;
        }
        let permit = self.wait_in_queue(&mut wait).await;
        self.waited += wait.start.elapsed();
        self.sink.set_wait_reason(None);
        permit
    }

    /// Waits in the queue. If the gateway's actor crashes, queues the call again with the next one.
    async fn wait_in_queue(&mut self, wait: &mut Wait) -> Result<Permit, ErrorInfo> {
        let mut gone_since: Option<Instant> = None;
        loop {
            let (reply, mut answer) = oneshot::channel();
            let session = self.limits.session.clone();
            let ticket = self.ticket;
            let acquire = AcquireRequest {
                session,
                ticket,
                tokens: self.limits.estimated_tokens,
                is_requeued: self.is_requeued,
                reply,
            };
            if !self.shared.cast(GatewayMsg::Acquire(acquire)) {
                if let Some(failure) = self.shared.failure() {
                    return Err(failure);
                }
                if gone_since.get_or_insert_with(Instant::now).elapsed() > ACTOR_DOWN_LIMIT {
                    return Err(ErrorInfo::retryable(
                        ErrorCode::Overloaded,
                        "the model gateway is unavailable",
                    ));
                }
                sleep(ACQUIRE_RETRY_INTERVAL).await;
                continue;
            }
            gone_since = None;
            let mut queue_place = QueuePlace {
                shared: self.shared,
                session: self.limits.session,
                ticket,
                was_served: false,
            };
            let permit = loop {
                tokio::select! {
                    biased;
                    permit = &mut answer => break permit,
                    failure = self.shared.given_up() => return Err(failure),
                    () = sleep_until(self.next_check(wait)) => self.check_wait(wait)?,
                }
            };
            queue_place.was_served = true;
            // If the service rate limited a call or the provider failed after the permit was
            // granted, the permit is returned and the call takes its place in the queue again.
            self.is_requeued = match permit {
                Ok(permit) if permit.begin() => return Ok(permit),
                Ok(_) => true,
                Err(_) => false,
            };
        }
    }

    fn next_check(&mut self, wait: &mut Wait) -> Instant {
        let waited = wait.start.elapsed();
        let regular = match waited {
            _ if waited < SHOW_WAIT_AFTER => wait.start + SHOW_WAIT_AFTER,
            _ if waited < LOG_WAIT_AFTER => wait.start + LOG_WAIT_AFTER,
            _ => Instant::now() + CHECK_INTERVAL,
        };
        let now = self.shared.now();
        let ledger = self.shared.ledger();
        if !ledger.is_down(now) {
            return regular;
        }
        let since = *wait.down_since.get_or_insert_with(Instant::now);
        // Wait at least `SHOW_WAIT_AFTER`: the gateway may admit this call as the next probe.
        regular.min(
            (since + ledger.max_outage_wait(&self.tries, now))
                .max(Instant::now() + SHOW_WAIT_AFTER),
        )
    }

    /// Shows what the call waits for, or fails if it must stop waiting.
    fn check_wait(&mut self, wait: &mut Wait) -> Result<(), ErrorInfo> {
        let now = self.shared.now();
        let down_for = wait
            .down_since
            .map_or(Duration::ZERO, |since| since.elapsed());
        let blocked = self
            .shared
            .ledger()
            .check_wait(&self.tries, down_for, now)
            .map_err(|error| *error)?;
        // The reason is unknown if the call has only just become the first one.
        let blocked = blocked.unwrap_or(Blocked {
            reason: WaitReason::Concurrency,
            until: None,
        });
        if let WaitReason::RetryAfter | WaitReason::ProviderDown = blocked.reason
            && !self.limits.fallback_reasons.is_empty()
        {
            let error = self.shared.ledger().blocked_error(blocked.reason, now);
            let rest = blocked
                .until
                .map_or(Duration::ZERO, |until| until.saturating_sub(now));
            if self.exceeds_service_wait(fallback_reason(&error), Instant::now(), rest) {
                return Err(error);
            }
        }
        self.sink.set_wait_reason(Some(match blocked.reason {
            WaitReason::Concurrency => "waiting for a free model call slot".to_owned(),
            _ => format!("waiting for the model ({})", format_reason(blocked, now)),
        }));
        let waited = wait.start.elapsed();
        let is_news = match wait.last_logged {
            None => waited >= LOG_WAIT_AFTER,
            Some((logged_reason, at)) => {
                logged_reason != blocked.reason && at.elapsed() >= LOG_WAIT_INTERVAL
            }
        };
        if is_news {
            wait.last_logged = Some((blocked.reason, Instant::now()));
            self.sink.record(ModelEvent::Waiting {
                reason: blocked.reason.as_str().to_owned(),
                for_ms: ms(waited),
            });
        }
        Ok(())
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

async fn attempt(
    model: &dyn Model,
    request: &ModelRequest,
    shared: &GatewayShared,
    sink: &mut dyn CallSink,
) -> Result<Completion, ModelError> {
    struct Deltas<'a> {
        sink: &'a mut dyn CallSink,
        /// Gateway state to notify of the first delta.
        notify: Option<&'a GatewayShared>,
        /// Watches the text, if an endless one is stopped.
        watched: Option<EndlessText>,
        /// Receives the passage that repeats without an end.
        endless: &'a OnceLock<String>,
    }
    impl DeltaSink for Deltas<'_> {
        fn push(&mut self, delta: Delta) {
            if let Some(shared) = self.notify.take() {
                shared.answer_started();
            }
            if let Some(watched) = &mut self.watched
                && let Some(passage) = watched.push(delta.text())
            {
                let _ = self.endless.set(passage);
            }
            self.sink.push(delta);
        }

        fn progress(&mut self, progress: AnswerProgress) {
            self.sink.progress(progress);
        }
    }
    let endless = OnceLock::new();
    let watched = shared.stops_endless_text().then(EndlessText::default);
    let mut deltas = Deltas {
        sink,
        notify: Some(shared),
        watched,
        endless: &endless,
    };
    let mut completion = {
        let mut answer = model.complete(request, &mut deltas);
        let stoppable = std::future::poll_fn(|context| {
            let polled = answer.as_mut().poll(context);
            if polled.is_pending()
                && let Some(passage) = endless.get()
            {
                return Poll::Ready(Err(endless_text_error(passage)));
            }
            polled
        });
        stoppable.await?
    };
    // The answer may be rejected below, and costs the same.
    deltas.progress(AnswerProgress {
        argument_bytes: completion.argument_bytes(),
        usage: completion.usage,
        is_complete: true,
    });
    let is_cut = completion.finish_reason == "length" || completion.is_refused();
    if completion.text.trim().is_empty() && completion.tool_calls.is_empty() && !is_cut {
        return Err(ModelError::new(
            Failure::InvalidResponse,
            "the model answered with neither text nor tool calls",
        ));
    }
    shared.limits.check_completion(&completion)?;
    make_ids_unique(&mut completion);
    Ok(completion)
}

fn endless_text_error(passage: &str) -> ModelError {
    let excerpt: String = passage.chars().take(60).collect();
    let message = format!(
        "the model repeats a passage without an end, and was stopped: {excerpt:?}. Try a larger model, or other sampling \
         parameters (model.params, such as a repeat penalty)"
    );
    ModelError::new(Failure::EndlessAnswer, message)
}

/// Assigns a new id to each call whose id is empty or used by an earlier call of the answer,
/// because results refer to calls by id.
pub(crate) fn make_ids_unique(completion: &mut Completion) {
    let mut seen = HashSet::new();
    for index in 0..completion.tool_calls.len() {
        let mut id = completion.tool_calls[index].id.clone();
        let mut suffix = index;
        while id.is_empty() || !seen.insert(id.clone()) {
            suffix += 1;
            id = format!("call_{suffix}");
        }
        completion.tool_calls[index].id = id;
    }
}

#[cfg(test)]
mod tests {
    use soong_protocol::ToolCall;

    use super::*;

    #[test]
    fn tool_call_ids_are_made_unique() {
        for (ids, want) in [
            (vec!["a", "b"], vec!["a", "b"]),
            (vec!["a", "a", "a"], vec!["a", "call_2", "call_3"]),
            (vec!["", "call_1", ""], vec!["call_1", "call_2", "call_3"]),
        ] {
            let call = |id: &&str| ToolCall {
                id: (*id).to_owned(),
                name: "x".into(),
                arguments: "{}".into(),
            };
            let mut completion = Completion {
                tool_calls: ids.iter().map(call).collect(),
                ..Completion::default()
            };
            make_ids_unique(&mut completion);
            let got: Vec<&str> = completion
                .tool_calls
                .iter()
                .map(|call| call.id.as_str())
                .collect();
            assert_eq!(got, want, "{ids:?}");
        }
    }
}
