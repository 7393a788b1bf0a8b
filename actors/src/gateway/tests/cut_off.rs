//! Tests that no permit, place or rate is lost if calls are dropped or actors crash at any time.

use proptest::{collection::vec, prelude::*};
use tokio::task::JoinHandle;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Call { session: usize },
    CutOff { which: usize },
    Crash,
    Later { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_usize).prop_map(|session| Step::Call { session }),
        3 => any::<usize>().prop_map(|which| Step::CutOff { which }),
        1 => Just(Step::Crash),
        3 => (0_u64..5_000).prop_map(|ms| Step::Later { ms }),
    ]
}

async fn play(steps: Vec<Step>, config: ModelConfig, service: Arc<LimitedService>) {
    let house = TestGateway::open(service.model(), &config).await;
    let mut calls: Vec<JoinHandle<CallResult>> = Vec::new();
    for step in steps {
        match step {
            Step::Call { session } => {
                let house = Arc::clone(&house);
                calls.push(tokio::spawn(async move {
                    house.call(["a", "b", "c"][session], 7).await.0
                }));
            }
            Step::CutOff { which } if !calls.is_empty() => {
                let call = calls.swap_remove(which % calls.len());
                call.abort();
                let _ = call.await; // cancelled, or already ended
            }
            Step::CutOff { .. } => {}
            Step::Crash => house.crash().await,
            Step::Later { ms } => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    }
    for call in calls {
        call.await.unwrap().outcome.unwrap();
    }
    let log = service.log();
    assert_eq!((log.in_flight, log.too_early), (0, 0));
    let limit = config.requests_per_minute as usize;
    let minute = Duration::from_secs(60);
    for (_, end) in &log.accepted {
        let count = log
            .accepted
            .iter()
            .filter(|(_, at)| at <= end && *at + minute > *end)
            .count();
        assert!(limit == 0 || count <= limit, "{count} in a minute");
    }
    assert!(log.most_in_flight <= config.max_concurrency());
    tokio::task::yield_now().await;
    assert_eq!(house.activity(), "", "a permit or a place is lost");
    assert_eq!(house.gateway.shared.ledger().permit_count(), 0);
    // The full limit is available again.
    tokio::time::sleep(Duration::from_secs(61)).await;
    let begin = Instant::now();
    let room = config
        .max_concurrency()
        .min(if limit == 0 { usize::MAX } else { limit });
    all_complete(&house, "d", room).await;
    assert!(
        begin.elapsed() <= Duration::from_millis(1_100),
        "{:?} for {room} calls",
        begin.elapsed()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn cancelled_calls_and_crashes_lose_no_permit_place_or_rate(
        steps in vec(step(), 0..80), max_concurrency in 1..4_usize, requests_per_minute in prop_oneof![Just(0), 2..20_u64],
    ) {
        let threads = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        threads.block_on(async {
            let service = LimitedService::new(100, 10_000, Duration::from_secs(1));
            play(steps, limits(max_concurrency, requests_per_minute, 0), service).await;
        });
    }
}

#[tokio::test(start_paused = true)]
async fn restarted_gateway_remembers_used_rate() {
    let service = LimitedService::new(100, 10_000, Duration::from_secs(1));
    let house = TestGateway::open(service.model(), &limits(10, 4, 0)).await;
    let begin = Instant::now();
    let calls = async { all_complete(&house, "a", 8).await };
    let crashes = async {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(5)).await;
            house.crash().await;
        }
    };
    tokio::join!(calls, crashes);
    let times: Vec<u64> = service
        .log()
        .accepted
        .iter()
        .map(|(_, at)| (*at - begin).as_secs())
        .collect();
    assert_eq!(times, [0, 0, 0, 0, 61, 61, 61, 61]);
}
