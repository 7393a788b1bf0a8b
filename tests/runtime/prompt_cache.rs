//! Prompts as the caches of the providers need them: siblings read what they have in common, and a
//! conversation reads what it has sent before.

mod service;

use std::{collections::BTreeSet, time::Duration};

use soong::{
    ChildSpec, Environment, RunRequest, Runtime,
    protocol::{Config, GivenMessage, Provider, Role},
};

use self::service::{ANSWER_AFTER, CacheRules, CachingService, Counted};
use crate::support::world::{quick_config, with_timeout};

/// Number of children of a fan-out.
const SIBLINGS: usize = 20;
/// Requests per minute that one of OpenAI's caches takes.
const REQUESTS_PER_KEY: usize = 15;

const ALL_RULES: [CacheRules; 5] = [
    CacheRules::Marks,
    CacheRules::Breakpoints,
    CacheRules::ChatBreakpoints,
    CacheRules::Blocks,
    CacheRules::Prefix,
];

/// The provider, model and shortest cached prompt for the rules.
fn profile(rules: CacheRules) -> (Provider, &'static str, usize) {
    match rules {
        CacheRules::Marks => (Provider::Anthropic, "claude-opus-5-5", 512),
        CacheRules::Breakpoints => (Provider::OpenaiResponses, "gpt-6-luna", 1024),
        CacheRules::ChatBreakpoints => (Provider::Openai, "gpt-5.6-luna", 1024),
        CacheRules::Blocks => (Provider::Openai, "gpt-4.1-mini", 1024),
        CacheRules::Prefix => (Provider::Gemini, "gemini-3.8-flash", 4096),
    }
}

async fn open(
    rules: CacheRules,
    answer_after: Duration,
    change: impl FnOnce(&mut Config),
) -> (CachingService, Runtime, tempfile::TempDir) {
    let (provider, model, min_tokens) = profile(rules);
    let service = CachingService::start(rules, min_tokens, answer_after);
    let dir = tempfile::tempdir().unwrap();
    let mut config = quick_config();
    config.model.provider = Some(provider);
    config.model.name = Some(model.to_owned());
    config.model.base_url = Some(service.server.base_url());
    config.model.max_concurrency = Some(SIBLINGS);
    config.agents.max_concurrent_children_per_session = SIBLINGS;
    change(&mut config);
    let environment = Environment::of([(provider.api_key_env(), "k")]);
    let builder = Runtime::builder()
        .home(dir.path().join("home"))
        .project_dir(dir.path());
    let runtime = builder
        .config(config)
        .environment(environment)
        .build()
        .await
        .unwrap();
    (service, runtime, dir)
}

/// Runs children that have given messages and context in common. Returns what the service counted
/// for each.
async fn fan_out(
    rules: CacheRules,
    answer_after: Duration,
    change: impl FnOnce(&mut Config),
) -> Vec<Counted> {
    let (service, runtime, _dir) = open(rules, answer_after, change).await;
    let run = runtime.start(RunRequest::driven("compare")).await.unwrap();
    let given = |role, content: &str| GivenMessage {
        role,
        content: content.into(),
        tool_call_id: None,
    };
    let earlier = [
        given(Role::User, "What is this about?"),
        given(Role::Assistant, "About houses."),
    ];
    let child = |number: usize| {
        let spec = ChildSpec::new(format!("task {number}")).messages(earlier.clone());
        spec.context("A house has many rooms. ".repeat(1_500))
    };
    let children = run.spawn_all((0..SIBLINGS).map(child)).await.unwrap();
    for outcome in with_timeout(children.join()).await {
        assert_eq!(outcome.unwrap().output, "done");
    }
    let usage = run
        .children()
        .await
        .unwrap()
        .iter()
        .map(|child| child.usage.cached_tokens)
        .sum::<u64>();
    run.finish("compared").unwrap();
    with_timeout(run.wait()).await.unwrap();
    runtime.close().await;
    assert_eq!(runtime.tree().live_count(), 0);
    let counted = service.counted();
    let read: usize = counted.iter().map(|request| request.read_tokens).sum();
    assert_eq!(usage, read as u64, "the usage names what was read");
    counted
}

/// Returns the number of tokens of the blocks that the prompts have in common at their beginning.
fn shared_tokens(counted: &[Counted]) -> usize {
    let is_shared = |index: &usize| {
        counted
            .iter()
            .all(|other| other.blocks[*index] == counted[0].blocks[*index])
    };
    let shared = (0..counted[0].blocks.len())
        .take_while(is_shared)
        .map(|index| counted[0].blocks[index].len());
    shared.sum::<usize>() / 4
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn siblings_read_what_they_have_in_common() {
    for rules in ALL_RULES {
        let counted = fan_out(rules, ANSWER_AFTER, |_| {}).await;
        assert_eq!(counted.len(), SIBLINGS, "{rules:?}");
        let keys: BTreeSet<Option<&str>> = counted
            .iter()
            .map(|request| request.key.as_deref())
            .collect();
        for key in keys.iter().flatten() {
            let requests = counted
                .iter()
                .filter(|request| request.key.as_deref() == Some(key))
                .count();
            assert!(
                requests <= REQUESTS_PER_KEY,
                "{rules:?}: {requests} requests of {key}"
            );
        }
        let shared = shared_tokens(&counted);
        let read: usize = counted
            .iter()
            .map(|request| request.read_tokens.min(shared))
            .sum();
        let share = read as f64 / (SIBLINGS * shared) as f64;
        println!(
            "{rules:?}: {SIBLINGS} siblings read {:.1} % of {shared} shared tokens",
            share * 100.0
        );
        assert!(share >= 0.9, "{rules:?}: {share}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_warm_up_siblings_start_at_once() {
    // Long enough for a second request before the first answer, also on a slow machine.
    let answer_after = Duration::from_secs(2);
    let counted = fan_out(CacheRules::Marks, answer_after, |config| {
        config.agents.warm_prefix = false
    })
    .await;
    let read = counted
        .iter()
        .filter(|request| request.read_tokens > 0)
        .count();
    assert!(read < SIBLINGS - 1, "{read} siblings found a filled cache");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_reads_what_it_has_sent_before() {
    for rules in ALL_RULES {
        let (service, runtime, _dir) = open(rules, ANSWER_AFTER, |_| {}).await;
        let mut session = None;
        for message in [
            "A house has many rooms. ".repeat(1_000),
            "How many?".to_owned(),
            "Which?".to_owned(),
        ] {
            let request = RunRequest::new(message);
            let request = match &session {
                Some(session) => request.session(session),
                None => request,
            };
            let run = runtime.start(request).await.unwrap();
            session = Some(run.session_id().as_str().to_owned());
            assert_eq!(with_timeout(run.wait()).await.unwrap().output, "done");
        }
        runtime.close().await;
        let counted = service.counted();
        assert_eq!(counted.len(), 3);
        for pair in counted.windows(2) {
            let share = pair[1].read_tokens as f64 / pair[0].prompt_tokens as f64;
            assert!(share > 0.95, "{rules:?}: {share}");
            assert_eq!(pair[0].key, pair[1].key);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_cache_is_for_runs_that_are_not_sub_agents() {
    for (is_configured, is_child) in [(false, false), (true, false), (true, true)] {
        let (service, runtime, _dir) = open(CacheRules::Marks, ANSWER_AFTER, |config| {
            config.model.long_cache = is_configured
        })
        .await;
        if is_child {
            let parent = runtime.start(RunRequest::driven("x")).await.unwrap();
            let child = parent.spawn(ChildSpec::new("y")).await.unwrap();
            with_timeout(child.wait()).await.unwrap();
            parent.finish("done").unwrap();
            with_timeout(parent.wait()).await.unwrap();
        } else {
            with_timeout(runtime.start("x").await.unwrap().wait())
                .await
                .unwrap();
        }
        runtime.close().await;
        let sent = service.server.requests()[0].body.to_string();
        assert!(sent.contains("\"ephemeral\""), "{sent}");
        assert_eq!(
            sent.contains("\"ttl\":\"1h\""),
            is_configured && !is_child,
            "{is_configured} {is_child}"
        );
    }
}
