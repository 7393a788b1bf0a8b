//! Budgets over run trees: no budget is exceeded, sums are exact, and usage survives a restart
//! (BUD-1, BUD-2).
//!
//! Elsewhere: the arithmetic over random trees (`actors/src/budget/ledger/tests.rs`).

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use serde_json::json;
use soong::{
    ChildSpec, ErrorCode, FaultPoint, RecoveryPolicy, RunRequest,
    model::ModelRequest,
    protocol::{
        Budget, BudgetDimension, BudgetEvent, EndReason, Event, PriceConfig, Run, RunId, RunMode,
        RunStatus, Stats, Usage, Usd,
    },
    testing::respond,
};
use soong_storage::{sqlite::SqliteReader, store::Reader};

use crate::support::{
    history::check_session,
    model::{ScriptedModel, Turn, assistant_count, is_parent, last_of, scripted_model, task_of},
    world::{TestRuntime, quick_config, read_to_end, run_until_false, wait_until, with_timeout},
};

/// Calls a tool in every turn and never finishes.
fn insatiable(_: &ModelRequest) -> Turn {
    Turn::call("list_files", json!({}))
}

/// Creates a model that reports a usage in proportion to the size of the prompt.
fn honest_model(
    script: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static,
) -> Arc<ScriptedModel> {
    Arc::new(respond(move |request| {
        let tools: usize = request
            .tools
            .iter()
            .map(|tool| tool.parameters.to_string().len())
            .sum();
        let system: usize = request.system_and_context().len();
        let messages: usize = request
            .messages
            .iter()
            .map(|message| message.content.len())
            .sum();
        let prompt_tokens = ((tools + system + messages) / 5) as u64;
        let usage = Usage {
            prompt_tokens,
            completion_tokens: 5,
            ..Usage::default()
        };
        script(request).step(request).usage(usage)
    }))
}

fn usd(text: &str) -> Usd {
    text.parse().unwrap()
}

/// Configuration in which each token of the scripted model costs one dollar, and answers are short.
fn priced() -> soong::Config {
    let mut config = quick_config();
    config.model.max_output_tokens = Some(100);
    let price = usd("1000000");
    config.prices.insert(
        "scripted".into(),
        PriceConfig {
            prompt_per_mtok: price,
            completion_per_mtok: price,
            cached_per_mtok: None,
            cache_write_per_mtok: None,
            long_cache_write_per_mtok: None,
        },
    );
    config
}

fn budget_events(
    events: &[Arc<soong::protocol::EventRecord>],
) -> Vec<(&'static str, BudgetDimension)> {
    let budget_event = |event: &Arc<soong::protocol::EventRecord>| match &event.event {
        Event::Budget(BudgetEvent::Warning { dimension, .. }) => Some(("warning", *dimension)),
        Event::Budget(BudgetEvent::Exceeded { dimension, .. }) => Some(("exceeded", *dimension)),
        _ => None,
    };
    events.iter().filter_map(budget_event).collect()
}

/// (BUD-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exceeding_any_limit_ends_the_run() {
    use BudgetDimension as D;
    let open = Budget::default();
    for (budget, dimension) in [
        (
            Budget {
                tokens: Some(20_000),
                ..open
            },
            D::Tokens,
        ),
        (
            Budget {
                usd: Some(usd("20000")),
                ..open
            },
            D::Usd,
        ),
        (
            Budget {
                model_calls: Some(4),
                ..open
            },
            D::ModelCalls,
        ),
        (
            Budget {
                tool_calls: Some(4),
                ..open
            },
            D::ToolCalls,
        ),
    ] {
        let model = honest_model(insatiable);
        let world = TestRuntime::with(model.clone(), |builder| builder.config(priced())).await;
        let run = world
            .runtime()
            .start(RunRequest::new("read").budget(budget))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(
            (outcome.status, outcome.end_reason),
            (RunStatus::Failed, EndReason::BudgetExceeded),
            "{dimension:?}"
        );
        let error = outcome.error.clone().unwrap();
        assert_eq!(
            (error.code, &error.details["dimension"]),
            (ErrorCode::BudgetExceeded, &json!(dimension))
        );
        let used = outcome.stats.tree;
        assert!(
            used.total_tokens <= 20_000 && used.model_calls <= 400,
            "{used:?}"
        );
        if dimension == D::ModelCalls {
            assert_eq!((used.model_calls, model.calls()), (4, 4));
        }
        if dimension == D::ToolCalls {
            assert_eq!(used.tool_calls, 4);
        }
        let reported = budget_events(&read_to_end(run.events().unwrap()).await);
        assert_eq!(reported, [("warning", dimension), ("exceeded", dimension)]);
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

/// (BUD-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zero_budget_starts_nothing() {
    let open = Budget::default();
    for budget in [
        Budget {
            tokens: Some(0),
            ..open
        },
        Budget {
            usd: Some(usd("0")),
            ..open
        },
        Budget {
            model_calls: Some(0),
            ..open
        },
        Budget {
            wall_time_s: Some(0),
            ..open
        },
    ] {
        let model = scripted_model(insatiable);
        let world = TestRuntime::with(model.clone(), |builder| builder.config(priced())).await;
        let run = world
            .runtime()
            .start(RunRequest::new("read").budget(budget))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(
            (outcome.end_reason, model.calls()),
            (EndReason::BudgetExceeded, 0),
            "{budget:?}"
        );
        assert_eq!(outcome.stats.tree.total_tokens, 0);
        world.finish().await;
    }
    for (budget, code) in [
        (
            Budget {
                children: Some(0),
                ..open
            },
            "budget_exceeded",
        ),
        (
            Budget {
                depth: Some(0),
                ..open
            },
            "tool_not_available",
        ),
        (
            Budget {
                tool_calls: Some(0),
                ..open
            },
            "",
        ),
    ] {
        let model = scripted_model(|request| match assistant_count(request) {
            0 => Turn::call("agent", json!({"task": "x"})),
            _ => Turn::say(last_of(request)),
        });
        let world = TestRuntime::open(model.clone()).await;
        let run = world
            .runtime()
            .start(RunRequest::new("read").budget(budget))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(run.children().await.unwrap().len(), 0);
        match code {
            "" => assert_eq!(outcome.end_reason, EndReason::BudgetExceeded),
            code => assert!(outcome.output.contains(code), "{}", outcome.output),
        }
        world.finish().await;
    }
}

/// (BUD-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_children_cannot_overspend_the_parent_budget() {
    // Each call may use up to 100 output tokens in addition to its prompt, and uses 5. Without
    // reservations, sixteen concurrent children would all start calls on the last remaining tokens.
    let tasks: Vec<String> = (0..16).map(|n| format!("task {n}")).collect();
    let model = honest_model(
        move |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("agent", json!({"task": tasks})),
            (true, _) => Turn::say("done"),
            (false, _) => Turn::call("list_files", json!({})),
        },
    );
    let world = TestRuntime::with(model, |builder| builder.config(priced())).await;
    let budget = Budget {
        tokens: Some(40_000),
        ..Budget::default()
    };
    let run = world
        .runtime()
        .start(
            RunRequest::new("x")
                .mode(RunMode::Orchestrator)
                .budget(budget),
        )
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    let used = outcome.stats.tree.total_tokens;
    assert!(
        (30_000..=40_000).contains(&used),
        "{:?}",
        outcome.stats.tree
    );
    let results = run.results().await.unwrap();
    assert_eq!(results.len(), 16);
    let used: u64 = results
        .iter()
        .map(|result| result.stats.tree.total_tokens)
        .sum();
    assert_eq!(
        used + outcome.stats.own.total_tokens,
        outcome.stats.tree.total_tokens
    );
    assert!(
        results
            .iter()
            .all(|result| result.error.as_ref().unwrap().code == ErrorCode::BudgetExceeded)
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (BUD-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_budget_ends_only_that_child() {
    let model = scripted_model(|request| match task_of(request) {
        "greedy" => Turn::call("list_files", json!({})),
        _ => Turn::say("modest"),
    });
    let world = TestRuntime::open(model).await;
    let run = world
        .runtime()
        .start(RunRequest::driven("x"))
        .await
        .unwrap();
    let share = Budget {
        model_calls: Some(3),
        ..Budget::default()
    };
    let children = run
        .spawn_all([
            ChildSpec::new("greedy").budget(share),
            ChildSpec::new("modest"),
        ])
        .await
        .unwrap();
    let outcomes = with_timeout(children.join()).await;
    let ends: Vec<EndReason> = outcomes
        .iter()
        .map(|outcome| outcome.as_ref().unwrap().end_reason)
        .collect();
    assert_eq!(ends, [EndReason::BudgetExceeded, EndReason::Completed]);
    run.finish("").unwrap();
    with_timeout(run.wait()).await.unwrap();
    world.finish().await;
}

/// (BUD-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_is_warned_at_80_percent_before_the_run_ends() {
    let seen = Arc::new(Mutex::new(Vec::<bool>::new()));
    let saw = Arc::clone(&seen);
    let model = honest_model(move |request| {
        let is_shown = request.system_and_context().contains("## Budget");
        saw.lock().unwrap().push(is_shown);
        Turn::call("list_files", json!({}))
    });
    let world = TestRuntime::with(model, |builder| builder.config(priced())).await;
    let budget = Budget {
        tokens: Some(40_000),
        ..Budget::default()
    };
    let start = RunRequest::new("read").budget(budget).tools(["list_files"]);
    let run = world.runtime().start(start).await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().end_reason,
        EndReason::BudgetExceeded
    );
    let seen = seen.lock().unwrap().clone();
    assert!(!seen[0]);
    let first_shown = seen
        .iter()
        .position(|is_shown| *is_shown)
        .expect("the budget is shown");
    assert!(seen[first_shown..].iter().all(|is_shown| *is_shown));
    world.finish().await;
}

/// (BUD-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_cut_by_budget_ends_with_budget_exceeded() {
    let model = scripted_model(|request| match request.max_output_tokens {
        Some(most) if most < 100 => Turn::Cut("as far as the mon"),
        _ => Turn::call("list_files", json!({})),
    });
    let world = TestRuntime::with(model, |builder| {
        let mut config = priced();
        config.prices.clear();
        builder.config(config)
    })
    .await;
    let budget = Budget {
        tokens: Some(1_000),
        ..Budget::default()
    };
    let start = RunRequest::new("read")
        .budget(budget)
        .tools(["list_files"])
        .system_prompt("short");
    let run = world.runtime().start(start).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.end_reason, outcome.output.as_str()),
        (EndReason::BudgetExceeded, "as far as the mon")
    );
    assert!(outcome.stats.tree.total_tokens <= 1_000);
    world.finish().await;
}

/// (BUD-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wall_time_limit_ends_the_whole_tree() {
    let model = scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0) => Turn::call("agent", json!({"task": ["a", "b"]})),
            (true, _) => Turn::say("done"),
            (false, _) => Turn::Hang("half"),
        },
    );
    let world = TestRuntime::open(model.clone()).await;
    let budget = Budget {
        wall_time_s: Some(1),
        ..Budget::default()
    };
    let run = world
        .runtime()
        .start(
            RunRequest::new("x")
                .mode(RunMode::Orchestrator)
                .budget(budget),
        )
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.end_reason, EndReason::BudgetExceeded);
    assert_eq!(
        outcome.error.as_ref().unwrap().details["dimension"],
        "wall_time_s"
    );
    let results = run.results().await.unwrap();
    assert!(
        results
            .iter()
            .all(|one| one.status == RunStatus::Cancelled && one.summary == "half"),
        "{results:?}"
    );
    assert_eq!(model.in_flight(), 0);
    world.finish().await;
}

/// (BUD-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_survives_a_restart() {
    let script = || {
        scripted_model(
            |request| match (task_of(request), assistant_count(request)) {
                ("first", 0) => Turn::call("agent", json!({"task": ["ends", "hangs"]})),
                ("ends", 0..=3) => Turn::call("list_files", json!({})),
                ("ends", _) => Turn::say("ended"),
                ("hangs", _) => Turn::Hang("half"),
                _ => Turn::say("never"),
            },
        )
    };
    for taken_up_by in ["the open", "a message"] {
        let budget = Budget {
            model_calls: Some(8),
            ..Budget::default()
        };
        let model = script();
        let mut world = TestRuntime::open(scripted_model(insatiable)).await;
        world
            .reopen_with(model.clone(), |builder| builder.config(quick_config()))
            .await;
        let run = world
            .runtime()
            .start(RunRequest::new("first").session("s").budget(budget))
            .await
            .unwrap();
        wait_until("one child has ended, one hangs", || {
            model.calls() == 7 && model.in_flight() == 1
        })
        .await;
        while run.results().await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        // 1 + 5 + 1 calls. The interrupted call is charged as well, so one of the eight calls
        // remains.
        let second_model = script();
        let recover = if taken_up_by == "the open" {
            RecoveryPolicy::All
        } else {
            RecoveryPolicy::Nothing
        };
        world
            .reopen_with(second_model.clone(), |builder| {
                builder.config(quick_config()).recover(recover)
            })
            .await;
        if taken_up_by == "a message" {
            // The message is queued after the interrupted run, which it causes to resume.
            let next = world
                .runtime()
                .start(RunRequest::new("next").session("s"))
                .await
                .unwrap();
            with_timeout(next.cancel()).await.unwrap();
        }
        wait_until("it hangs again", || second_model.in_flight() == 1).await;
        let handle = world.runtime().traces().handle(run.run_id()).unwrap();
        let child = run_of(&world, run.run_id()).await;
        with_timeout(world.runtime().traces().handle(&child).unwrap().cancel())
            .await
            .unwrap();
        let outcome = with_timeout(handle.wait()).await.unwrap();
        assert_eq!(
            (outcome.end_reason, second_model.calls()),
            (EndReason::BudgetExceeded, 1),
            "{taken_up_by}"
        );
        assert_eq!(outcome.stats.tree.model_calls, 8, "{taken_up_by}");
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

/// Returns the child of a run that has not ended.
async fn run_of(world: &TestRuntime, parent: &soong::protocol::RunId) -> soong::protocol::RunId {
    let children = world
        .runtime()
        .traces()
        .handle(parent)
        .unwrap()
        .children()
        .await
        .unwrap();
    children
        .into_iter()
        .find(|child| !child.status.is_terminal())
        .unwrap()
        .run_id
}

/// (BUD-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_budget_overrides_the_configured_budget() {
    for (own, calls) in [(None, 2), (Some(5), 5)] {
        let model = scripted_model(insatiable);
        let world = TestRuntime::with(model.clone(), |builder| {
            let mut config = quick_config();
            config.budget = Budget {
                model_calls: Some(2),
                tool_calls: Some(100),
                ..Budget::default()
            };
            builder.config(config)
        })
        .await;
        let budget = Budget {
            model_calls: own,
            ..Budget::default()
        };
        let run = world
            .runtime()
            .start(RunRequest::new("x").budget(budget))
            .await
            .unwrap();
        with_timeout(run.wait()).await.unwrap();
        assert_eq!(model.calls(), calls);
        assert_eq!(
            run.record()
                .await
                .unwrap()
                .settings
                .options
                .budget
                .tool_calls,
            Some(100)
        );
        world.finish().await;
    }
}

/// (BUD-2)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usd_budget_is_rejected_if_price_is_unknown() {
    let world = TestRuntime::open(scripted_model(|_| Turn::say("ok"))).await;
    let run = world.runtime().start("x").await.unwrap();
    let used: Stats = with_timeout(run.wait()).await.unwrap().stats.tree;
    assert_eq!(
        (used.total_tokens, used.cost),
        (15, None),
        "tokens are known, money is not"
    );
    let budget = Budget {
        usd: Some(usd("1")),
        ..Budget::default()
    };
    let refused = world
        .runtime()
        .start(RunRequest::new("x").budget(budget))
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::ConfigError);
    assert!(refused.message.contains("prices.\"scripted\""), "{refused}");
    world.finish().await;
    let world = TestRuntime::with(scripted_model(|_| Turn::say("ok")), |builder| {
        builder.config(priced())
    })
    .await;
    let run = world.runtime().start("x").await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().stats.tree.cost,
        Some(usd("15"))
    );
    world.finish().await;
}

/// Returns a pseudo-random number derived from the arguments.
fn mixed(seed: u64, salt: impl std::hash::Hash) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one((seed, salt))
}

/// (BUD-1)
#[test]
fn random_trees_with_crashes_never_overspend() {
    run_until_false(async |seed| {
        // Each agent reads files, may start sub-agents, and answers. Some runs crash.
        let model = honest_model(move |request| {
            let task = task_of(request).to_owned();
            let turn = assistant_count(request);
            let depth = task.split('-').count() as u64;
            match mixed(seed, (&task, turn)) % 10 {
                0..=4 if turn < 12 => Turn::call("list_files", json!({})),
                5..=7 if depth < 3 && turn < 12 && is_parent(request) => {
                    let tasks: Vec<String> = (0..1 + mixed(seed, &task) % 3)
                        .map(|n| format!("{task}-{turn}{n}"))
                        .collect();
                    Turn::call("agent", json!({"task": tasks, "agent_type": "default"}))
                }
                _ => Turn::say("done"),
            }
        });
        let crashes = AtomicU64::new(0);
        let hook = move |run: &RunId, point: FaultPoint| {
            let met = crashes.fetch_add(1, SeqCst);
            if point != FaultPoint::BeforeBlob && mixed(seed, (run.as_str().len(), met)) % 29 == 0 {
                panic!("provoked at {point:?}");
            }
        };
        let world = TestRuntime::with(model, |builder| {
            let mut config = priced();
            config.storage.durability = soong::protocol::Durability::Normal;
            config.agents.max_depth = 2;
            config.agents.max_concurrent_children_per_session = 3;
            builder.config(config).fault_hook(Arc::new(hook))
        })
        .await;
        let limit = 5_000 + mixed(seed, "tokens") % 30_000;
        let budget = Budget {
            tokens: Some(limit),
            model_calls: Some(3 + mixed(seed, "calls") % 30),
            tool_calls: Some(3 + mixed(seed, "tools") % 30),
            children: Some(mixed(seed, "children") % 8),
            ..Budget::default()
        };
        let run = world
            .runtime()
            .start(RunRequest::new("t").budget(budget))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        let used = outcome.stats.tree;
        let all = family(&world, run.record().await.unwrap());
        let sum = |of: fn(&Stats) -> u64| all.iter().map(|run| of(&run.usage)).sum::<u64>();
        assert_eq!(
            (used.total_tokens, used.model_calls, used.tool_calls),
            (
                sum(|own| own.total_tokens),
                sum(|own| own.model_calls),
                sum(|own| own.tool_calls)
            ),
            "seed {seed}: sums are exact"
        );
        let within = used.total_tokens <= limit
            && Some(used.model_calls) <= budget.model_calls
            && Some(used.tool_calls) <= budget.tool_calls
            && Some(all.len() as u64 - 1) <= budget.children;
        assert!(
            within,
            "seed {seed}: {used:?} and {} children of {budget:?}",
            all.len() - 1
        );
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
        seed < TREES
    });
}

/// Number of random trees.
const TREES: u64 = 24;

/// Returns a run and all its descendants, as stored.
fn family(world: &TestRuntime, top: Run) -> Vec<Run> {
    let reader = SqliteReader::open(world.home().join("sessions.sqlite")).unwrap();
    let mut all = vec![top];
    let mut next = 0;
    while next < all.len() {
        all.extend(reader.children(&all[next].run_id).unwrap());
        next += 1;
    }
    all
}
