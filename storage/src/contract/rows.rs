//! Rows of runs, traces and sessions that are derived from events; lists.

use soong_protocol::{
    EndReason, ErrorCode, ErrorInfo, PermissionEvent, PermissionMode, Reflection, RunEvent,
    RunMode, RunStatus, RunWrite, TraceStatus, Usd, Write,
};

use super::world::{
    TestStore, answered, at, cancelled, child_run, completed, event, new_run, new_run_record,
    new_session, new_trace, open_run, queued, run_id, session_id, started, stats_with_duration,
    sub_trace, trace_id, turn_started,
};
use crate::store::{SessionFilter, StoreError, TraceFilter};

pub(super) fn run_row_follows_its_events(mut world: TestStore) {
    world.start_run("a");
    assert_eq!(
        world.run("a"),
        new_run_record("a", "a", "a", None),
        "a new run is as it was given"
    );

    world.write(vec![
        event("a", Some("a"), 5, queued()),
        event("a", Some("a"), 6, started()),
    ]);
    let run = world.run("a");
    assert_eq!(
        (run.status, run.started_at, run.turn),
        (RunStatus::Running, Some(at(6)), 0)
    );

    for attempt in [1, 2, 1] {
        world.write(vec![event("a", Some("a"), 7, turn_started(attempt))]);
    }
    world.write(vec![event("a", Some("a"), 8, answered(100, 20, Some(7)))]);
    world.write(vec![event("a", Some("a"), 8, answered(50, 10, Some(3)))]);
    let run = world.run("a");
    assert_eq!(run.turn, 2, "a second try is no new turn");
    assert_eq!(
        (
            run.usage.prompt_tokens,
            run.usage.completion_tokens,
            run.usage.total_tokens
        ),
        (150, 30, 180)
    );
    assert_eq!(
        (
            run.usage.cached_tokens,
            run.usage.cache_write_tokens,
            run.cost
        ),
        (2, 6, Some(Usd::from_nanos(10)))
    );

    // A run that is resumed after a restart keeps its first start time.
    world.write(vec![open_run("a"), event("a", Some("a"), 9, started())]);
    assert_eq!(world.run("a").started_at, Some(at(6)));

    let error = ErrorInfo::new(ErrorCode::ProviderError, "no answer");
    let failed = RunEvent::Failed {
        error: error.clone(),
        end_reason: EndReason::MaxTurns,
        stats: stats_with_duration(1_234),
    };
    world.write(vec![event("a", Some("a"), 10, failed)]);
    let run = world.run("a");
    assert_eq!(
        (run.status, run.end_reason, run.error),
        (RunStatus::Failed, Some(EndReason::MaxTurns), Some(error))
    );
    assert_eq!(
        (run.completed_at, run.usage.duration_ms),
        (Some(at(10)), 1_234)
    );
    assert_eq!(run.usage.prompt_tokens, 150, "the sums are the store's own");
}

pub(super) fn run_row_has_its_current_permission_mode(mut world: TestStore) {
    world.start_run("a");
    world.write(vec![event("a", Some("a"), 1, started())]);
    let mode_of = |world: &TestStore| world.run("a").settings.permissions.mode;
    assert_eq!(mode_of(&world), None);
    for mode in PermissionMode::ALL {
        world.write(vec![event(
            "a",
            Some("a"),
            2,
            PermissionEvent::ModeChanged { mode },
        )]);
        assert_eq!(mode_of(&world), Some(mode));
    }
    world.write(vec![event("a", Some("a"), 3, completed("the answer"))]);
    world.write(vec![event(
        "a",
        Some("a"),
        4,
        PermissionEvent::ModeChanged {
            mode: PermissionMode::Plan,
        },
    )]);
    assert_eq!(
        mode_of(&world),
        PermissionMode::ALL.last().copied(),
        "an ended run does not change"
    );
}

pub(super) fn trace_row_follows_its_runs(mut world: TestStore) {
    world.start_run("a");
    let trace = world.trace("a");
    assert_eq!(
        (trace.status, trace.run_mode, trace.model.as_str()),
        (TraceStatus::Running, RunMode::Normal, "m0")
    );
    assert_eq!(
        (trace.total_cost, trace.name.as_str()),
        (Some(Usd::default()), "trace a")
    );

    world.write(vec![
        event("a", Some("a"), 1, started()),
        event("a", Some("a"), 2, answered(9, 1, Some(4))),
    ]);
    let trace = world.trace("a");
    assert_eq!(
        (trace.run_mode, trace.agent_type.as_str()),
        (RunMode::Orchestrator, "orchestrator")
    );
    assert_eq!(trace.model, "m1");

    world.write(vec![event("a", Some("a"), 3, completed("the answer"))]);
    let trace = world.trace("a");
    assert_eq!(
        (trace.status, trace.end_reason),
        (TraceStatus::Completed, Some(EndReason::Completed))
    );
    assert_eq!(
        (trace.result_summary.as_deref(), trace.completed_at),
        (Some("the answer"), Some(at(3)))
    );
    assert_eq!(
        (trace.total_tokens, trace.total_cost),
        (10, Some(Usd::from_nanos(4)))
    );
    assert_eq!(trace.total_duration_ms, 1_500);

    world.write(vec![new_run("again", "a", "a"), open_run("again")]);
    let trace = world.trace("a");
    assert_eq!(
        (trace.status, trace.end_reason, trace.completed_at),
        (TraceStatus::Running, None, None)
    );
    let error = ErrorInfo::new(ErrorCode::ProviderError, "no answer");
    let failed = RunEvent::Failed {
        error,
        end_reason: EndReason::Failed,
        stats: stats_with_duration(500),
    };
    world.write(vec![
        event("a", Some("again"), 4, answered(5, 5, Some(1))),
        event("a", Some("again"), 5, failed),
    ]);
    let trace = world.trace("a");
    assert_eq!(
        (trace.status, trace.error_message.as_deref()),
        (TraceStatus::Failed, Some("no answer"))
    );
    assert_eq!(trace.result_summary, None);
    assert_eq!(
        (trace.total_tokens, trace.total_duration_ms),
        (20, 2_000),
        "all its runs together"
    );
    assert_eq!(
        world.run("again").usage.total_tokens,
        10,
        "each run by itself"
    );
}

pub(super) fn trace_has_settings_of_its_last_run(mut world: TestStore) {
    world.start_run("a");
    let trace = world.trace("a");
    assert_eq!(
        (
            trace.tools,
            trace.llm_params.len(),
            trace.prompt_name.as_deref()
        ),
        (None, 0, Some("default"))
    );

    let mut run = new_run_record("again", "a", "a", None);
    run.settings.options.tools = Some(vec!["read".into()]);
    run.settings.system_prompt = Some("Be brief.".into());
    run.settings.temperature = Some(0.5);
    run.settings.llm_params.insert("seed".into(), 7.into());
    let mut reflection = new_run_record("reflection", "a", "a", None);
    reflection.settings.reflects = Some(Reflection { focus: None });
    world.write(vec![
        Write::Run(RunWrite::Create(Box::new(run))),
        Write::Run(RunWrite::Create(Box::new(reflection))),
    ]);
    let trace = world.trace("a");
    assert_eq!(
        (trace.tools.as_deref(), trace.prompt_name),
        (Some(&["read".to_owned()][..]), None)
    );
    assert_eq!(
        serde_json::to_value(trace.llm_params).unwrap(),
        serde_json::json!({"seed": 7, "temperature": 0.5})
    );
}

pub(super) fn one_unknown_price_makes_costs_unknown(mut world: TestStore) {
    world.start_run("a");
    for cost in [Some(1), None, Some(1)] {
        world.write(vec![event("a", Some("a"), 1, answered(1, 1, cost))]);
    }
    assert_eq!(
        (world.run("a").cost, world.trace("a").total_cost),
        (None, None)
    );
    assert_eq!(world.run("a").usage.total_tokens, 6);
}

pub(super) fn ended_run_is_not_changed_by_later_events(mut world: TestStore) {
    world.start_run("a");
    world.write(vec![
        event("a", Some("a"), 1, started()),
        event("a", Some("a"), 2, cancelled(EndReason::AbortedTools)),
    ]);
    world.write(vec![
        event("a", Some("a"), 3, started()),
        event("a", Some("a"), 4, completed("late")),
    ]);
    let run = world.run("a");
    let trace = world.trace("a");
    assert_eq!(
        (run.status, run.end_reason),
        (RunStatus::Cancelled, Some(EndReason::AbortedTools))
    );
    assert_eq!(
        (trace.status, trace.result_summary),
        (TraceStatus::Stopped, None)
    );
    assert_eq!(
        (run.completed_at, trace.completed_at),
        (Some(at(2)), Some(at(2)))
    );
    assert_eq!(
        world.events("a").len(),
        4,
        "the timeline keeps what was said"
    );
}

pub(super) fn trace_is_running_while_any_of_its_runs_is(mut world: TestStore) {
    world.start_run("a");
    world.write(vec![event("a", Some("a"), 1, started())]);
    for name in ["second", "third"] {
        world.write(vec![
            new_run(name, "a", "a"),
            open_run(name),
            event("a", Some(name), 2, queued()),
        ]);
    }
    let gone = RunEvent::Cancelled {
        queued: true,
        end_reason: EndReason::Cancelled,
        stats: stats_with_duration(0),
    };
    world.write(vec![event("a", Some("second"), 3, gone.clone())]);
    assert_eq!(
        (world.trace("a").status, world.trace("a").end_reason),
        (TraceStatus::Running, None)
    );
    world.write(vec![event("a", Some("a"), 4, completed("done"))]);
    assert_eq!(
        (world.trace("a").status, world.trace("a").completed_at),
        (TraceStatus::Running, None)
    );
    world.write(vec![event("a", Some("third"), 5, gone)]);
    let trace = world.trace("a");
    assert_eq!(
        (trace.status, trace.completed_at),
        (TraceStatus::Stopped, Some(at(5)))
    );
}

pub(super) fn session_counts_live_runs_and_tracks_its_last_event(mut world: TestStore) {
    world.start_run("a");
    world.start_run("b");
    world.write(vec![
        sub_trace("a@1", "a", Some("a"), None),
        child_run("c", "a@1", "a", "a"),
    ]);
    let session = world.reader.session(&session_id("a")).unwrap().unwrap();
    assert_eq!(
        (
            session.live_runs,
            session.updated_at,
            session.last_session_seq
        ),
        (2, at(0), 0)
    );
    assert_eq!(
        (session.name.as_deref(), session.project_dir.as_str()),
        (Some("session a"), "project")
    );
    world.write(vec![event("a@1", Some("c"), 9, completed("done"))]);
    let session = world.reader.session(&session_id("a")).unwrap().unwrap();
    assert_eq!(
        (
            session.live_runs,
            session.updated_at,
            session.last_session_seq
        ),
        (1, at(9), 1)
    );
    assert!(world.reader.session(&session_id("c")).unwrap().is_none());
}

pub(super) fn lists_are_paged_newest_first_and_filtered(mut world: TestStore) {
    for name in ["s1", "s2", "s3", "s4", "s5"] {
        world.write(vec![
            new_session(name),
            new_trace(name, name),
            new_run(name, name, name),
        ]);
    }
    world.write(vec![
        sub_trace("s2@1", "s2", Some("s2"), None),
        child_run("c", "s2@1", "s2", "s2"),
    ]);
    world.write(vec![
        event("s4", Some("s4"), 1, started()),
        event("s4", Some("s4"), 2, completed("done")),
    ]);

    let mut seen = Vec::new();
    let mut cursor = None;
    let mut pages = 0;
    loop {
        let page = world
            .reader
            .sessions(&SessionFilter::default(), 2, cursor.as_deref())
            .unwrap();
        seen.extend(
            page.items
                .into_iter()
                .map(|session| session.session_id.to_string()),
        );
        pages += 1;
        // Records that are added between two pages do not shift the pages.
        world.write(vec![new_session(&format!("new{pages}"))]);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((seen.join(" "), pages), ("s5 s4 s3 s2 s1".to_owned(), 3));
    assert!(matches!(
        world
            .reader
            .sessions(&SessionFilter::default(), 2, Some("no cursor")),
        Err(StoreError::InvalidCursor(_))
    ));

    let ids = |filter: TraceFilter| -> Vec<String> {
        let page = world.reader.traces(&filter, 100, None).unwrap();
        assert!(page.next_cursor.is_none());
        page.items
            .into_iter()
            .map(|trace| trace.trace_id.to_string())
            .collect()
    };
    let any = TraceFilter::default;
    assert_eq!(ids(any()), ["s2@1", "s5", "s4", "s3", "s2", "s1"]);
    assert_eq!(
        ids(TraceFilter {
            status: Some(TraceStatus::Completed),
            ..any()
        }),
        ["s4"]
    );
    assert_eq!(
        ids(TraceFilter {
            run_mode: Some(RunMode::Orchestrator),
            ..any()
        }),
        ["s4"]
    );
    assert_eq!(
        ids(TraceFilter {
            agent_type: Some("orchestrator".into()),
            ..any()
        }),
        ["s4"]
    );
    assert_eq!(
        ids(TraceFilter {
            session_id: Some(session_id("s2")),
            ..any()
        }),
        ["s2@1", "s2"]
    );
    assert_eq!(
        ids(TraceFilter {
            parent_trace_id: Some(trace_id("s2")),
            ..any()
        }),
        ["s2@1"]
    );
    let live_filter = TraceFilter {
        is_live: true,
        ..any()
    };
    let running: Vec<String> = ids(TraceFilter {
        status: Some(TraceStatus::Running),
        ..any()
    });
    assert_eq!(
        ids(live_filter),
        running,
        "here every trace that runs has a run"
    );
    let both = TraceFilter {
        session_id: Some(session_id("s2")),
        status: Some(TraceStatus::Failed),
        ..any()
    };
    assert!(ids(both).is_empty());
    let page = world.reader.traces(&any(), 4, None).unwrap();
    let rest = world
        .reader
        .traces(&any(), 4, page.next_cursor.as_deref())
        .unwrap();
    assert_eq!(
        (page.items.len(), rest.items.len(), rest.next_cursor),
        (4, 2, None)
    );
}

pub(super) fn runs_are_found_by_trace_parent_and_status(mut world: TestStore) {
    world.start_run("a");
    world.start_run("b");
    for number in 1..=3 {
        let trace = format!("a@{number}");
        let run = format!("c{number}");
        world.write(vec![
            sub_trace(&trace, "a", Some("a"), None),
            child_run(&run, &trace, "a", "a"),
        ]);
    }
    world.write(vec![event("a@2", Some("c2"), 1, completed("done"))]);
    let names = |runs: Vec<soong_protocol::Run>| -> Vec<String> {
        runs.into_iter().map(|run| run.run_id.to_string()).collect()
    };
    assert_eq!(
        names(world.reader.children(&run_id("a")).unwrap()),
        ["c1", "c2", "c3"]
    );
    assert_eq!(
        names(world.reader.live_runs(None).unwrap()),
        ["a", "b", "c1", "c3"]
    );
    assert_eq!(
        names(world.reader.live_runs(Some(&session_id("a"))).unwrap()),
        ["a", "c1", "c3"]
    );
    assert_eq!(world.run("c1").parent_run_id, Some(run_id("a")));
    let subs: Vec<_> = world
        .reader
        .sub_traces(&trace_id("a"))
        .unwrap()
        .into_iter()
        .map(|trace| trace.trace_id)
        .collect();
    assert_eq!(subs, [trace_id("a@1"), trace_id("a@2"), trace_id("a@3")]);

    world.write(vec![new_run("a2", "a", "a")]);
    assert_eq!(
        world
            .reader
            .last_run(&trace_id("a"))
            .unwrap()
            .unwrap()
            .run_id,
        run_id("a2")
    );
    assert!(
        world
            .reader
            .last_run(&trace_id("nowhere"))
            .unwrap()
            .is_none()
    );
    assert!(
        world
            .reader
            .last_started_run(&trace_id("a"))
            .unwrap()
            .is_none()
    );
    for (run, second, last_begun) in [("a", 5, "a"), ("a2", 6, "a2")] {
        world.write(vec![
            event("a", Some(run), second, started()),
            event("a", Some(run), second, completed("done")),
        ]);
        assert_eq!(
            world
                .reader
                .last_started_run(&trace_id("a"))
                .unwrap()
                .unwrap()
                .run_id,
            run_id(last_begun)
        );
    }
    world.write(vec![
        new_run("a3", "a", "a"),
        event("a", Some("a3"), 7, queued()),
    ]);
    assert_eq!(
        world
            .reader
            .last_run(&trace_id("a"))
            .unwrap()
            .unwrap()
            .run_id,
        run_id("a3")
    );
    assert_eq!(
        world
            .reader
            .last_started_run(&trace_id("a"))
            .unwrap()
            .unwrap()
            .run_id,
        run_id("a2"),
        "a3 waits"
    );
    assert!(
        world
            .reader
            .last_started_run(&trace_id("nowhere"))
            .unwrap()
            .is_none()
    );
}
