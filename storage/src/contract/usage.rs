//! Usage of runs, summed by day, model and session.

use soong_protocol::{
    RunEvent, RunMode, RunWrite, SessionWrite, UsageBy, UsageReport, UsageRow, Write,
};

use super::world::{
    TestStore, answered, at, child_run, completed, event, new_run, run_id, session_id, started,
    sub_trace,
};
use crate::store::UsageFilter;

fn format_rows(rows: &[UsageRow]) -> Vec<String> {
    let one = |row: &UsageRow| {
        let sum = &row.sum;
        format!(
            "{}: {} runs, {}+{} tokens, {} cached, {} written, {} (≥ {}, {} without)",
            row.of.as_str(),
            sum.runs,
            sum.prompt_tokens,
            sum.completion_tokens,
            sum.cached_tokens,
            sum.cache_write_tokens,
            sum.cost
                .map_or_else(|| "?".to_owned(), |cost| cost.as_nanos().to_string()),
            sum.known_cost.as_nanos(),
            sum.runs_without_price,
        )
    };
    rows.iter().map(one).collect()
}

fn loop_started_with(model: &str) -> RunEvent {
    RunEvent::LoopStarted {
        mode: RunMode::Normal,
        agent_type: "default".into(),
        model: model.into(),
    }
}

pub(super) fn sums_saturate(mut world: TestStore) {
    for name in ["a", "b"] {
        world.start_run(name);
        world.write(vec![
            event(name, Some(name), 0, started()),
            event(name, Some(name), 1, answered(u64::MAX, 10, Some(u64::MAX))),
            event(name, Some(name), 2, answered(u64::MAX, 10, Some(1))),
        ]);
    }
    let most = i64::MAX.cast_unsigned();
    for by in [UsageBy::Day, UsageBy::Model] {
        let rows = world.reader.usage(by, &UsageFilter::default()).unwrap();
        assert_eq!(
            (rows[0].sum.prompt_tokens, rows[0].sum.completion_tokens),
            (most, 40),
            "{by:?}"
        );
    }
    let sessions = UsageReport::from_rows(
        world
            .reader
            .usage(UsageBy::Session, &UsageFilter::default())
            .unwrap(),
    );
    assert_eq!(sessions.total.runs, 2);
    assert!(
        sessions.total.prompt_tokens >= most
            && sessions.total.total_tokens >= sessions.total.prompt_tokens
    );
    // Without the usage that exceeds the limit, the sum is exact again.
    world.start_run("c");
    world.write(vec![
        event("c", Some("c"), 0, started()),
        event("c", Some("c"), 1, answered(70, 10, Some(1))),
        event("c", Some("c"), 2, completed("done")),
    ]);
    for name in ["a", "b"] {
        world.write(vec![event(name, Some(name), 3, completed("done"))]);
        world.write(vec![Write::Session(SessionWrite::BeginRemoval(
            session_id(name),
        ))]);
    }
    let rows = world
        .reader
        .usage(UsageBy::Model, &UsageFilter::default())
        .unwrap();
    assert_eq!(
        (
            rows[0].sum.runs,
            rows[0].sum.prompt_tokens,
            rows[0].sum.completion_tokens
        ),
        (1, 70, 10)
    );
}

pub(super) fn trace_names_the_tools_that_its_last_run_offers(mut world: TestStore) {
    let tools = |world: &TestStore| world.trace("a").tools;
    let offer = |run: &str, tools: &[&str]| {
        let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        Write::Run(RunWrite::OfferedTools {
            run_id: run_id(run),
            tools,
        })
    };
    world.start_run("a");
    assert_eq!(tools(&world), None);
    world.write(vec![offer("a", &["read", "list_files"])]);
    assert_eq!(tools(&world).unwrap(), ["read", "list_files"]);
    world.write(vec![offer("a", &[])]);
    assert_eq!(tools(&world).unwrap(), [""; 0], "none were offered");
    world.write(vec![
        event("a", Some("a"), 1, completed("done")),
        child_run("next", "a", "a", "a"),
    ]);
    world.write(vec![offer("next", &["read"])]);
    assert_eq!(tools(&world).unwrap(), ["read"]);
}

pub(super) fn run_names_the_model_that_it_started_with(mut world: TestStore) {
    world.start_run("a");
    let model_name =
        |world: &TestStore| world.reader.run(&run_id("a")).unwrap().unwrap().model_name;
    assert_eq!(model_name(&world), None);
    world.write(vec![event("a", Some("a"), 0, loop_started_with("m7"))]);
    assert_eq!(model_name(&world).as_deref(), Some("m7"));
    world.write(vec![event("a", Some("a"), 1, loop_started_with("m8"))]);
    assert_eq!(
        model_name(&world).as_deref(),
        Some("m7"),
        "a later start continues the run"
    );
}

pub(super) fn usage_is_summed_once(mut world: TestStore) {
    const DAY: i64 = 86_400;
    world.start_run("a");
    world.start_run("b");
    world.start_run("c");
    world.write(vec![
        event("a", Some("a"), 0, started()),
        event("a", Some("a"), 1, answered(100, 10, Some(7))),
        event("a", Some("a"), 2, answered(50, 5, Some(3))),
    ]);
    // A child on the next day; its usage is counted separately.
    world.write(vec![
        sub_trace("a@1", "a", Some("a"), None),
        child_run("child", "a@1", "a", "a"),
    ]);
    world.write(vec![
        event("a@1", Some("child"), DAY, loop_started_with("m2")),
        event("a@1", Some("child"), DAY, answered(1_000, 1, None)),
        event("a@1", Some("child"), DAY, completed("done")),
        event("a", Some("a"), DAY, completed("done")),
    ]);
    // A run that failed before any answer: a missing price does not matter.
    world.write(vec![event("b", Some("b"), DAY, loop_started_with("m2"))]);
    // A run that never started.
    world.write(vec![new_run("waits", "a", "a")]);
    let usage = |world: &TestStore, by, since| {
        let filter = UsageFilter {
            since,
            ..UsageFilter::default()
        };
        format_rows(&world.reader.usage(by, &filter).unwrap())
    };
    let a = "150+15 tokens, 2 cached, 6 written, 10 (≥ 10, 0 without)";
    let child = "1000+1 tokens, 1 cached, 3 written, ? (≥ 0, 1 without)";
    let zero = "0+0 tokens, 0 cached, 0 written, 0 (≥ 0, 0 without)";
    assert_eq!(
        usage(&world, UsageBy::Day, None),
        [
            format!("2025-11-21: 1 runs, {a}"),
            format!("2025-11-22: 2 runs, {child}")
        ]
    );
    assert_eq!(
        usage(&world, UsageBy::Model, None),
        [format!("m2: 2 runs, {child}"), format!("m1: 1 runs, {a}")]
    );
    let both = "a: 2 runs, 1150+16 tokens, 3 cached, 9 written, ? (≥ 10, 1 without)";
    assert_eq!(
        usage(&world, UsageBy::Session, None),
        [both.to_owned(), format!("b: 1 runs, {zero}")]
    );
    assert_eq!(
        usage(&world, UsageBy::Session, Some(at(DAY))),
        [format!("a: 1 runs, {child}"), format!("b: 1 runs, {zero}")]
    );
    assert_eq!(usage(&world, UsageBy::Day, Some(at(DAY + 1))), [""; 0]);
    let total = UsageReport::from_rows(
        world
            .reader
            .usage(UsageBy::Day, &UsageFilter::default())
            .unwrap(),
    )
    .total;
    assert_eq!(
        (total.runs, total.total_tokens, total.runs_without_price),
        (3, 1_166, 1)
    );

    // A run that is resumed after midnight counts for the day of its start.
    world.write(vec![
        event("b", Some("b"), 2 * DAY, started()),
        event("b", Some("b"), 2 * DAY, completed("late")),
    ]);
    assert_eq!(usage(&world, UsageBy::Day, None).len(), 2);
    world.write(vec![Write::Session(SessionWrite::BeginRemoval(
        super::world::session_id("b"),
    ))]);
    assert_eq!(
        usage(&world, UsageBy::Session, None),
        [both],
        "what is being deleted is not there"
    );
    let day =
        "2025-11-22: 1 runs, 1000+1 tokens, 1 cached, 3 written, ? (≥ 0, 1 without)".to_owned();
    assert_eq!(usage(&world, UsageBy::Day, Some(at(DAY))), [day]);
    world.write(vec![Write::Session(SessionWrite::EndRemoval(
        super::world::session_id("b"),
    ))]);
    assert_eq!(
        usage(&world, UsageBy::Day, Some(at(DAY))),
        [format!("2025-11-22: 2 runs, {child}")]
    );
}

pub(super) fn run_counts_for_model_and_time_of_its_start(mut world: TestStore) {
    const HOUR: i64 = 3_600;
    world.start_run("a");
    world.write(vec![
        event("a", Some("a"), 0, loop_started_with("m1")),
        event("a", Some("a"), 1, answered(100, 10, Some(7))),
        event("a", Some("a"), 2, completed("done")),
    ]);
    // The next message of the conversation uses another model, three hours later.
    world.write(vec![new_run("a2", "a", "a")]);
    world.write(vec![event(
        "a",
        Some("a2"),
        3 * HOUR,
        loop_started_with("m2"),
    )]);
    world.write(vec![event(
        "a",
        Some("a2"),
        3 * HOUR + 1,
        answered(20, 2, None),
    )]);
    let usage = |world: &TestStore, by, since| {
        let filter = UsageFilter {
            since: Some(at(since)),
            ..UsageFilter::default()
        };
        let rows = world.reader.usage(by, &filter).unwrap();
        rows.iter()
            .map(|row| (row.of.as_str().to_owned(), row.sum.total_tokens))
            .collect::<Vec<_>>()
    };
    let m1 = ("m1".to_owned(), 110);
    let m2 = ("m2".to_owned(), 22);
    let m2 = [m2];
    assert_eq!(usage(&world, UsageBy::Model, 0), [m1, m2[0].clone()]);
    for since in [1, 3 * HOUR] {
        assert_eq!(usage(&world, UsageBy::Model, since), m2, "since {since} s");
        assert_eq!(
            usage(&world, UsageBy::Session, since),
            [("a".to_owned(), 22)],
            "since {since} s"
        );
        assert_eq!(
            usage(&world, UsageBy::Day, since),
            [("2025-11-21".to_owned(), 22)],
            "since {since} s"
        );
    }
    assert_eq!(usage(&world, UsageBy::Model, 3 * HOUR + 1), []);
    world.write(vec![event(
        "a",
        Some("a2"),
        3 * HOUR + 2,
        answered(30, 3, Some(1)),
    )]);
    assert_eq!(usage(&world, UsageBy::Model, 1), [("m2".to_owned(), 55)]);
    let total = UsageReport::from_rows(
        world
            .reader
            .usage(UsageBy::Day, &UsageFilter::default())
            .unwrap(),
    )
    .total;
    assert_eq!(
        (
            total.runs,
            total.runs_without_price,
            total.known_cost.as_nanos()
        ),
        (2, 1, 7)
    );
}

/// Returns runs and tokens of the whole report, for each grouping.
fn totals(world: &TestStore) -> [(u64, u64); 3] {
    [UsageBy::Day, UsageBy::Model, UsageBy::Session].map(|by| {
        let total =
            UsageReport::from_rows(world.reader.usage(by, &UsageFilter::default()).unwrap()).total;
        (total.runs, total.total_tokens)
    })
}

pub(super) fn run_started_in_the_batch_of_a_deletion_is_counted(mut world: TestStore) {
    for name in ["a", "b", "c"] {
        world.start_run(name);
    }
    world.write(vec![
        event("a", Some("a"), 0, started()),
        event("a", Some("a"), 1, completed("done")),
    ]);
    let start = |name| vec![event(name, Some(name), 2, started())];
    let remove = |name| vec![Write::Session(SessionWrite::BeginRemoval(session_id(name)))];
    // One removal succeeds, one is rejected because the session has a live run.
    let outcomes = world.batch(vec![start("b"), remove("a"), start("c"), remove("c")]);
    assert_eq!(
        outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, true, true, false]
    );
    for name in ["b", "c"] {
        world.write(vec![event(name, Some(name), 3, answered(100, 10, Some(7)))]);
    }
    assert_eq!(totals(&world), [(2, 220); 3]);
    world.write(vec![event("b", Some("b"), 4, completed("done"))]);
    world.write(remove("b"));
    assert_eq!(totals(&world), [(1, 110); 3]);
}

pub(super) fn usage_of_two_users_is_separate_after_a_deletion(mut world: TestStore) {
    let of = |world: &TestStore, uid: &str| {
        let filter = UsageFilter {
            uid: Some(uid.into()),
            ..UsageFilter::default()
        };
        UsageReport::from_rows(world.reader.usage(UsageBy::Day, &filter).unwrap())
            .total
            .total_tokens
    };
    // The second session gets the database key of the first one.
    for name in ["bob", "a"] {
        world.start_run(name);
        world.write(vec![
            event(name, Some(name), 0, started()),
            event(name, Some(name), 1, answered(100, 10, Some(7))),
            event(name, Some(name), 2, completed("done")),
        ]);
        let uid = if name == "bob" { "bob" } else { "local" };
        assert_eq!(of(&world, uid), 110, "{uid}");
        if name == "bob" {
            world.write(vec![Write::Session(SessionWrite::BeginRemoval(
                session_id(name),
            ))]);
            while !world.reader.session_deletions().unwrap().is_empty() {
                world.write(vec![Write::Session(SessionWrite::RemoveRows {
                    session_id: session_id(name),
                    limit: 100,
                })]);
            }
            assert_eq!(of(&world, uid), 0);
        }
    }
}
