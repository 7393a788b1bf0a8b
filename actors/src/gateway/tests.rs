//! Tests of the gateway with its actor, against a service that enforces limits, with paused time.

mod cut_off;
mod service;
mod trouble;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use ractor::{Actor, ActorRef};
use soong_protocol::{Delta, ErrorCode, ModelConfig};
use tokio::time::Instant;

use self::service::LimitedService;
use super::*;
use crate::actor_tree::{ActorKind, ActorTree};

/// A gateway with its actor.
struct TestGateway {
    gateway: Gateway,
    actor_tree: ActorTree,
    actor: Mutex<ActorRef<GatewayMsg>>,
}

impl TestGateway {
    async fn open(model: Arc<dyn Model>, config: &ModelConfig) -> Arc<Self> {
        let gateway = Gateway::new("default", model, config);
        let actor_tree = ActorTree::default();
        let actor = Mutex::new(start_actor(&gateway, &actor_tree).await);
        Arc::new(Self {
            gateway,
            actor_tree,
            actor,
        })
    }

    /// Crashes the actor, and starts the next one when it is gone.
    async fn crash(&self) {
        assert!(self.gateway.crash());
        let gone = self.actor.lock().unwrap().clone();
        gone.get_cell().wait(None).await.unwrap();
        *self.actor.lock().unwrap() = start_actor(&self.gateway, &self.actor_tree).await;
    }

    /// Returns the activity that the tree shows.
    fn activity(&self) -> String {
        self.actor_tree.tree().unwrap().activity
    }

    /// Makes a call for a session. Returns what the call reported, too.
    async fn call(&self, session: &str, tokens: u64) -> (CallResult, RecordingSink) {
        self.call_with_max_wait(session, tokens, Duration::MAX)
            .await
    }

    /// Makes a call that waits only so long for a service that is overloaded, limits the rate or is
    /// down.
    async fn call_with_max_wait(
        &self,
        session: &str,
        tokens: u64,
        max_service_wait: Duration,
    ) -> (CallResult, RecordingSink) {
        let mut sink = RecordingSink::default();
        let session_id = SessionId::new(session);
        let fallback_reasons: &[FallbackReason] = match max_service_wait {
            Duration::MAX => &[],
            _ => &FallbackReason::DEFAULT,
        };
        let limits = CallLimits {
            session: &session_id,
            estimated_tokens: tokens,
            max_service_wait,
            fallback_reasons,
        };
        let result = self
            .gateway
            .complete(limits, &service::request(session), &mut sink)
            .await;
        (result, sink)
    }
}

async fn start_actor(gateway: &Gateway, actor_tree: &ActorTree) -> ActorRef<GatewayMsg> {
    let status = actor_tree.register(ActorKind::ModelGateway, "default", None, "", None);
    let (actor, _) = Actor::spawn(None, gateway.actor(Arc::clone(&status)), ())
        .await
        .unwrap();
    gateway.attach(Mailbox::new(actor.clone(), status));
    actor
}

/// Records what a call reports.
#[derive(Debug, Default)]
struct RecordingSink {
    notes: Vec<ModelEvent>,
    waiting_since: Option<Instant>,
    waited: Duration,
}

impl RecordingSink {
    /// Returns the reported reasons for waiting.
    fn reasons(&self) -> Vec<&str> {
        let mut reasons = Vec::new();
        for note in &self.notes {
            if let ModelEvent::Waiting { reason, .. } = note {
                reasons.push(reason.as_str());
            }
        }
        reasons
    }
}

impl DeltaSink for RecordingSink {
    fn push(&mut self, _: Delta) {}
}

impl CallSink for RecordingSink {
    fn record(&mut self, event: ModelEvent) {
        self.notes.push(event);
    }

    fn set_wait_reason(&mut self, reason: Option<String>) {
        match reason {
            Some(_) => drop(self.waiting_since.get_or_insert_with(Instant::now)),
            None => {
                self.waited += self
                    .waiting_since
                    .take()
                    .map_or(Duration::ZERO, |since| since.elapsed())
            }
        }
    }

    fn request_sent(&mut self) {}

    fn start_over(&mut self) {}
}

/// Returns the default settings with these limits.
fn limits(max_concurrency: usize, requests_per_minute: u64, tokens_per_minute: u64) -> ModelConfig {
    ModelConfig {
        max_concurrency: Some(max_concurrency),
        requests_per_minute,
        tokens_per_minute,
        ..ModelConfig::default()
    }
}

/// Makes many calls concurrently. Panics if one fails.
async fn all_complete(
    house: &Arc<TestGateway>,
    session: &'static str,
    calls: usize,
) -> Vec<RecordingSink> {
    let made = (0..calls).map(|_| {
        let house = Arc::clone(house);
        tokio::spawn(async move {
            let (called, recorder) = house.call(session, 10).await;
            called.outcome.unwrap();
            // A wait shorter than `SHOW_WAIT_AFTER` is not reported.
            let reported_ms = recorder.waited.as_millis() as u64;
            assert!(
                reported_ms <= called.waited_ms && called.waited_ms <= reported_ms + 30,
                "{reported_ms} of {} ms",
                called.waited_ms
            );
            recorder
        })
    });
    futures::future::try_join_all(made).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn limited_calls_complete_at_full_rate_shared_by_sessions() {
    for (config, refusals) in [(limits(5, 100, 0), 0..=0), (limits(16, 0, 0), 1..=400)] {
        for answer_ms in [100, 2_000, 2_900] {
            let service = LimitedService::new(5, 100, Duration::from_millis(answer_ms));
            let house = TestGateway::open(service.model(), &config).await;
            let begin = Instant::now();
            let second = async {
                tokio::time::sleep(Duration::from_secs(70)).await;
                all_complete(&house, "second", 100).await;
                begin.elapsed()
            };
            let (recorders, second_ended) =
                tokio::join!(all_complete(&house, "first", 400), second);
            let name = format!(
                "{} a minute configured, {answer_ms} ms an answer",
                config.requests_per_minute
            );
            let log = service.log();
            assert_eq!(log.accepted.len(), 500, "{name}");
            assert_eq!(log.too_early, 0, "{name}: Retry-After was broken");
            assert!(
                refusals.contains(&log.refused),
                "{name}: {} refused",
                log.refused
            );
            let minutes = 4;
            let used = log
                .accepted
                .iter()
                .filter(|(_, at)| *at < begin + Duration::from_secs(60 * minutes))
                .count();
            assert!(
                used as u64 * 100 >= 95 * 100 * minutes,
                "{name}: {used} of {} used",
                100 * minutes
            );
            // From the arrival of the second session until its last call begins.
            let came = begin + Duration::from_secs(70);
            let went = begin + second_ended - Duration::from_millis(answer_ms);
            let count = |session| {
                let is_its = |(whose, at): &&(String, Instant)| {
                    whose == session && *at >= came && *at <= went
                };
                log.accepted.iter().filter(is_its).count()
            };
            let first = count("first");
            let second = count("second");
            assert!(
                first.abs_diff(second) * 20 <= first + second,
                "{name}: {first} and {second}"
            );
            let reporting = recorders
                .iter()
                .filter(|recorder| !recorder.reasons().is_empty())
                .count();
            assert!(
                reporting >= 300,
                "{name}: {reporting} reported that they wait"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_reserved_by_estimate_and_corrected_by_usage() {
    // An answer uses 15 of the 40 tokens that are estimated.
    let service = LimitedService::new(100, 10_000, Duration::from_millis(500));
    let house = TestGateway::open(service.model(), &limits(100, 0, 120)).await;
    let begin = Instant::now();
    let calls = (0..8).map(|_| house.call("a", 40));
    let outcomes = futures::future::join_all(calls).await;
    assert!(outcomes.iter().all(|(called, _)| called.outcome.is_ok()));
    let log = service.log();
    let times: Vec<u64> = log
        .accepted
        .iter()
        .map(|(_, at)| (*at - begin).as_millis() as u64)
        .collect();
    assert_eq!(
        times,
        [0, 0, 0, 500, 1_000, 1_500, 61_000, 61_500],
        "45 used, then 60, then 75, then 90"
    );
    // Larger than the limit: runs alone instead of never.
    let (big, small) = tokio::join!(house.call("a", 5_000), house.call("a", 40));
    assert!(big.0.outcome.is_ok() && small.0.outcome.is_ok());
    assert_eq!(big.1.reasons(), ["tokens_per_minute"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_are_shown_in_actor_tree() {
    let service = LimitedService::new(100, 10_000, Duration::from_secs(30));
    let house = TestGateway::open(service.model(), &limits(2, 3, 0)).await;
    let calls: Vec<_> = (0..6)
        .map(|_| {
            let house = Arc::clone(&house);
            tokio::spawn(async move { house.call("a", 1).await.1 })
        })
        .collect();
    for (second, want) in [
        (10, "2 in flight, 4 waiting (concurrency)"),
        (40, "1 in flight, 3 waiting (requests_per_minute, 22 s)"),
        (70, "2 in flight, 1 waiting (concurrency)"),
    ] {
        tokio::time::sleep_until(service.origin + Duration::from_millis(second * 1_000 - 500))
            .await;
        assert_eq!(house.activity(), want, "after {second} s");
    }
    let recorders = futures::future::try_join_all(calls).await.unwrap();
    assert_eq!(house.activity(), "");
    assert_eq!(
        recorders[5].reasons()[..2],
        ["concurrency", "requests_per_minute"]
    );
}

#[test]
fn errors_of_the_request_have_no_fallback() {
    let error = |code, retryable: bool, status: Option<u16>| ErrorInfo {
        retryable,
        details: status.map_or(
            serde_json::Value::Null,
            |status| serde_json::json!({"status": status}),
        ),
        ..ErrorInfo::new(code, "x")
    };
    for (error, expected) in [
        (
            error(ErrorCode::ProviderRateLimited, true, Some(429)),
            Some(FallbackReason::RateLimited),
        ),
        (
            error(ErrorCode::ProviderError, true, Some(529)),
            Some(FallbackReason::Overloaded),
        ),
        (
            error(ErrorCode::ProviderError, true, Some(503)),
            Some(FallbackReason::Overloaded),
        ),
        (
            error(ErrorCode::ProviderError, true, Some(500)),
            Some(FallbackReason::Down),
        ),
        (
            error(ErrorCode::ProviderError, true, None),
            Some(FallbackReason::Down),
        ),
        (
            error(ErrorCode::ProviderTimeout, true, None),
            Some(FallbackReason::Down),
        ),
        (
            error(ErrorCode::PromptTooLong, false, Some(400)),
            Some(FallbackReason::ContextTooLong),
        ),
        (error(ErrorCode::ProviderError, false, Some(400)), None),
        (error(ErrorCode::ProviderAuthFailed, false, Some(401)), None),
        (error(ErrorCode::BudgetExceeded, false, None), None),
        (error(ErrorCode::Cancelled, false, None), None),
    ] {
        assert_eq!(fallback_reason(&error), expected, "{error:?}");
    }
}
