//! Fallbacks: other models answer when the model of a run cannot.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use serde_json::json;
use soong::{
    Environment, RunHandle, RunRequest, Runtime,
    model::{Completion, Failure, ModelError},
    protocol::{
        Budget, ConditionalFallback, Config, ContextEvent, EndReason, ErrorCode, Event,
        FallbackConfig, FallbackReason, ModelEvent, PriceConfig, RunStatus, Usage,
    },
    testing::ScriptedModel,
};

use crate::support::{
    history::{check_session, stored},
    model::{Turn, assistant_count, is_parent, last_of, scripted_model, task_of},
    world::{TestRuntime, quick_config, with_timeout},
};

/// Usage of an answer of the scripted model.
const USAGE: Usage = Usage {
    prompt_tokens: 10,
    completion_tokens: 5,
    cached_tokens: 0,
    cache_write_tokens: 0,
    long_cache_write_tokens: 0,
    reasoning_tokens: 0,
    estimated: false,
};

fn named(names: &[&str]) -> Vec<FallbackConfig> {
    names
        .iter()
        .map(|name| FallbackConfig::Name((*name).to_owned()))
        .collect()
}

fn when(profile: &str, on: FallbackReason) -> FallbackConfig {
    FallbackConfig::When(ConditionalFallback {
        profile: profile.to_owned(),
        on: vec![on],
    })
}

/// Opens a runtime whose default model has these fallbacks, each of which is a registered model.
async fn open(
    model: Arc<ScriptedModel>,
    others: &[(&str, Arc<ScriptedModel>)],
    fallback: Vec<FallbackConfig>,
    change: impl FnOnce(&mut Config),
) -> TestRuntime {
    let mut config = quick_config();
    config.model.fallback = fallback;
    change(&mut config);
    TestRuntime::with(model, |builder| {
        let builder = builder.config(config);
        others.iter().fold(builder, |builder, (name, model)| {
            builder.model(*name, Arc::clone(model) as Arc<dyn soong::model::Model>)
        })
    })
    .await
}

/// Returns prices of a model, in USD per million tokens.
fn prices(usd: &str) -> PriceConfig {
    PriceConfig {
        prompt_per_mtok: usd.parse().unwrap(),
        completion_per_mtok: usd.parse().unwrap(),
        cached_per_mtok: None,
        cache_write_per_mtok: None,
        long_cache_write_per_mtok: None,
    }
}

fn always(turn: impl Fn() -> Turn + Send + Sync + 'static) -> Arc<ScriptedModel> {
    scripted_model(move |_| turn())
}

fn failing(failure: Failure) -> Arc<ScriptedModel> {
    always(move || Turn::Fail(ModelError::new(failure, "no")))
}

fn answering(text: &'static str) -> Arc<ScriptedModel> {
    always(move || Turn::say(text))
}

/// Returns the changes of the model that a run recorded: `from>to reason`, or `ended`.
async fn changes(world: &TestRuntime, run: &RunHandle) -> Vec<String> {
    let events = stored(world.runtime(), run.trace_id()).await;
    let of_run = events
        .iter()
        .filter(|event| event.run_id.as_ref() == Some(run.run_id()));
    let change = |event: &Event| match event {
        Event::Model(ModelEvent::Fallback {
            from, to, reason, ..
        }) => Some(format!("{from}>{to} {reason}")),
        Event::Model(ModelEvent::FallbackEnded { .. }) => Some("ended".to_owned()),
        _ => None,
    };
    of_run.filter_map(|event| change(&event.event)).collect()
}

async fn run(world: &TestRuntime, task: &str) -> (RunHandle, String) {
    let run = world.runtime().start(task).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
    check_session(world.runtime(), run.session_id()).await;
    (run, outcome.output.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_model_answers_if_the_service_fails_or_limits_the_rate() {
    let limited = Failure::RateLimited {
        retry_after_ms: Some(86_400_000),
    };
    for (failure, reason) in [
        (limited, "rate_limited"),
        (Failure::Unavailable, "down"),
        (Failure::Timeout, "down"),
    ] {
        let main = failing(failure);
        let down = failing(Failure::Unavailable);
        let others = [("b", Arc::clone(&down)), ("c", answering("from c"))];
        let world = open(Arc::clone(&main), &others, named(&["b", "c"]), |_| {}).await;
        let (first, answer) = run(&world, "x").await;
        assert_eq!(answer, "from c");
        assert_eq!(
            changes(&world, &first).await,
            [format!("scripted>b {reason}"), "b>c down".to_owned()]
        );
        // Until the cool-down ends, no run tries the failed models again.
        let calls = (main.calls(), down.calls());
        let (second, answer) = run(&world, "y").await;
        assert_eq!(
            (answer.as_str(), main.calls(), down.calls()),
            ("from c", calls.0, calls.1)
        );
        assert_eq!(
            changes(&world, &second).await,
            [format!("scripted>c {reason}")]
        );
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_model_is_tried_again_after_its_cool_down() {
    let is_down = Arc::new(AtomicBool::new(true));
    let main = scripted_model({
        let is_down = Arc::clone(&is_down);
        move |request| {
            if is_down.load(SeqCst) {
                Turn::Fail(ModelError::new(Failure::Unavailable, "no"))
            } else {
                Turn::say(format!("main, after {} answers", assistant_count(request)))
            }
        }
    });
    let backup = scripted_model(move |_| {
        is_down.store(false, SeqCst);
        Turn::call("read", json!({"path": "a.txt"}))
    });
    let world = open(main, &[("b", backup)], named(&["b"]), |config| {
        config.model.fallback_cooldown_s = 0
    })
    .await;
    let (run, answer) = run(&world, "x").await;
    assert_eq!(answer, "main, after 1 answers");
    assert_eq!(changes(&world, &run).await, ["scripted>b down", "ended"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_and_long_prompts_need_a_named_fallback() {
    let refusal = || Completion {
        finish_reason: "refusal".into(),
        ..Completion::text("I will not")
    };
    let refusing = || always(move || Turn::Whole(Vec::new(), Box::new(refusal())));
    let full = || failing(Failure::PromptTooLong);
    for (main, on, reason) in [
        (
            refusing(),
            FallbackReason::Refused,
            EndReason::ContentRefused,
        ),
        (
            full(),
            FallbackReason::ContextTooLong,
            EndReason::PromptTooLong,
        ),
    ] {
        let backup = scripted_model(|request| match assistant_count(request) {
            0 => Turn::call("read", json!({"path": "a.txt"})),
            _ => Turn::say(format!("{} messages", request.messages.len())),
        });
        let others = [("a", answering("unwanted")), ("b", Arc::clone(&backup))];
        let fallback = [named(&["a"]), vec![when("b", on)]].concat();
        let world = open(Arc::clone(&main), &others, fallback, |_| {}).await;
        let (ended, answer) = run(&world, "x").await;
        assert_eq!(
            answer, "3 messages",
            "the text of the refused answer is not sent on"
        );
        assert_eq!(
            changes(&world, &ended).await,
            [format!("scripted>b {}", on.as_str())]
        );
        assert_eq!(
            main.calls(),
            1,
            "the run does not try the model again until the cool-down ends"
        );
        world.finish().await;

        let world = open(main, &others, named(&["a"]), |_| {}).await;
        let ended = world.runtime().start("x").await.unwrap();
        assert_eq!(with_timeout(ended.wait()).await.unwrap().end_reason, reason);
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_the_request_or_key_have_no_fallback() {
    for (failure, code) in [
        (Failure::Unauthorized, ErrorCode::ProviderAuthFailed),
        (Failure::Rejected, ErrorCode::ProviderError),
    ] {
        let backup = answering("unwanted");
        let world = open(
            failing(failure),
            &[("b", Arc::clone(&backup))],
            named(&["b"]),
            |_| {},
        )
        .await;
        let ended = world.runtime().start("x").await.unwrap();
        let error = with_timeout(ended.wait())
            .await
            .unwrap()
            .error
            .clone()
            .unwrap();
        assert_eq!((error.code, backup.calls()), (code, 0));
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_text_is_charged_and_not_sent_on() {
    let cut = || {
        Turn::Break(
            "half an answer",
            ModelError::new(Failure::Unavailable, "gone"),
        )
    };
    let backup = scripted_model(|request| Turn::say(last_of(request)));
    let world = open(always(cut), &[("b", backup)], named(&["b"]), |config| {
        config.model.retry.max_attempts = 1;
        config.prices.insert("scripted".to_owned(), prices("1000"));
    })
    .await;
    let request = RunRequest::new("the task").budget(Budget {
        usd: Some("100".parse().unwrap()),
        ..Budget::default()
    });
    let ended = world.runtime().start(request).await.unwrap();
    let outcome = with_timeout(ended.wait()).await.unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "the task")
    );
    let events = stored(world.runtime(), ended.trace_id()).await;
    let charged = events.iter().find_map(|event| match &event.event {
        Event::Model(ModelEvent::Fallback { usage, cost, .. }) => {
            Some((usage.unwrap(), cost.unwrap()))
        }
        _ => None,
    });
    let (usage, cost) = charged.unwrap();
    assert!(
        usage.estimated && usage.completion_tokens > 0 && cost.as_nanos() > 0,
        "{usage:?}"
    );
    let record = ended.record().await.unwrap();
    assert_eq!(
        record.usage.total_tokens,
        usage.total_tokens() + USAGE.total_tokens()
    );
    assert_eq!(record.usage.model_calls, 2);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summaries_have_the_fallbacks_of_their_model() {
    let failing = || Turn::Fail(ModelError::new(Failure::Unavailable, "no summary"));
    check_summaries(failing, FallbackReason::Down, 1).await;
    // The refusal was an answer, and costs too.
    let refusal = || Completion {
        finish_reason: "refusal".into(),
        usage: Some(USAGE),
        ..Completion::text("no")
    };
    check_summaries(
        move || Turn::Whole(Vec::new(), Box::new(refusal())),
        FallbackReason::Refused,
        2,
    )
    .await;
}

/// Makes summaries with a fallback, and compares what each has used with this number of answers.
/// The main model answers turns, but not requests for summaries, which have no tools.
async fn check_summaries(
    no_summary: impl Fn() -> Turn + Send + Sync + 'static,
    on: FallbackReason,
    answers: u64,
) {
    const SUMMARY: &str =
        "## Request and intent\nx\n## Artifacts\nnone\n## Current work\nx\n## Next step\nx";
    let turns = AtomicUsize::new(0);
    let main = scripted_model(move |request| {
        match (request.tools.is_empty(), turns.fetch_add(1, SeqCst)) {
            (true, _) => no_summary(),
            (false, turns @ 0..20) => Turn::call(
                "create_artifact",
                json!({"name": format!("a{turns}"), "content": "word ".repeat(300)}),
            ),
            (false, _) => Turn::say("done"),
        }
    });
    let backup = scripted_model(|request| {
        if request.tools.is_empty() {
            Turn::say(SUMMARY)
        } else {
            Turn::say("done by b")
        }
    });
    let world = open(main, &[("b", backup)], vec![when("b", on)], |config| {
        config.model.context_window = Some(4_000);
        config.model.max_output_tokens = Some(100);
        config.context.keep_recent_messages = 4;
        config.prices.insert("scripted".to_owned(), prices("1000"));
    })
    .await;
    let (run, _) = run(&world, "x").await;
    let events = stored(world.runtime(), run.trace_id()).await;
    let costs: Vec<_> = events
        .iter()
        .filter_map(|record| match &record.event {
            Event::Context(ContextEvent::CompactionCompleted { usage, cost, .. }) => {
                Some((*usage, *cost))
            }
            _ => None,
        })
        .collect();
    assert!(!costs.is_empty(), "no summary was made");
    let is_complete = |usage: &Usage| usage.total_tokens() == answers * USAGE.total_tokens();
    assert!(
        costs
            .iter()
            .all(|(usage, cost)| is_complete(usage) && cost.is_some()),
        "{costs:?}"
    );
    world.finish().await;
}

/// (BUD-1a) The refusal was an answer, and costs although the fallback fails without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discarded_summary_is_charged_if_the_fallback_fails_too() {
    let turns = AtomicUsize::new(0);
    let refusal = || Completion {
        finish_reason: "refusal".into(),
        usage: Some(USAGE),
        ..Completion::text("no")
    };
    let main = scripted_model(move |request| {
        match (request.tools.is_empty(), turns.fetch_add(1, SeqCst)) {
            (true, _) => Turn::Whole(Vec::new(), Box::new(refusal())),
            (false, turns @ 0..20) => Turn::call(
                "create_artifact",
                json!({"name": format!("a{turns}"), "content": "word ".repeat(300)}),
            ),
            (false, _) => Turn::say("done"),
        }
    });
    let world = open(
        main,
        &[("b", failing(Failure::Rejected))],
        vec![when("b", FallbackReason::Refused)],
        |config| {
            config.model.context_window = Some(4_000);
            config.model.max_output_tokens = Some(100);
            config.context.keep_recent_messages = 4;
        },
    )
    .await;
    let (run, _) = run(&world, "x").await;
    let events = stored(world.runtime(), run.trace_id()).await;
    let usages = events.iter().filter_map(|record| match &record.event {
        Event::Context(ContextEvent::CompactionFailed { usage, .. }) => Some(*usage),
        _ => None,
    });
    let usages: Vec<Option<Usage>> = usages.collect();
    assert!(!usages.is_empty(), "no summary failed");
    assert!(
        usages.iter().all(|usage| *usage == Some(USAGE)),
        "{usages:?}"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_have_the_fallbacks_of_their_parent() {
    let main = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("agent", json!({"task": ["a", "b"]})),
            (true, _) => Turn::say(last_of(request)),
            (false, _) => Turn::Fail(ModelError::new(Failure::Unavailable, "no")),
        },
    );
    let backup = scripted_model(|request| {
        if is_parent(request) {
            Turn::say(last_of(request))
        } else {
            Turn::say(format!("did {}", task_of(request)))
        }
    });
    let world = open(main, &[("b", backup)], named(&["b"]), |_| {}).await;
    let (_, answer) = run(&world, "x").await;
    assert!(
        answer.contains("did a") && answer.contains("did b"),
        "{answer}"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_failures_are_waited_for_as_without_a_fallback() {
    let is_limited = AtomicBool::new(true);
    let main = scripted_model(move |_| {
        if is_limited.swap(false, SeqCst) {
            Turn::Fail(ModelError::new(
                Failure::RateLimited {
                    retry_after_ms: Some(20),
                },
                "slow down",
            ))
        } else {
            Turn::say("from the model itself")
        }
    });
    let backup = answering("unwanted");
    let fallback = vec![when("b", FallbackReason::Overloaded)];
    let world = open(main, &[("b", backup)], fallback, |config| {
        config.model.fallback_after_s = 0
    })
    .await;
    let (run, answer) = run(&world, "x").await;
    assert_eq!(answer, "from the model itself");
    assert_eq!(changes(&world, &run).await, [""; 0]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejecting_fallback_does_not_hide_the_first_error() {
    let down = || failing(Failure::Unavailable);
    let rejecting = || failing(Failure::Unauthorized);
    let world = open(
        down(),
        &[("b", rejecting()), ("c", answering("from c"))],
        named(&["b", "c"]),
        |_| {},
    )
    .await;
    assert_eq!(run(&world, "x").await.1, "from c");
    world.finish().await;
    let world = open(down(), &[("b", rejecting())], named(&["b"]), |_| {}).await;
    let ended = world.runtime().start("x").await.unwrap();
    let error = with_timeout(ended.wait())
        .await
        .unwrap()
        .error
        .clone()
        .unwrap();
    assert_eq!(error.code, ErrorCode::ProviderError, "{error}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_fallback_is_a_configuration_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = quick_config();
    config.model.fallback = named(&["no such model"]);
    let environment = Environment::of([("OPENAI_API_KEY", "k")]);
    let builder = Runtime::builder()
        .home(dir.path().join("home"))
        .project_dir(dir.path());
    let runtime = builder
        .config(config)
        .environment(environment)
        .build()
        .await
        .unwrap();
    let error = runtime.start("x").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ConfigError, "{error}");
    assert!(
        error.message.contains("model.fallback \"no such model\""),
        "{error}"
    );
    runtime.close().await;
}
