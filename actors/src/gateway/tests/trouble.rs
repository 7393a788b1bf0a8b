//! Tests with services that always rate limit, that ask for a day, or that are down.

use futures::future::join_all;
use soong_model::Failure;

use super::{service::text_completion, *};
use crate::testing::{ScriptedModel, Step, fail, respond_async};

/// Creates a model whose outcome is given by the number of the call and the time since the model
/// was created.
fn model_with(
    outcome: impl Fn(u64, Duration) -> Option<Failure> + Send + Sync + 'static,
) -> Arc<ScriptedModel> {
    streaming_model(Duration::ZERO, outcome)
}

/// Creates such a model whose answers continue for this time after their first word.
fn streaming_model(
    streams: Duration,
    outcome: impl Fn(u64, Duration) -> Option<Failure> + Send + Sync + 'static,
) -> Arc<ScriptedModel> {
    let origin = Instant::now();
    let shared = Arc::new((AtomicU64::new(0), outcome));
    Arc::new(respond_async(move |_| {
        let shared = Arc::clone(&shared);
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let (calls, outcome) = &*shared;
            match outcome(calls.fetch_add(1, SeqCst), origin.elapsed()) {
                Some(failure) => fail(failure, "in a bad mood"),
                None => Step::from(text_completion("fine"))
                    .streaming([Delta::Text {
                        text: "fi".to_owned(),
                    }])
                    .pause(streams),
            }
        }
    }))
}

fn limited(retry_after_ms: Option<u64>) -> Option<Failure> {
    Some(Failure::RateLimited { retry_after_ms })
}

#[tokio::test(start_paused = true)]
async fn all_calls_fail_after_one_calls_attempts_if_all_are_limited() {
    for (retry_after_ms, at_most_s) in [(None, 60), (Some(10_000), 60), (Some(29_000), 150)] {
        let model = model_with(move |_, _| limited(retry_after_ms));
        let house = TestGateway::open(model.clone(), &limits(3, 0, 0)).await;
        let begin = Instant::now();
        for (called, _) in join_all((0..500).map(|_| house.call("a", 1))).await {
            assert_eq!(
                called.outcome.unwrap_err().code,
                ErrorCode::ProviderRateLimited
            );
            assert!(called.waited_ms <= begin.elapsed().as_millis() as u64);
        }
        assert!(
            begin.elapsed().as_secs() <= at_most_s,
            "{retry_after_ms:?}: {:?}",
            begin.elapsed()
        );
        assert!(model.calls() <= 5 * 3, "not each call tried");
    }
}

#[tokio::test(start_paused = true)]
async fn rate_limit_without_retry_after_is_waited_out() {
    // 100 calls per clock minute; `Retry-After` is missing or far too short.
    for retry_after_ms in [None, Some(100)] {
        let minute = Mutex::new((0, 0));
        let model = model_with(move |_, since| {
            let mut minute = minute.lock().unwrap();
            let now = since.as_secs() / 60;
            *minute = if minute.0 == now {
                (now, minute.1 + 1)
            } else {
                (now, 1)
            };
            (minute.1 > 100).then_some(()).and(limited(retry_after_ms))
        });
        let house = TestGateway::open(model.clone(), &limits(5, 0, 0)).await;
        let called = join_all((0..400).map(|_| house.call("a", 1))).await;
        let failed = called
            .iter()
            .filter(|(called, _)| called.outcome.is_err())
            .count();
        assert_eq!(failed, 0, "{retry_after_ms:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn call_with_too_long_retry_after_fails_and_others_wait() {
    let model = model_with(|call, _| (call == 0).then_some(()).and(limited(Some(121_000))));
    let house = TestGateway::open(model, &limits(1, 0, 0)).await;
    let begin = Instant::now();
    let calls = (0..3).map(|_| async {
        let (called, recorder) = house.call("a", 1).await;
        (called, recorder, begin.elapsed().as_secs())
    });
    let ended = join_all(calls).await;
    let first = ended
        .iter()
        .find(|(called, _, _)| called.outcome.is_err())
        .unwrap();
    assert_eq!(
        (first.0.outcome.as_ref().unwrap_err().code, first.2),
        (ErrorCode::ProviderRateLimited, 0)
    );
    for (called, recorder, after) in ended.iter().filter(|(called, _, _)| called.outcome.is_ok()) {
        assert_eq!(*after, 121);
        assert!(called.waited_ms > 120_000);
        assert!(
            recorder.reasons().contains(&"retry_after"),
            "{:?}",
            recorder.notes
        );
    }
    assert_eq!(
        ended
            .iter()
            .filter(|(called, _, _)| called.outcome.is_ok())
            .count(),
        2
    );
}

#[tokio::test(start_paused = true)]
async fn long_retry_after_is_waited_for_and_reported() {
    let model = model_with(|call, _| (call == 0).then_some(()).and(limited(Some(1_000))));
    let mut config = limits(1, 0, 0);
    config.retry.max_backoff_ms = 400;
    let house = TestGateway::open(model, &config).await;
    let (called, recorder) = house.call("a", 1).await;
    assert!(
        called.outcome.is_ok() && called.waited_ms >= 1_000,
        "{:?}",
        called.outcome
    );
    assert!(
        recorder.reasons().contains(&"retry_after"),
        "{:?}",
        recorder.notes
    );
}

#[tokio::test(start_paused = true)]
async fn down_provider_is_probed_and_used_again_after_recovery() {
    let call_times = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&call_times);
    let model = model_with(move |_, since: Duration| {
        seen.lock().unwrap().push(since.as_secs());
        (since.as_secs() < 20).then_some(Failure::Unavailable)
    });
    let mut config = limits(8, 0, 0);
    config.retry.max_attempts = 6;
    let house = TestGateway::open(model, &config).await;
    let called = join_all((0..50).map(|_| house.call("a", 1))).await;
    let failed: Vec<&ErrorInfo> = called
        .iter()
        .filter_map(|(called, _)| called.outcome.as_ref().err())
        .collect();
    assert!(
        failed
            .iter()
            .all(|error| error.code == ErrorCode::ProviderError && error.retryable),
        "{failed:?}"
    );
    let named = failed
        .iter()
        .filter(|error| error.message.contains("has been failing for"))
        .count();
    assert!(
        named >= 40,
        "{named} of {} say since when: {:?}",
        failed.len(),
        failed.first()
    );
    let before = call_times
        .lock()
        .unwrap()
        .iter()
        .filter(|second| **second < 20)
        .count();
    assert!(
        before <= 8 + 4,
        "{before} calls for a provider that is down"
    );
    let reporting = called
        .iter()
        .filter(|(_, recorder)| recorder.reasons().contains(&"provider_down"))
        .count();
    assert!(
        reporting >= 40,
        "{reporting} reported that the provider is down"
    );
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(house.call("a", 1).await.0.outcome.is_ok(), "it is back");
}

#[tokio::test(start_paused = true)]
async fn short_outage_fails_no_call() {
    let model = model_with(|_, since| (since.as_secs() < 5).then_some(Failure::Timeout));
    let house = TestGateway::open(model.clone(), &limits(20, 0, 0)).await;
    let called = join_all((0..100).map(|_| house.call("a", 1))).await;
    assert!(called.iter().all(|(called, _)| called.outcome.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn first_streamed_token_of_probe_admits_other_calls() {
    let start_times = Arc::new(Mutex::new(Vec::new()));
    let saw = Arc::clone(&start_times);
    let model = streaming_model(Duration::from_secs(60), move |_, since| {
        let is_down = since.as_secs() < 5;
        (!is_down).then(|| saw.lock().unwrap().push(since));
        is_down.then_some(Failure::Unavailable)
    });
    let house = TestGateway::open(model, &limits(20, 0, 0)).await;
    let called = join_all((0..20).map(|_| house.call("a", 1))).await;
    assert!(called.iter().all(|(called, _)| called.outcome.is_ok()));
    let start_times = start_times.lock().unwrap().clone();
    let first = start_times[0];
    let last = start_times[19];
    assert!(
        last - first < Duration::from_secs(10),
        "{first:?} to {last:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn rejected_api_key_is_not_retried() {
    let model = model_with(|_, _| Some(Failure::Unauthorized));
    let house = TestGateway::open(model.clone(), &limits(2, 0, 0)).await;
    let (called, _) = house.call("a", 1).await;
    assert_eq!(
        called.outcome.unwrap_err().code,
        ErrorCode::ProviderAuthFailed
    );
    assert_eq!(model.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn call_with_a_fallback_waits_for_a_limited_time() {
    // It asks for less than the limit, for more, does not say, or fails.
    let down = Some(Failure::Unavailable);
    for (failure, min_s, max_s) in [
        (limited(Some(30_000)), 0, 1),
        (limited(Some(4_000)), 8, 13),
        (limited(None), 5, 15),
        (down, 5, 15),
    ] {
        let model = model_with(move |_, _| failure);
        let gateway = TestGateway::open(model.clone(), &limits(3, 0, 0)).await;
        let begin = Instant::now();
        let max_service_wait = Duration::from_secs(15);
        let calls =
            join_all((0..10).map(|_| gateway.call_with_max_wait("a", 1, max_service_wait))).await;
        let seconds = begin.elapsed().as_secs();
        assert!(
            (min_s..=max_s).contains(&seconds),
            "{failure:?}: {seconds} s"
        );
        for (result, _) in calls {
            let error = result.outcome.unwrap_err();
            let codes = [ErrorCode::ProviderRateLimited, ErrorCode::ProviderError];
            assert!(codes.contains(&error.code) && error.retryable, "{error:?}");
        }
        assert_eq!(gateway.gateway.metrics().in_flight, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_free_slot_does_not_count_as_trouble() {
    let model = streaming_model(Duration::from_secs(60), |_, _| None);
    let gateway = TestGateway::open(model, &limits(1, 0, 0)).await;
    let max_service_wait = Duration::from_secs(5);
    for (result, _) in
        join_all((0..3).map(|_| gateway.call_with_max_wait("a", 1, max_service_wait))).await
    {
        result.outcome.unwrap();
    }
}
