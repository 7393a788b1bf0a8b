//! A service that enforces limits on concurrent calls and calls per minute, and otherwise answers
//! 429 with `Retry-After`.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use soong_model::{Completion, Failure, Model, ModelError, ModelRequest};
use soong_protocol::Usage;
use tokio::time::Instant;

use crate::testing::respond_async;

const MINUTE: Duration = Duration::from_secs(60);
/// `Retry-After` if too many calls are in flight.
const CONCURRENCY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Record of the calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    /// Accepted calls: the caller and the time.
    pub(super) accepted: Vec<(String, Instant)>,
    pub(super) refused: usize,
    /// Number of calls that arrived before a `Retry-After` had ended.
    pub(super) too_early: usize,
    pub(super) in_flight: usize,
    pub(super) most_in_flight: usize,
    window: VecDeque<Instant>,
    not_before: Option<Instant>,
}

pub(super) struct LimitedService {
    at_once: usize,
    per_minute: usize,
    answer: Duration,
    pub(super) origin: Instant,
    log: Mutex<Log>,
}

impl LimitedService {
    pub(super) fn new(at_once: usize, per_minute: usize, answer: Duration) -> Arc<Self> {
        Arc::new(Self {
            at_once,
            per_minute,
            answer,
            origin: Instant::now(),
            log: Mutex::default(),
        })
    }

    /// Returns a model that calls this service.
    pub(super) fn model(self: &Arc<Self>) -> Arc<dyn Model> {
        let service = Arc::clone(self);
        Arc::new(respond_async(move |request| {
            let service = Arc::clone(&service);
            let caller = request.model.clone().unwrap_or_default();
            async move {
                match service.take(&caller) {
                    Ok(_in_flight) => {
                        tokio::time::sleep(service.answer).await;
                        text_completion("fine").into()
                    }
                    Err(error) => error.into(),
                }
            }
        }))
    }

    pub(super) fn log(&self) -> Log {
        self.log.lock().unwrap().clone()
    }

    fn take(&self, caller: &str) -> Result<InFlight<'_>, ModelError> {
        let mut log = self.log.lock().unwrap();
        let now = Instant::now();
        log.too_early += usize::from(log.not_before.is_some_and(|at| now < at));
        while log.window.front().is_some_and(|at| *at + MINUTE <= now) {
            log.window.pop_front();
        }
        let wait = match log.window.front() {
            Some(oldest) if log.window.len() >= self.per_minute => Some(*oldest + MINUTE - now),
            _ if log.in_flight >= self.at_once => Some(CONCURRENCY_RETRY_AFTER),
            _ => None,
        };
        if let Some(wait) = wait {
            log.refused += 1;
            log.not_before = log.not_before.max(Some(now + wait));
            let retry_after_ms = Some(wait.as_millis() as u64);
            return Err(ModelError::new(
                Failure::RateLimited { retry_after_ms },
                "too many",
            ));
        }
        log.window.push_back(now);
        log.accepted.push((caller.to_owned(), now));
        log.in_flight += 1;
        log.most_in_flight = log.most_in_flight.max(log.in_flight);
        Ok(InFlight(self))
    }
}

struct InFlight<'a>(&'a LimitedService);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.log.lock().unwrap().in_flight -= 1;
    }
}

/// Returns a request that carries the name of its caller.
pub(super) fn request(whose: &str) -> ModelRequest {
    let system = Vec::new();
    let messages = Vec::new();
    let tools = Arc::from([]);
    ModelRequest {
        system,
        messages,
        tools,
        model: Some(whose.to_owned()),
        ..ModelRequest::default()
    }
}

pub(super) fn text_completion(text: &str) -> Completion {
    let usage = Some(Usage {
        prompt_tokens: 10,
        completion_tokens: 5,
        ..Usage::default()
    });
    Completion {
        text: text.to_owned(),
        usage,
        finish_reason: "stop".to_owned(),
        ..Completion::default()
    }
}
