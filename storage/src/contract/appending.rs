//! Cursors, fences and rejections.

use soong_protocol::{Event, RunEvent, RunStatus, SubAgentEvent, TraceWrite, Write};

use super::world::{
    TestStore, add_message, answered, child_run, completed, event, message, new_run, new_session,
    new_trace, open_run, queued, run_id, session_id, started, stats_with_duration, sub_trace,
    trace_id, turn_started,
};
use crate::store::{Append, StoreError};

pub(super) fn cursors_have_no_gaps_per_trace_run_and_session(mut world: TestStore) {
    world.start_run("a");
    world.start_run("b");
    world.write(vec![
        sub_trace("a@1", "a", Some("a"), None),
        child_run("child", "a@1", "a", "a"),
    ]);
    let mut acknowledged = Vec::new();
    for round in 0..5 {
        let acks = world.batch(vec![
            vec![
                event("a", Some("a"), round, turn_started(1)),
                event("a", None, round, queued()),
            ],
            vec![event("b", Some("b"), round, turn_started(1))],
            vec![
                event("a@1", Some("child"), round, turn_started(1)),
                event("a", Some("a"), round, turn_started(2)),
            ],
        ]);
        acknowledged.extend(acks.into_iter().flat_map(|ack| ack.unwrap().events));
    }
    let lsns: Vec<u64> = acknowledged.iter().map(|ids| ids.lsn).collect();
    assert!(
        lsns.is_sorted_by(|a, b| a < b),
        "an lsn grows over the whole store: {lsns:?}"
    );

    for (trace, count) in [("a", 15), ("a@1", 5), ("b", 5)] {
        let ids: Vec<u64> = world
            .events(trace)
            .iter()
            .map(|event| event.event_id)
            .collect();
        assert_eq!(ids, (1..=count).collect::<Vec<_>>(), "event ids of {trace}");
        assert_eq!(world.trace(trace).last_event_id, count);
    }
    for (run, count) in [("a", 10), ("child", 5), ("b", 5)] {
        let events = world.reader.run_events(&run_id(run)).unwrap();
        let positions: Vec<u64> = events.iter().filter_map(|event| event.run_seq).collect();
        assert_eq!(
            positions,
            (1..=count).collect::<Vec<_>>(),
            "run_seq of {run}"
        );
    }
    let events = world
        .reader
        .session_events(&session_id("a"), 0, usize::MAX)
        .unwrap();
    assert_eq!(
        events
            .iter()
            .map(|event| event.session_seq)
            .collect::<Vec<_>>(),
        (1..=20).collect::<Vec<_>>()
    );
    assert_eq!(
        world
            .reader
            .session(&session_id("a"))
            .unwrap()
            .unwrap()
            .last_session_seq,
        20
    );

    let mut read: Vec<_> = events
        .iter()
        .map(|event| (event.lsn, event.event_id, event.run_seq.unwrap_or(0)))
        .collect();
    read.extend(
        world
            .events("b")
            .iter()
            .map(|event| (event.lsn, event.event_id, event.run_seq.unwrap_or(0))),
    );
    read.sort_unstable();
    let acknowledged_ids: Vec<_> = acknowledged
        .iter()
        .map(|ids| (ids.lsn, ids.event_id, ids.run_seq))
        .collect();
    assert_eq!(
        read, acknowledged_ids,
        "what was acknowledged is what is read"
    );

    let page = world.reader.events(&trace_id("a"), 4, 3).unwrap();
    assert_eq!(
        page.iter().map(|event| event.event_id).collect::<Vec<_>>(),
        [5, 6, 7]
    );
    let after = events[6].lsn;
    let page = world
        .reader
        .session_events(&session_id("a"), after, 2)
        .unwrap();
    assert_eq!(
        page.iter()
            .map(|event| event.session_seq)
            .collect::<Vec<_>>(),
        [8, 9]
    );
    let end = world
        .reader
        .session_events(&session_id("a"), u64::MAX, 2)
        .unwrap();
    assert!(end.is_empty());
}

pub(super) fn session_events_are_found_by_session_seq(mut world: TestStore) {
    world.start_run("a");
    world.start_run("b");
    world.start_run("silent");
    world.write(vec![
        sub_trace("a@1", "a", Some("a"), None),
        child_run("child", "a@1", "a", "a"),
        open_run("child"),
    ]);
    // Alone, alternating, and with many events of the other session in between.
    let blocks = [
        ("a", 9),
        ("b", 1),
        ("a@1", 1),
        ("b", 40),
        ("a", 2),
        ("b", 1),
        ("a@1", 3),
        ("b", 15),
        ("a", 1),
    ];
    for (trace, count) in blocks.into_iter().chain([("b", 30), ("a", 20), ("b", 70)]) {
        let events = (0..count)
            .map(|second| event(trace, None, second, queued()))
            .collect();
        world.write(events);
    }
    for (session, last) in [("a", 36_u64), ("b", 157), ("silent", 0)] {
        let id = session_id(session);
        for seen in (0..=last + 2).chain([u64::MAX]) {
            let lsn = world.reader.session_lsn(&id, seen).unwrap();
            let next = world.reader.session_events(&id, lsn, 1).unwrap();
            let next: Vec<u64> = next.iter().map(|event| event.session_seq).collect();
            let want: Vec<u64> = if seen < last {
                vec![seen + 1]
            } else {
                Vec::new()
            };
            assert_eq!(next, want, "after {seen} of {session}");
        }
    }
    assert_eq!(
        world.reader.session_lsn(&session_id("nowhere"), 7).unwrap(),
        0
    );
}

pub(super) fn event_on_another_timeline_counts_for_its_run(mut world: TestStore) {
    world.start_run("p");
    world.write(vec![
        sub_trace("p@1", "p", Some("p"), None),
        child_run("c", "p@1", "p", "p"),
        open_run("c"),
    ]);
    world
        .fenced("p", 1, 1, vec![event("p", Some("p"), 1, started())])
        .unwrap();
    let ended = SubAgentEvent::Completed {
        sub_trace_id: trace_id("p@1"),
        run_id: run_id("c"),
        status: RunStatus::Completed,
        summary: "found".into(),
        stats: stats_with_duration(1),
        artifacts: Vec::new(),
    };
    let ack = world
        .fenced(
            "c",
            1,
            1,
            vec![
                event("p@1", Some("c"), 2, completed("found")),
                event("p", Some("p"), 2, ended),
            ],
        )
        .unwrap();
    let positions: Vec<_> = ack
        .events
        .iter()
        .map(|ids| (ids.event_id, ids.run_seq, ids.session_seq))
        .collect();
    assert_eq!(positions, [(1, 1, 2), (2, 2, 3)]);
    let kinds: Vec<_> = world
        .reader
        .run_events(&run_id("p"))
        .unwrap()
        .iter()
        .map(|event| event.event.kind().to_owned())
        .collect();
    assert_eq!(kinds, ["loop_started", "sub_trace_completed"]);
    assert_eq!(
        world.run("p").status,
        RunStatus::Running,
        "a child's end is not its parent's"
    );
}

pub(super) fn stale_incarnation_is_rejected(mut world: TestStore) {
    world.start_run("a");
    world
        .fenced("a", 1, 1, vec![event("a", Some("a"), 1, started())])
        .unwrap();
    assert_eq!(world.write(vec![open_run("a")]).epoch, Some(2));
    for epoch in [0, 1, 3] {
        let late = world.fenced(
            "a",
            epoch,
            2,
            vec![event("a", Some("a"), 2, completed("late"))],
        );
        assert_eq!(
            late,
            Err(StoreError::StaleIncarnation(run_id("a"))),
            "epoch {epoch}"
        );
    }
    assert_eq!(
        (world.events("a").len(), world.run("a").status),
        (1, RunStatus::Running)
    );
    world
        .fenced("a", 2, 1, vec![event("a", Some("a"), 3, completed("done"))])
        .unwrap();
    assert_eq!(world.run("a").status, RunStatus::Completed);
    // A run is still known after its end.
    let late = world.fenced("a", 1, 2, vec![event("a", Some("a"), 4, started())]);
    assert_eq!(late, Err(StoreError::StaleIncarnation(run_id("a"))));
}

pub(super) fn repeated_append_is_acknowledged_and_not_applied_again(mut world: TestStore) {
    world.start_run("a");
    let step = || vec![event("a", Some("a"), 1, answered(10, 5, Some(1)))];
    assert_eq!(world.fenced("a", 1, 1, step()).unwrap().events.len(), 1);
    assert!(world.fenced("a", 1, 1, step()).unwrap().events.is_empty());
    world.fenced("a", 1, 2, step()).unwrap();
    assert!(
        world.fenced("a", 1, 1, step()).unwrap().events.is_empty(),
        "an older one is recorded too"
    );
    assert_eq!(
        (world.events("a").len(), world.run("a").usage.prompt_tokens),
        (2, 20)
    );

    let fence = |number| {
        Some(crate::store::Fence {
            run_id: run_id("a"),
            epoch: 1,
            number,
            active_ms: None,
        })
    };
    let twice: Vec<Append> = (0..2)
        .map(|_| Append {
            fence: fence(3),
            writes: step(),
        })
        .collect();
    let acks = world.store.commit(&twice).unwrap();
    assert_eq!(
        acks.iter()
            .map(|ack| ack.as_ref().unwrap().events.len())
            .collect::<Vec<_>>(),
        [1, 0]
    );

    // A rejected append is not recorded, so its number is still free.
    let refused = world.fenced("a", 1, 4, vec![new_session("a")]);
    assert!(matches!(refused, Err(StoreError::AlreadyExists(_))));
    assert_eq!(world.fenced("a", 1, 4, step()).unwrap().events.len(), 1);
}

pub(super) fn run_can_be_created_opened_and_started_in_one_append(mut world: TestStore) {
    let ack = world.write(vec![
        new_session("a"),
        new_trace("a", "a"),
        new_run("a", "a", "a"),
        open_run("a"),
        event("a", Some("a"), 1, started()),
    ]);
    assert_eq!(
        (ack.epoch, ack.events.len(), ack.events[0].run_seq),
        (Some(1), 1, 1)
    );
    assert_eq!(world.run("a").status, RunStatus::Running);
    world
        .fenced("a", 1, 1, vec![event("a", Some("a"), 2, completed("done"))])
        .unwrap();
}

pub(super) fn rejected_append_writes_nothing_and_affects_no_other(mut world: TestStore) {
    world.start_run("a");
    let outcomes = world.batch(vec![
        vec![event("a", Some("a"), 1, started())],
        // The valid writes come first; none of them may be kept.
        vec![
            new_session("x"),
            event("a", Some("a"), 2, turn_started(1)),
            new_session("a"),
        ],
        vec![
            add_message(message("a", 1, None, soong_protocol::Role::User)),
            event("a", None, 3, queued()),
        ],
    ]);
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    assert_eq!(
        outcomes[1],
        Err(StoreError::AlreadyExists("session a".into()))
    );
    assert!(world.reader.session(&session_id("x")).unwrap().is_none());
    assert_eq!(world.run("a").turn, 0);
    let ids: Vec<u64> = world
        .events("a")
        .iter()
        .map(|event| event.event_id)
        .collect();
    assert_eq!(ids, [1, 2], "a refused event leaves no gap");
}

pub(super) fn missing_references_are_rejected(mut world: TestStore) {
    world.start_run("a");
    let cases: Vec<(Vec<Write>, &str)> = vec![
        (vec![new_trace("t", "nowhere")], "session nowhere"),
        (
            vec![sub_trace("t", "a", Some("nowhere"), None)],
            "trace nowhere",
        ),
        (vec![new_run("r", "nowhere", "a")], "trace nowhere"),
        (vec![child_run("r", "a", "a", "nobody")], "run nobody"),
        (vec![open_run("nobody")], "run nobody"),
        (
            vec![add_message(message(
                "nowhere",
                1,
                None,
                soong_protocol::Role::User,
            ))],
            "trace nowhere",
        ),
        (
            vec![add_message(message(
                "a",
                1,
                Some(1),
                soong_protocol::Role::User,
            ))],
            "message a-0001",
        ),
        (vec![event("nowhere", None, 1, queued())], "trace nowhere"),
        (vec![event("a", Some("nobody"), 1, queued())], "run nobody"),
    ];
    for (writes, what) in cases {
        assert_eq!(
            world.write_rejected(writes),
            StoreError::NotFound(what.into())
        );
    }
    assert_eq!(
        world.fenced("nobody", 1, 1, Vec::new()),
        Err(StoreError::NotFound("run nobody".into()))
    );
    let duplicates: Vec<(Vec<Write>, &str)> = vec![
        (vec![new_trace("a", "a")], "trace a"),
        (vec![new_run("a", "a", "a")], "run a"),
        (
            vec![new_run("r", "a", "a"), new_run("r", "a", "a")],
            "run r",
        ),
        (vec![new_session("s"), new_session("s")], "session s"),
    ];
    let late = new_trace("a", "a");
    let Write::Trace(TraceWrite::Create(late)) = late else {
        unreachable!("it makes a trace")
    };
    assert_eq!(
        world.write_rejected(vec![Write::Trace(TraceWrite::FirstTask(late))]),
        StoreError::AlreadyExists("a run of trace a".into())
    );
    for (writes, what) in duplicates {
        assert_eq!(
            world.write_rejected(writes),
            StoreError::AlreadyExists(what.into())
        );
    }
    assert!(world.reader.run(&run_id("r")).unwrap().is_none());
    assert!(
        world
            .reader
            .goal_tree(&trace_id("nowhere"))
            .unwrap()
            .is_none()
    );
    assert!(
        world
            .reader
            .run_events(&run_id("nobody"))
            .unwrap()
            .is_empty()
    );
}

pub(super) fn append_sees_earlier_appends_of_the_batch(mut world: TestStore) {
    let outcomes = world.batch(vec![
        vec![new_session("a")],
        vec![new_trace("a", "a")],
        vec![new_trace("a", "a")],
        vec![new_run("a", "a", "a"), open_run("a")],
        vec![open_run("a")],
        vec![event("a", Some("a"), 1, RunEvent::CancelRequested {})],
    ]);
    assert_eq!(
        outcomes[2],
        Err(StoreError::AlreadyExists("trace a".into()))
    );
    assert_eq!(outcomes[4].as_ref().unwrap().epoch, Some(2));
    let events = world.events("a");
    assert!(matches!(
        events[0].event,
        Event::Run(RunEvent::CancelRequested {})
    ));
    assert_eq!(
        (events[0].run_id.clone(), events[0].data.as_str()),
        (Some(run_id("a")), "{}")
    );
}
