//! Deletion of sessions: hidden immediately, deleted in pieces, complete again if the deletion is
//! cancelled (DUR-8, SES-4).

use soong_protocol::{
    ArtifactScope, ArtifactWrite, ChildMode, ChildResult, Collaborator, CollaboratorKind,
    CollaboratorStatus, QuestionId, Role, RunStatus, RunWrite, SessionWrite, SubAgentEvent,
    UpdateType, UsageBy, UsageReport, Write,
};

use super::{
    artifacts::{edit, flush, splice, version},
    world::{
        TestStore, add_message, artifact_id, at, child_run, completed, event, message, new_run,
        new_session, new_trace, open_run, queued, run_id, session_id, started, stats_with_duration,
        sub_trace, system_message, trace_id,
    },
};
use crate::store::{
    Append, DeletionStage, Fence, MessagePath, Reader, SessionDeletion, SessionFilter, StoreError,
    TraceFilter, UsageFilter,
};

fn in_session(id: &str) -> ArtifactScope {
    ArtifactScope::Session {
        session_id: session_id(id),
    }
}

fn of_user() -> ArtifactScope {
    ArtifactScope::User {
        uid: "local".into(),
    }
}

fn begin_deletion(id: &str) -> Write {
    Write::Session(SessionWrite::BeginRemoval(session_id(id)))
}

fn cancel_deletion(id: &str) -> Write {
    Write::Session(SessionWrite::EndRemoval(session_id(id)))
}

fn delete_rows(id: &str, limit: u64) -> Write {
    Write::Session(SessionWrite::RemoveRows {
        session_id: session_id(id),
        limit,
    })
}

/// Writes one record of every kind to session `a`, and an artifact of the user that its run has
/// made; all its runs have ended. Session `b` has a live run.
fn fill(world: &mut TestStore) {
    world.start_run("a");
    world.start_run("b");
    let collaborator = Collaborator {
        name: "helper".into(),
        kind: CollaboratorKind::Agent,
        trace_id: Some(trace_id("a@1")),
        status: CollaboratorStatus::Running,
        summary: "helps".into(),
    };
    let result = ChildResult {
        mode: ChildMode::Explore,
        sub_trace_id: trace_id("a@1"),
        run_id: run_id("c"),
        status: RunStatus::Completed,
        summary: "found".into(),
        findings: Vec::new(),
        passed: None,
        artifacts: Vec::new(),
        stats: stats_with_duration(3),
        error: None,
    };
    let question_asked = SubAgentEvent::QuestionAsked {
        question_id: QuestionId::new("q"),
        question: "?".into(),
        to: None,
        tool_call_id: "c".into(),
    };
    world.write(vec![
        event("a", Some("a"), 1, started()),
        add_message(system_message("a")),
        event(
            "a",
            Some("a"),
            1,
            SubAgentEvent::CollaboratorUpdated { collaborator },
        ),
        sub_trace("a@1", "a", Some("a"), None),
        child_run("c", "a@1", "a", "a"),
        add_message(system_message("a@1")),
        event("a", Some("a"), 2, question_asked),
        event("a@1", Some("c"), 2, completed("found")),
        Write::Run(RunWrite::ChildResult(Box::new(result))),
        edit(1, "c1", UpdateType::Create, splice(0, 0, "one old two")),
        edit(2, "c2", UpdateType::Update, splice(4, 3, "new")),
        flush(1),
        version("x", &in_session("a"), "report", 1),
        version("x", &in_session("a"), "report", 2),
        version("u", &of_user(), "notes", 1),
        version("y", &in_session("b"), "report", 1),
    ]);
    world.write(vec![
        event("b", Some("b"), 3, queued()),
        add_message(system_message("b")),
    ]);
    world.write(vec![event("a", Some("a"), 4, completed("done"))]);
}

/// Returns how many records of session `a` each call returns.
fn counts_of_a(reader: &dyn Reader) -> Vec<(&'static str, usize)> {
    let session = session_id("a");
    let trace = trace_id("a");
    let run = run_id("a");
    let filter = TraceFilter {
        session_id: Some(session.clone()),
        ..TraceFilter::default()
    };
    let runs = |by| {
        UsageReport::from_rows(reader.usage(by, &UsageFilter::default()).unwrap())
            .total
            .runs as usize
    };
    vec![
        (
            "session",
            reader.session(&session).unwrap().into_iter().count(),
        ),
        (
            "sessions",
            reader
                .sessions(&SessionFilter::default(), 9, None)
                .unwrap()
                .items
                .iter()
                .filter(|one| one.session_id == session)
                .count(),
        ),
        ("trace", reader.trace(&trace).unwrap().into_iter().count()),
        (
            "traces",
            reader.traces(&filter, 9, None).unwrap().items.len(),
        ),
        ("sub-traces", reader.sub_traces(&trace).unwrap().len()),
        (
            "goals",
            reader.goal_tree(&trace).unwrap().into_iter().count(),
        ),
        (
            "messages",
            reader.messages(&trace, MessagePath::All).unwrap().len(),
        ),
        (
            "messages at",
            reader.messages_at(&trace, &[1]).unwrap().len(),
        ),
        ("events", reader.events(&trace, 0, 99).unwrap().len()),
        ("run events", reader.run_events(&run).unwrap().len()),
        (
            "session events",
            reader.session_events(&session, 0, 99).unwrap().len(),
        ),
        (
            "session lsn",
            usize::from(reader.session_lsn(&session, 1).unwrap() > 0),
        ),
        ("run", reader.run(&run).unwrap().into_iter().count()),
        (
            "last run",
            reader.last_run(&trace).unwrap().into_iter().count(),
        ),
        ("children", reader.children(&run).unwrap().len()),
        ("child results", reader.child_results(&run).unwrap().len()),
        (
            "artifacts",
            reader.artifacts(&in_session("a")).unwrap().len(),
        ),
        (
            "all artifacts",
            reader.session_artifacts().unwrap().len() - 1,
        ),
        (
            "artifact",
            reader
                .artifact(&in_session("a"), "report")
                .unwrap()
                .into_iter()
                .count(),
        ),
        ("unflushed", reader.unflushed_documents(&run).unwrap().len()),
        (
            "edits",
            reader.edits(&artifact_id("d"), 0, 9).unwrap().len(),
        ),
        ("turn's edits", reader.turn_edits(&run, 2).unwrap().len()),
        (
            "versions",
            reader.versions(&artifact_id("x")).unwrap().len(),
        ),
        (
            "blob",
            reader
                .blob_path(&artifact_id("x"), 1)
                .unwrap()
                .into_iter()
                .count(),
        ),
        ("blobs", reader.blob_paths(&artifact_id("x")).unwrap().len()),
        (
            "task journal",
            reader
                .pending_task_journal(&run)
                .unwrap()
                .into_iter()
                .count(),
        ),
        (
            "task journals",
            reader.runs_with_pending_task_journal().unwrap().len(),
        ),
        ("runs of a day", runs(UsageBy::Day)),
        ("runs of a model", runs(UsageBy::Model)),
        ("runs of a session", runs(UsageBy::Session)),
    ]
}

/// Returns all other records, for comparison.
fn other_records(reader: &dyn Reader) -> String {
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?}",
        reader.session(&session_id("b")).unwrap(),
        reader.live_runs(None).unwrap(),
        reader.messages(&trace_id("b"), MessagePath::All).unwrap(),
        reader.artifacts(&in_session("b")).unwrap(),
        reader.artifacts(&of_user()).unwrap(),
        reader.versions(&artifact_id("u")).unwrap(),
    )
}

fn removals(world: &TestStore) -> Vec<(String, DeletionStage)> {
    let all = world.reader.session_deletions().unwrap();
    all.into_iter()
        .map(|SessionDeletion { session_id, stage }| (session_id.to_string(), stage))
        .collect()
}

pub(super) fn session_being_deleted_is_invisible_and_read_only(mut world: TestStore) {
    fill(&mut world);
    let before = (
        counts_of_a(world.reader.as_ref()),
        other_records(world.reader.as_ref()),
    );
    assert!(
        before.0.iter().all(|(_, count)| *count > 0),
        "{:?}",
        before.0
    );
    // In the same batch as a write that brings the session's rows into the cache.
    let marked = world.batch(vec![
        vec![event("a", Some("a"), 5, queued())],
        vec![begin_deletion("a")],
        vec![begin_deletion("a")],
    ]);
    assert!(
        marked.iter().all(Result::is_ok),
        "marking twice is fine: {marked:?}"
    );
    assert!(
        counts_of_a(world.reader.as_ref())
            .iter()
            .all(|(_, count)| *count == 0),
        "{:?}",
        counts_of_a(world.reader.as_ref())
    );
    assert_eq!(other_records(world.reader.as_ref()), before.1);
    assert_eq!(removals(&world), [("a".to_owned(), DeletionStage::Files)]);
    assert_eq!(
        world
            .reader
            .deletion_blob_paths(&session_id("a"))
            .unwrap()
            .len(),
        3
    );
    assert!(
        world
            .reader
            .deletion_blob_paths(&session_id("b"))
            .unwrap()
            .is_empty()
    );
    for (what, write) in [
        ("trace", new_trace("a2", "a")),
        ("sub-trace", sub_trace("a@2", "a", Some("a"), None)),
        ("run", new_run("r", "a", "a")),
        ("epoch", open_run("a")),
        ("message", add_message(message("a", 9, None, Role::User))),
        ("event", event("a", None, 6, queued())),
        ("version", version("z", &in_session("a"), "new", 1)),
        ("next version", version("x", &in_session("a"), "report", 3)),
        ("flush", flush(2)),
        (
            "deletion",
            Write::Artifact(ArtifactWrite::Deleted {
                artifact_id: artifact_id("x"),
                at: at(7),
            }),
        ),
    ] {
        let refused = world.write_rejected(vec![write]);
        assert!(
            matches!(refused, StoreError::NotFound(_)),
            "{what}: {refused}"
        );
    }
    let late = Append {
        fence: Some(Fence {
            run_id: run_id("a"),
            epoch: 1,
            number: 7,
            active_ms: None,
        }),
        writes: vec![event("b", None, 6, queued())],
    };
    let late = world.store.commit(&[late]).unwrap().remove(0);
    assert!(
        matches!(late, Err(StoreError::NotFound(_))),
        "an incarnation that is late: {late:?}"
    );
    assert_eq!(
        world.write_rejected(vec![new_session("a")]),
        StoreError::SessionDeleting(session_id("a"))
    );
    assert!(matches!(
        world.write_rejected(vec![begin_deletion("none")]),
        StoreError::NotFound(_)
    ));
}

pub(super) fn session_with_live_run_is_not_deleted(mut world: TestStore) {
    fill(&mut world);
    assert_eq!(
        world.write_rejected(vec![begin_deletion("b")]),
        StoreError::SessionActive(session_id("b"))
    );
    assert!(
        matches!(
            world.write_rejected(vec![delete_rows("b", 9)]),
            StoreError::NotFound(_)
        ),
        "nothing goes without a mark"
    );
    assert!(removals(&world).is_empty());
    // A run that ends in the same batch counts as ended, and a run that is accepted in it counts as
    // live.
    let ended = world.batch(vec![
        vec![event("b", Some("b"), 5, completed("x"))],
        vec![begin_deletion("b")],
    ]);
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    let accepted = world.batch(vec![
        vec![new_run("r", "a", "a")],
        vec![begin_deletion("a")],
    ]);
    assert_eq!(accepted[1], Err(StoreError::SessionActive(session_id("a"))));
}

pub(super) fn cancelled_deletion_restores_session(mut world: TestStore) {
    fill(&mut world);
    let before = counts_of_a(world.reader.as_ref());
    assert!(
        matches!(
            world.write_rejected(vec![cancel_deletion("a")]),
            StoreError::NotFound(_)
        ),
        "it was not going"
    );
    world.write(vec![begin_deletion("a")]);
    world.write(vec![cancel_deletion("a")]);
    assert_eq!(counts_of_a(world.reader.as_ref()), before);
    assert!(removals(&world).is_empty());
    world.write(vec![
        new_run("again", "a", "a"),
        event("a", Some("again"), 6, completed("x")),
    ]);
    assert_eq!(world.run("again").status, RunStatus::Completed);
}

pub(super) fn rows_are_deleted_in_pieces(mut world: TestStore) {
    fill(&mut world);
    world.write(vec![add_message(message("b", 2, Some(1), Role::User))]);
    let other_records_before = other_records(world.reader.as_ref());
    // Events with different times, each in its own row.
    world.write(
        (0..40)
            .map(|second| event("a", None, second, queued()))
            .collect(),
    );
    let last_lsn = world.events("a").last().unwrap().lsn;
    let last_seq = world
        .reader
        .session(&session_id("a"))
        .unwrap()
        .unwrap()
        .last_session_seq;
    world.write(vec![begin_deletion("a")]);
    let mut pieces = 0;
    while !removals(&world).is_empty() {
        world.write(vec![delete_rows("a", 7)]);
        pieces += 1;
        assert!(
            counts_of_a(world.reader.as_ref())
                .iter()
                .all(|(_, count)| *count == 0),
            "after {pieces} pieces"
        );
        if pieces == 1 {
            assert_eq!(removals(&world), [("a".to_owned(), DeletionStage::Rows)]);
            assert!(
                matches!(
                    world.write_rejected(vec![cancel_deletion("a")]),
                    StoreError::NotFound(_)
                ),
                "there is no way back"
            );
            assert_eq!(
                world.write_rejected(vec![new_session("a")]),
                StoreError::SessionDeleting(session_id("a"))
            );
        }
        assert!(pieces < 100);
    }
    assert!(
        pieces > 8,
        "40 events and the rest are more than {pieces} pieces of 7 rows"
    );
    assert!(
        matches!(
            world.write_rejected(vec![delete_rows("a", 7)]),
            StoreError::NotFound(_)
        ),
        "it is gone"
    );
    assert_eq!(other_records(world.reader.as_ref()), other_records_before);

    // The id is free again, and the new session has no records of the old one.
    let base = last_seq + 1;
    world.start_again("a", 2);
    let session = world.reader.session(&session_id("a")).unwrap().unwrap();
    assert_eq!((session.last_session_seq, session.live_runs), (base, 1));
    assert!(
        world.reader.artifacts(&in_session("a")).unwrap().is_empty()
            && world.events("a").is_empty()
    );
    let ack = world.write(vec![event("a", Some("a"), 9, queued())]);
    assert!(
        ack.events[0].lsn > last_lsn,
        "an lsn is given out once: {} after {last_lsn}",
        ack.events[0].lsn
    );
    assert_eq!(
        (ack.events[0].event_id, ack.events[0].run_seq),
        (base + 1, 1)
    );
    assert!(
        matches!(
            world.write_rejected(vec![delete_rows("a", 7)]),
            StoreError::NotFound(_)
        ),
        "a late piece of the old one"
    );
}

/// Deletes a session with all its rows.
fn delete(world: &mut TestStore, id: &str) {
    world.write(vec![begin_deletion(id)]);
    while !removals(world).is_empty() {
        world.write(vec![delete_rows(id, 1_000)]);
    }
}

/// A session whose id was used before counts its events on, in all its traces, and knows its
/// incarnation.
pub(super) fn session_with_a_used_id_counts_on(mut world: TestStore) {
    assert_eq!(world.reader.next_incarnation(&session_id("a")).unwrap(), 1);
    world.start_run("a");
    world.write(
        (0..5)
            .map(|second| event("a", None, second, queued()))
            .collect(),
    );
    world.write(vec![event("a", Some("a"), 8, completed("done"))]);
    let last = world
        .reader
        .session(&session_id("a"))
        .unwrap()
        .unwrap()
        .last_session_seq;
    delete(&mut world, "a");
    assert_eq!(world.reader.next_incarnation(&session_id("a")).unwrap(), 2);

    world.start_again("a", 2);
    world.write(vec![sub_trace("a@1", "a", Some("a"), None)]);
    let base = last + 1;
    let session = world.reader.session(&session_id("a")).unwrap().unwrap();
    assert_eq!(
        (
            session.incarnation,
            session.first_session_seq,
            session.last_session_seq
        ),
        (2, base + 1, base)
    );
    for trace in ["a", "a@1"] {
        let trace = world.trace(trace);
        assert_eq!(
            (trace.first_event_id, trace.last_event_id),
            (base + 1, base),
            "{}",
            trace.trace_id
        );
    }
    assert_eq!(world.run("a").session_incarnation, 2);
    // Events of another session between those of this one.
    world.start_run("b");
    for second in 0..6 {
        world.write(vec![event("b", None, second, queued())]);
        world.write(vec![event(
            if second % 2 == 0 { "a" } else { "a@1" },
            None,
            second,
            queued(),
        )]);
    }
    let end = base + 6;
    for seen in 0..=end + 1 {
        let lsn = world.reader.session_lsn(&session_id("a"), seen).unwrap();
        let next = world
            .reader
            .session_events(&session_id("a"), lsn, 1)
            .unwrap();
        let wanted = (seen < end).then_some(seen.max(base) + 1);
        assert_eq!(
            next.first().map(|record| record.session_seq),
            wanted,
            "after {seen} of {base} to {end}"
        );
    }
    world.write(vec![event("a", Some("a"), 8, completed("done"))]);
    delete(&mut world, "a");
    assert_eq!(world.reader.next_incarnation(&session_id("a")).unwrap(), 3);
    world.write(vec![new_session("a")]);
    assert_eq!(
        world
            .reader
            .session(&session_id("a"))
            .unwrap()
            .unwrap()
            .incarnation,
        3
    );
}

/// An append that was prepared for a deleted session is not written to the next one with its id.
pub(super) fn append_for_a_deleted_session_is_rejected(mut world: TestStore) {
    world.start_run("a");
    world.write(vec![event("a", Some("a"), 8, completed("done"))]);
    delete(&mut world, "a");
    world.start_again("a", 2);
    let deleted = StoreError::SessionDeleting(session_id("a"));
    assert_eq!(
        world.write_rejected(vec![new_run("late", "a", "a")]),
        deleted
    );
    let require = |incarnation| {
        Write::Session(SessionWrite::Require {
            session_id: session_id("a"),
            incarnation,
        })
    };
    assert_eq!(
        world.write_rejected(vec![require(1), event("a", None, 9, queued())]),
        deleted
    );
    assert!(world.events("a").is_empty());
    world.write(vec![require(2), event("a", None, 9, queued())]);
    assert_eq!(world.events("a").len(), 1);
}

/// Fills a store and deletes session `a` from it, so that a test can inspect the tables.
#[cfg(test)]
pub(crate) fn delete_one_of_two_sessions(
    store: Box<dyn crate::store::Store>,
    reader: Box<dyn Reader>,
) {
    let mut world = TestStore::new(store, reader);
    fill(&mut world);
    world.write(vec![begin_deletion("a")]);
    while !removals(&world).is_empty() {
        world.write(vec![delete_rows("a", 5)]);
    }
}
