//! Tests of the ledger: its decisions by tables, its invariants by properties.

use proptest::{collection::vec, prelude::*};
use soong_model::limiter::WINDOW;
use soong_protocol::Usage;

use super::*;

/// Window in which services count.
const MINUTE: Duration = Duration::from_secs(60);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn config() -> ModelConfig {
    ModelConfig {
        max_concurrency: Some(4),
        ..ModelConfig::default()
    }
}

fn answer() -> Result<Completion, ModelError> {
    let usage = Some(Usage {
        prompt_tokens: 3,
        completion_tokens: 2,
        ..Usage::default()
    });
    Ok(Completion {
        text: "fine".into(),
        usage,
        ..Completion::default()
    })
}

fn failed(failure: Failure) -> Result<Completion, ModelError> {
    Err(ModelError::new(failure, "it failed"))
}

fn limited(seconds: Option<u64>) -> Result<Completion, ModelError> {
    failed(Failure::RateLimited {
        retry_after_ms: seconds.map(|seconds| seconds * 1_000),
    })
}

/// Admits a call and begins it.
fn admit_and_begin(ledger: &mut Ledger, now: Duration) -> u64 {
    let id = ledger.admit(10, now).unwrap();
    assert!(ledger.begin(id, now));
    id
}

/// Makes an attempt that takes no time.
fn attempt(
    ledger: &mut Ledger,
    tries: &mut Attempts,
    outcome: &Result<Completion, ModelError>,
    now: Duration,
) -> RetryDecision {
    let id = admit_and_begin(ledger, now);
    ledger.end(id, tries, outcome, 1.0, now)
}

#[test]
fn first_failure_maps_to_retry_decision() {
    let backs_off = |ms| RetryDecision::Backoff(Duration::from_millis(ms));
    for (outcome, moving, want) in [
        (answer(), false, RetryDecision::GiveUp),
        (failed(Failure::Unavailable), false, backs_off(500)),
        (failed(Failure::Timeout), false, backs_off(500)),
        (failed(Failure::InvalidResponse), false, backs_off(500)),
        (failed(Failure::Unauthorized), false, RetryDecision::GiveUp),
        (failed(Failure::Rejected), false, RetryDecision::GiveUp),
        (
            limited(None),
            false,
            RetryDecision::Requeue(Duration::from_millis(500)),
        ),
        (limited(Some(20)), false, RetryDecision::Requeue(at(20))),
        (limited(Some(40)), false, RetryDecision::Requeue(at(40))), // longer than `max_backoff_ms`
        (limited(Some(120)), false, RetryDecision::Requeue(at(120))),
        (limited(Some(121)), false, RetryDecision::GiveUp), // longer than `timeout_ms`
        (limited(Some(121)), true, RetryDecision::GiveUp),
    ] {
        let mut ledger = Ledger::new(&config());
        let mut tries = ledger.register();
        if moving {
            let mut other = ledger.register();
            attempt(&mut ledger, &mut other, &answer(), at(1));
        }
        assert_eq!(
            attempt(&mut ledger, &mut tries, &outcome, at(2)),
            want,
            "{outcome:?}, moving: {moving}"
        );
    }
}

#[test]
fn pause_blocks_all_calls_including_admitted_ones() {
    let mut ledger = Ledger::new(&config());
    let mut tries = ledger.register();
    let waiting = ledger.register();
    let ready = ledger.admit(10, at(0)).unwrap();
    assert_eq!(
        attempt(&mut ledger, &mut tries, &limited(Some(150)), at(0)),
        RetryDecision::GiveUp
    );
    assert!(
        !ledger.begin(ready, at(1)),
        "it was let in before, and begins within the pause"
    );
    ledger.give_back(ready, at(1));
    let blocked = Blocked {
        reason: WaitReason::RetryAfter,
        until: Some(at(150)),
    };
    assert_eq!(ledger.admit(10, at(149)), Err(blocked));
    assert!(
        ledger.check_wait(&waiting, at(0), at(149)).is_ok(),
        "the others wait for it"
    );
    admit_and_begin(&mut ledger, at(150));
}

#[test]
fn waiting_calls_fail_after_max_unsuccessful_rounds() {
    let mut ledger = Ledger::new(&config());
    let mut tries = ledger.register();
    let waiting = ledger.register();
    let mut now = at(0);
    for round in 1..=5 {
        let next = attempt(&mut ledger, &mut tries, &limited(Some(20)), now);
        assert_eq!(
            next,
            if round < 5 {
                RetryDecision::Requeue(at(20))
            } else {
                RetryDecision::GiveUp
            },
            "round {round}"
        );
        assert_eq!(
            ledger.check_wait(&waiting, at(0), now).is_err(),
            round == 5,
            "round {round}"
        );
        now += at(20);
    }
    assert_eq!(
        ledger.check_wait(&waiting, at(0), now).unwrap_err().code,
        ErrorCode::ProviderRateLimited
    );
    let late = ledger.register();
    assert!(
        ledger.check_wait(&late, at(0), now).is_ok(),
        "a call that arrives now has all its attempts"
    );
}

#[test]
fn rate_limit_is_no_attempt_while_other_calls_succeed() {
    let mut ledger = Ledger::new(&config());
    let mut tries = ledger.register();
    let mut other = ledger.register();
    let mut now = at(0);
    for _ in 0..100 {
        now += at(30);
        attempt(&mut ledger, &mut other, &answer(), now);
        for _ in 0..3 {
            assert!(matches!(
                attempt(&mut ledger, &mut tries, &limited(None), now),
                RetryDecision::Requeue(_)
            ));
            now += at(31);
        }
    }
    assert_eq!(tries.made, 300);
    // The call's own failures still count.
    for _ in 1..5 {
        assert!(matches!(
            attempt(
                &mut ledger,
                &mut tries,
                &failed(Failure::InvalidResponse),
                now
            ),
            RetryDecision::Backoff(_)
        ));
    }
    assert_eq!(
        attempt(
            &mut ledger,
            &mut tries,
            &failed(Failure::InvalidResponse),
            now
        ),
        RetryDecision::GiveUp
    );
}

#[test]
fn down_provider_error_reports_failure_count_and_duration() {
    let mut ledger = Ledger::new(&config());
    let mut others = [ledger.register(); 5];
    for (second, tries) in (10..).zip(&mut others) {
        attempt(&mut ledger, tries, &failed(Failure::Timeout), at(second));
    }
    let call = ledger.register();
    let max_wait = ledger.max_outage_wait(&call, at(14));
    assert_eq!(max_wait, Duration::from_millis(500 + 1_000 + 2_000 + 4_000));
    assert_eq!(
        ledger.admit(1, at(15)),
        Err(Blocked {
            reason: WaitReason::ProviderDown,
            until: Some(at(16))
        })
    );
    assert!(ledger.check_wait(&call, at(7), at(15)).is_ok());
    let error = ledger.check_wait(&call, at(8), at(15)).unwrap_err();
    assert_eq!(
        (error.code, error.retryable),
        (ErrorCode::ProviderTimeout, true)
    );
    assert!(
        error.message.contains("failing for 5 s, 5 calls in a row"),
        "{error:?}"
    );
    let probe = ledger.admit(1, at(16)).unwrap();
    assert!(ledger.admit(1, at(16)).is_err(), "one probe at a time");
    ledger.give_back(probe, at(17));
    assert!(
        ledger.check_wait(&call, at(99), at(17)).is_ok(),
        "it may be the next probe itself"
    );
    let probe = admit_and_begin(&mut ledger, at(17));
    let mut tries = ledger.register();
    ledger.end(probe, &mut tries, &failed(Failure::Rejected), 1.0, at(18));
    assert!(!ledger.is_down(at(18)), "it answers");
}

#[derive(Debug, Clone)]
enum Step {
    Admit { tokens: u64 },
    Begin { which: usize },
    Drop { which: usize },
    End { which: usize, outcome: u8 },
    Later { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0_u64..40).prop_map(|tokens| Step::Admit { tokens }),
        4 => any::<usize>().prop_map(|which| Step::Begin { which }),
        1 => any::<usize>().prop_map(|which| Step::Drop { which }),
        3 => (any::<usize>(), 0_u8..12).prop_map(|(which, outcome)| Step::End { which, outcome }),
        3 => (0_u64..20_000).prop_map(|ms| Step::Later { ms }),
    ]
}

fn outcome(number: u8) -> Result<Completion, ModelError> {
    match number {
        0 => limited(None),
        1 => limited(Some(7)),
        2 => limited(Some(500)),
        3 => failed(Failure::Unauthorized),
        4 => failed(Failure::InvalidResponse),
        5..8 => failed(Failure::Unavailable),
        8 => failed(Failure::Timeout),
        _ => answer(),
    }
}

proptest! {
    #[test]
    fn limits_hold_and_no_permit_is_lost_in_any_history(
        requests_per_minute in 0_u64..8, tokens_per_minute in prop_oneof![Just(0), 20_u64..200],
        steps in vec(step(), 0..200),
    ) {
        let mut ledger = Ledger::new(&ModelConfig { requests_per_minute, tokens_per_minute, ..config() });
        let mut now = Duration::ZERO;
        let (mut ready, mut at_work, mut began): (Vec<u64>, Vec<u64>, Vec<Duration>) = Default::default();
        let mut held_until = Duration::ZERO;
        for step in steps {
            match step {
                Step::Admit { tokens } => match ledger.admit(tokens, now) {
                    Ok(id) => ready.push(id),
                    Err(blocked) => prop_assert!(blocked.until.is_none_or(|until| until > now), "{:?}", blocked),
                },
                Step::Begin { which } if !ready.is_empty() => {
                    let id = ready.remove(which % ready.len());
                    if ledger.begin(id, now) {
                        prop_assert!(now >= held_until, "begun within a pause");
                        at_work.push(id);
                        began.push(now);
                    } else {
                        ledger.give_back(id, now);
                    }
                }
                Step::Drop { which } => {
                    let from = if which % 2 == 0 { &mut ready } else { &mut at_work };
                    if !from.is_empty() {
                        ledger.give_back(from.remove(which / 2 % from.len()), now);
                    }
                }
                Step::End { which, outcome: number } if !at_work.is_empty() => {
                    let id = at_work.remove(which % at_work.len());
                    let result = outcome(number);
                    let mut tries = ledger.register();
                    ledger.end(id, &mut tries, &result, 0.5, now);
                    if let Err(ModelError { failure: Failure::RateLimited { retry_after_ms: Some(ms) }, .. }) = result {
                        held_until = held_until.max(now + Duration::from_millis(ms).min(retry::MAX_PAUSE));
                    }
                }
                Step::Later { ms } => now += Duration::from_millis(ms),
                _ => {}
            }
            prop_assert_eq!(ledger.permit_count(), ready.len() + at_work.len());
            prop_assert!(ledger.permit_count() <= 4);
        }
        for end in &began {
            let count = began.iter().filter(|at| *at <= end && **at + MINUTE > *end).count();
            prop_assert!(requests_per_minute == 0 || count as u64 <= requests_per_minute, "{} in a minute", count);
        }
        // When no call is in flight and all pauses have ended, the full limit is available again.
        for id in ready.into_iter().chain(at_work) {
            ledger.give_back(id, now);
        }
        now += retry::MAX_PAUSE + WINDOW;
        let id = admit_and_begin(&mut ledger, now);
        let mut tries = ledger.register();
        ledger.end(id, &mut tries, &answer(), 0.5, now);
        now += WINDOW;
        let room = 4.min(if requests_per_minute == 0 { 4 } else { requests_per_minute });
        for _ in 0..room {
            prop_assert!(ledger.admit(5, now).is_ok());
        }
    }
}

#[test]
fn silence_of_a_busy_server_does_not_count_as_an_outage() {
    let mut ledger = Ledger::new(&config());
    let silent = |ledger: &mut Ledger, begun: u64, is_answered: bool| {
        let mut tries = ledger.register();
        let id = admit_and_begin(ledger, at(begun));
        if is_answered {
            ledger.answer_started(at(begun + 1));
        }
        let _ = ledger.end(
            id,
            &mut tries,
            &failed(Failure::Timeout),
            1.0,
            at(begun + 2),
        );
    };
    for number in 0..20 {
        silent(&mut ledger, 10 * number, true);
        assert!(
            !ledger.is_down(at(10 * number + 2)),
            "another call is answered"
        );
    }
    for number in 20..25 {
        silent(&mut ledger, 10 * number, false);
    }
    assert!(ledger.is_down(at(242)), "no call is answered");
}

#[test]
fn call_waits_for_a_server_that_loads_its_model() {
    let mut ledger = Ledger::new(&config());
    let mut tries = ledger.register();
    let error = ModelError {
        is_loading: true,
        ..ModelError::new(Failure::Unavailable, "Loading model")
    };
    let loading = Err(error);
    let mut now = Duration::ZERO;
    let mut waits = Vec::new();
    while let RetryDecision::Backoff(wait) = attempt(&mut ledger, &mut tries, &loading, now) {
        assert!(!ledger.is_down(now));
        waits.push(wait.as_secs());
        now += wait;
    }
    assert_eq!(waits[..5], [1, 2, 4, 8, 8]);
    assert!((at(120)..at(128)).contains(&now), "{now:?}");
}
