//! Tests of the ledger: tables of grants, and random trees whose sums are recomputed (BUD-1).

use proptest::prelude::*;

use super::*;

fn run(n: usize) -> RunId {
    RunId::new(format!("r{n}"))
}

fn want(prompt: u64, output: u64) -> ReserveRequest {
    let price = |text: &str| text.parse::<Usd>().unwrap();
    let prices = Prices {
        prompt: price("1"),
        completion: price("2"),
        cached: price("0.5"),
        ..Prices::default()
    };
    ReserveRequest {
        prompt_tokens: prompt,
        max_output_tokens: output,
        prices: Some(prices),
        is_long_cached: false,
    }
}

fn tokens(limit: u64) -> Budget {
    Budget {
        tokens: Some(limit),
        ..Budget::default()
    }
}

#[test]
fn remaining_budget_decides_grant_wait_or_exceeded() {
    // Limit, used, reserved by others, prompt, maximum answer → grant.
    for (limit, used, reserved_by_others, prompt, output, granted) in [
        (1_000, 0, 0, 100, 200, Ok(200)),
        (1_000, 0, 700, 100, 200, Ok(200)),
        (1_000, 0, 701, 100, 200, Err(true)), // others have reserved it
        (1_000, 701, 0, 100, 200, Ok(199)),   // no other reservation: a shorter answer
        (1_000, 884, 0, 100, 200, Ok(16)),
        (1_000, 885, 0, 100, 200, Err(false)), // the answer would be too short
        (1_000, 885, 115, 100, 200, Err(false)),
        (0, 0, 0, 1, 0, Err(false)),
        (1_000, 5_000, 0, 1, 0, Err(false)), // a call used more than its reservation
        (1_000, 990, 0, 5, 3, Ok(3)),        // a model with a short maximum
        (30_000, 0, 20_000, 100, 16_384, Ok(4_950)), // siblings share what is left
        (30_000, 0, 22_000, 100, 16_384, Err(true)), // a share would be too small
    ] {
        let mut ledger = Ledger::default();
        ledger.open(&run(0), None, tokens(limit));
        ledger.open(&run(1), Some(&run(0)), Budget::default());
        ledger.open(&run(2), Some(&run(0)), Budget::default());
        ledger.report(
            &run(1),
            Consumed {
                tokens: used,
                ..Consumed::default()
            },
        );
        ledger.update_with_ancestors(&run(1), |account| {
            account.reserved.tokens += reserved_by_others
        });
        let got = match ledger.reserve(&run(2), &want(prompt, output)) {
            ReserveOutcome::Granted {
                max_output_tokens, ..
            } => Ok(max_output_tokens),
            ReserveOutcome::Wait => Err(true),
            ReserveOutcome::Exceeded(mark) => {
                assert_eq!(
                    (mark.dimension, mark.used),
                    (BudgetDimension::Tokens, used.to_string())
                );
                Err(false)
            }
        };
        assert_eq!(
            got, granted,
            "limit {limit}, used {used}, reserved {reserved_by_others}, wants {prompt} + {output}"
        );
    }
}

#[test]
fn cost_limit_shortens_answer() {
    let mut ledger = Ledger::default();
    let budget = |text: &str| Budget {
        usd: Some(text.parse().unwrap()),
        ..Budget::default()
    };
    ledger.open(&run(0), None, budget("0.001"));
    // 100 tokens of prompt cost 0.0001, so the rest pays for 450 tokens of answer at 2 per million.
    let ReserveOutcome::Granted {
        reserved,
        max_output_tokens,
        short_of,
        ..
    } = ledger.reserve(&run(0), &want(100, 4_096))
    else {
        panic!()
    };
    assert_eq!(
        (max_output_tokens, reserved.usd.to_string().as_str()),
        (450, "0.001")
    );
    assert_eq!(short_of.unwrap().dimension, BudgetDimension::Usd);
    ledger.release(&run(0), reserved);
    ledger.report(
        &run(0),
        Consumed {
            usd: "0.00095".parse().unwrap(),
            ..Consumed::default()
        },
    );
    let ReserveOutcome::Exceeded(mark) = ledger.reserve(&run(0), &want(100, 4_096)) else {
        panic!()
    };
    assert_eq!(
        (mark.used.as_str(), mark.limit.as_str()),
        ("0.00095", "0.001")
    );
    assert_eq!(
        ledger.nearly_exhausted(&run(0))[0].dimension,
        BudgetDimension::Usd
    );
    // A limit of zero starts no call, not even of a free model.
    let mut none = Ledger::default();
    none.open(&run(0), None, budget("0"));
    let free = ReserveRequest {
        prices: Some(Prices::default()),
        ..want(1, 0)
    };
    assert!(matches!(
        none.reserve(&run(0), &free),
        ReserveOutcome::Exceeded(_)
    ));
}

#[test]
fn tool_calls_and_children_count_for_tree_and_child_share() {
    let mut ledger = Ledger::default();
    let budget = |calls, children| Budget {
        tool_calls: Some(calls),
        children: Some(children),
        ..Budget::default()
    };
    ledger.open(&run(0), None, budget(3, 5));
    ledger.open(&run(1), Some(&run(0)), budget(1, 9));
    assert!(ledger.count_tool_call(&run(1)).is_ok());
    assert_eq!(
        ledger.count_tool_call(&run(1)).unwrap_err().limit,
        "1",
        "its own share"
    );
    assert!(ledger.count_tool_call(&run(0)).is_ok() && ledger.count_tool_call(&run(0)).is_ok());
    assert_eq!(
        ledger.count_tool_call(&run(0)).unwrap_err().limit,
        "3",
        "the tree's"
    );
    assert!(ledger.count_children(&run(1), 6).is_err(), "all or none");
    assert!(ledger.count_children(&run(1), 5).is_ok());
    assert!(ledger.count_children(&run(0), 1).is_err());
    // A repeated report changes nothing.
    let before = ledger.used(&run(0));
    ledger.report(
        &run(1),
        Consumed {
            tool_calls: 1,
            children: 5,
            ..Consumed::default()
        },
    );
    assert_eq!(ledger.used(&run(0)), before);
}

/// One step of a run of the tree.
#[derive(Debug, Clone)]
enum Step {
    Call {
        run: usize,
        prompt: u64,
        output: u64,
    },
    /// The call ends and has used this share of its reservation, in thousandths.
    Settle {
        run: usize,
        permille: u64,
    },
    /// The run crashes during its call. Its use is unknown, so the whole reservation is counted.
    Crash {
        run: usize,
    },
    Tool {
        run: usize,
    },
    Children {
        run: usize,
        count: u64,
    },
    /// A new incarnation or process reports the total of the run again.
    Restore {
        run: usize,
    },
}

const RUNS: usize = 12;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        (0..RUNS, 0..6_u8, 1..2_000_u64, 0..1_000_u64).prop_map(|(run, kind, prompt, other)| {
            match kind {
                0 | 1 => Step::Call {
                    run,
                    prompt,
                    output: other,
                },
                2 => Step::Settle {
                    run,
                    permille: other + 1,
                },
                3 if other % 4 == 0 => Step::Crash { run },
                3 => Step::Restore { run },
                4 => Step::Tool { run },
                _ => Step::Children {
                    run,
                    count: other % 4,
                },
            }
        });
    prop::collection::vec(step, 0..120)
}

fn limits() -> impl Strategy<Value = Vec<Option<(u64, u64, u64)>>> {
    let limit = prop::option::weighted(0.4, (0..30_000_u64, 0..20_u64, 0..20_u64));
    prop::collection::vec(limit, RUNS)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 2_000 } else { 10_000 }))]

    /// Random trees, with sums that are recomputed: no limit is exceeded as long as every call
    /// stays within its reservation, and the sums are exact to the token, also after crashes.
    #[test]
    fn no_limit_is_exceeded_and_sums_are_exact_for_any_tree(
        limits in limits(), parents in prop::collection::vec(any::<prop::sample::Index>(), RUNS), steps in steps(),
    ) {
        let mut ledger = Ledger::default();
        let parent = |n: usize| (n > 0).then(|| parents[n].index(n));
        for (n, limit) in limits.iter().enumerate() {
            let budget = limit.map_or(Budget::default(), |(tokens, calls, children)| Budget {
                tokens: Some(tokens), model_calls: Some(calls), tool_calls: Some(calls), children: Some(children),
                ..Budget::default()
            });
            ledger.open(&run(n), parent(n).map(run).as_ref(), budget);
        }
        let mut own = vec![Consumed::default(); RUNS];
        let mut calls: Vec<Option<(Consumed, u64)>> = vec![None; RUNS];
        for step in steps {
            match step {
                Step::Call { run: n, prompt, output } if calls[n].is_none() => {
                    if let ReserveOutcome::Granted { reserved, max_output_tokens, .. } = ledger.reserve(&run(n), &want(prompt, output)) {
                        prop_assert!(max_output_tokens <= output);
                        calls[n] = Some((reserved, prompt));
                    }
                }
                Step::Settle { run: n, permille } if calls[n].is_some() => {
                    let (reserved, prompt) = calls[n].take().unwrap();
                    own[n].tokens += prompt + (reserved.tokens - prompt) * permille / 1_000;
                    own[n].model_calls += 1;
                    ledger.report(&run(n), own[n]);
                    ledger.release(&run(n), reserved);
                }
                Step::Crash { run: n } if calls[n].is_some() => {
                    let (reserved, _) = calls[n].take().unwrap();
                    ledger.mark_lost(&run(n), reserved);
                    prop_assert_eq!(ledger.lost_reservation(&run(n)), reserved);
                    own[n].tokens += reserved.tokens;
                    own[n].model_calls += 1;
                    ledger.report(&run(n), own[n]);
                }
                Step::Tool { run: n } => own[n].tool_calls += u64::from(ledger.count_tool_call(&run(n)).is_ok()),
                Step::Children { run: n, count } => {
                    own[n].children += if ledger.count_children(&run(n), count).is_ok() { count } else { 0 };
                }
                Step::Restore { run: n } => ledger.report(&run(n), own[n]),
                _ => {}
            }
            for (n, limit) in limits.iter().enumerate() {
                let is_below = |other: usize| std::iter::successors(Some(other), |one| parent(*one)).any(|one| one == n);
                let sum = (0..RUNS).filter(|other| is_below(*other)).fold(Consumed::default(), |sum, other| sum.plus(own[other]));
                let used = ledger.used(&run(n));
                prop_assert_eq!((used.tokens, used.model_calls, used.tool_calls, used.children),
                                (sum.tokens, sum.model_calls, sum.tool_calls, sum.children));
                if let Some((tokens, calls, children)) = *limit {
                    prop_assert!(used.tokens <= tokens && used.model_calls <= calls);
                    prop_assert!(used.tool_calls <= calls && used.children <= children);
                }
            }
        }
        // Nothing stays reserved once no call is running.
        for (n, call) in calls.iter().enumerate() {
            if let Some((reserved, _)) = call { ledger.release(&run(n), *reserved) }
        }
        prop_assert!(ledger.accounts.values().all(|account| account.reserved == Consumed::default()));
    }
}
