//! Copies of conversations.

use soong_protocol::{
    Artifact, ArtifactWrite, ChildMode, Covers, GoalTree, Message, MessageEvent, NewArtifactCopy,
    NewFork, NewSession, NewVersion, Role, RunEvent, SessionWrite, SubAgentEvent, TraceStatus,
    Write,
};

use super::{
    artifacts::{artifact, version},
    world::{
        TestStore, add_message, answered, artifact_id, at, child_run, event, goal_id, message,
        new_session, open_run, run_id, session_id, sub_trace, system_message, trace_id,
    },
};
use crate::store::{MessagePath, StoreError};

pub(super) fn fork(id: &str, source: &str, to: u64) -> Write {
    let session = NewSession {
        session_id: session_id(id),
        name: None,
        uid: "local".into(),
        project_dir: "p".into(),
        created_at: at(9),
    };
    Write::Session(SessionWrite::Fork(Box::new(NewFork {
        session,
        trace_id: trace_id(id),
        source_trace: trace_id(source),
        last_message: to,
    })))
}

pub(super) fn fork_event(id: &str, source: &str, to: u64) -> Write {
    let mut goal_tree = GoalTree::new("the mission");
    goal_tree
        .plan_mission_goal("task of a", to, at(9))
        .iter()
        .for_each(|event| goal_tree.apply(event));
    event(
        id,
        None,
        9,
        RunEvent::SessionForked {
            source: trace_id(source),
            at: to,
            goal_tree: Box::new(goal_tree),
            settings: None,
        },
    )
}

fn read(world: &TestStore, id: &str, path: MessagePath) -> Vec<Message> {
    world.reader.messages(&trace_id(id), path).unwrap()
}

fn sequences(world: &TestStore, id: &str, path: MessagePath) -> Vec<u64> {
    read(world, id, path)
        .iter()
        .map(|message| message.sequence)
        .collect()
}

/// Clears the ids of the owner, so that messages of a copy and its source can be compared.
fn without_owner(messages: Vec<Message>) -> Vec<Message> {
    messages
        .into_iter()
        .map(|message| Message {
            trace_id: trace_id("any"),
            ..message
        })
        .collect()
}

/// Writes messages 1 to 7, of which 1 to 3 are replaced by the summary 8, and 4 and 5 are off the
/// path.
fn begin(world: &mut TestStore) {
    world.start_run("a");
    world.write(vec![add_message(system_message("a"))]);
    for sequence in 2..=5 {
        world.write(vec![add_message(message(
            "a",
            sequence,
            Some(sequence - 1),
            Role::User,
        ))]);
    }
    let rewind = MessageEvent::Rewind {
        after_sequence: 3,
        head_sequence: 3,
        from_sequence: 5,
        goal_tree_snapshot: Box::default(),
        goal_tree: Box::new(GoalTree::new("task of a")),
        restored: Vec::new(),
        left: Vec::new(),
        collaborators: None,
    };
    world.write(vec![event("a", Some("a"), 2, rewind)]);
    world.write(vec![add_message(message("a", 6, Some(3), Role::User))]);
    world.write(vec![
        add_message(message("a", 7, Some(6), Role::Assistant)),
        event("a", Some("a"), 2, answered(7, 1, Some(5))),
    ]);
    let covers = Covers {
        first: 1,
        last: 3,
        next: 6,
        system: None,
        request: None,
    };
    world.write(vec![add_message(Message {
        covers: Some(covers),
        ..message("a", 8, None, Role::User)
    })]);
}

pub(super) fn fork_reads_like_its_source_without_usage(mut world: TestStore) {
    begin(&mut world);
    let source = (
        world.trace("a"),
        read(&world, "a", MessagePath::All),
        world.events("a").len(),
    );
    for (id, to, all, path) in [
        ("b", 7, vec![1, 2, 3, 6, 7, 8], vec![8, 6, 7]),
        ("c", 3, vec![1, 2, 3], vec![1, 2, 3]),
        ("d", 5, vec![1, 2, 3, 4, 5], vec![1, 2, 3, 4, 5]),
    ] {
        let ack = world.write(vec![fork(id, "a", to), fork_event(id, "a", to)]);
        assert_eq!((ack.events[0].event_id, ack.events[0].session_seq), (1, 1));
        assert_eq!(sequences(&world, id, MessagePath::All), all);
        assert_eq!(sequences(&world, id, MessagePath::Main), path);
        assert_eq!(
            without_owner(read(&world, id, MessagePath::Main)),
            without_owner(read(&world, "a", MessagePath::To(to)))
        );
        // Also for a message that a summary covers.
        assert_eq!(
            without_owner(read(&world, id, MessagePath::To(2))),
            without_owner(read(&world, "a", MessagePath::To(2)))
        );
        let trace = world.trace(id);
        assert_eq!(
            (trace.head_sequence, trace.last_sequence),
            (to, *all.last().unwrap())
        );
        assert_eq!(
            (trace.total_messages, trace.total_tokens),
            (all.len() as u64, 0)
        );
        assert_eq!(
            (trace.task.as_str(), trace.name.as_str()),
            ("task of a", "trace a")
        );
        let status = if to == 7 {
            TraceStatus::Completed
        } else {
            TraceStatus::Stopped
        };
        assert_eq!(trace.status, status);
        let tree = world.reader.goal_tree(&trace_id(id)).unwrap().unwrap();
        assert_eq!(
            (tree.mission.as_str(), tree.goals.len()),
            ("the mission", 1)
        );
        // All its messages have the lsn of the copy, so nothing in the copy is newer.
        let resume_point = world
            .reader
            .resume_point(&trace_id(id), 2)
            .unwrap()
            .unwrap();
        assert_eq!(
            (resume_point.lsn, resume_point.is_on_path, resume_point.head),
            (ack.events[0].lsn, true, to)
        );
        // The conversation is resumed after the last sequence.
        let next = all.last().unwrap() + 1;
        world.write(vec![add_message(message(id, next, Some(to), Role::User))]);
        assert_eq!(
            *sequences(&world, id, MessagePath::Main).last().unwrap(),
            next
        );
    }
    assert_eq!(
        (
            world.trace("a"),
            read(&world, "a", MessagePath::All),
            world.events("a").len()
        ),
        source
    );
    world.write(vec![fork("e", "b", 9), fork_event("e", "b", 9)]);
    assert_eq!(
        sequences(&world, "e", MessagePath::Main),
        [8, 6, 7, 9],
        "a copy of a copy"
    );
}

pub(super) fn invalid_fork_is_rejected(mut world: TestStore) {
    begin(&mut world);
    world.write(vec![add_message(Message {
        partial: true,
        ..message("a", 9, Some(7), Role::Assistant)
    })]);
    for (id, source, to, want) in [
        ("a", "a", 7, StoreError::AlreadyExists("session a".into())),
        ("b", "no", 7, StoreError::NotFound("trace no".into())),
        ("b", "a", 99, StoreError::NotFound("message a-0099".into())),
        ("b", "a", 8, StoreError::NotFound("message a-0008".into())),
        ("b", "a", 9, StoreError::NotFound("message a-0009".into())),
    ] {
        assert_eq!(
            world.write_rejected(vec![fork(id, source, to), fork_event("b", "a", to)]),
            want,
            "{id} {source} {to}"
        );
    }
    assert!(world.reader.session(&session_id("b")).unwrap().is_none());
    // An append sees the earlier ones of the batch, and the later ones see it.
    let all = world.batch(vec![
        vec![add_message(message("a", 10, Some(7), Role::User))],
        vec![fork("b", "a", 10), fork_event("b", "a", 10)],
        vec![fork("b", "a", 10)],
        vec![add_message(message("b", 11, Some(10), Role::User))],
        vec![fork("c", "b", 11), fork_event("c", "b", 11)],
    ]);
    let refused: Vec<bool> = all.iter().map(Result::is_err).collect();
    assert_eq!(refused, [false, false, true, false, false]);
    assert_eq!(sequences(&world, "c", MessagePath::Main), [8, 6, 7, 10, 11]);
}

fn child_started(id: &str) -> SubAgentEvent {
    SubAgentEvent::Started {
        sub_trace_id: trace_id(id),
        run_id: run_id(id),
        agent_type: "explore".into(),
        mode: ChildMode::Explore,
        parent_goal_id: None,
        tool_call_id: None,
        deliver: false,
        task: "look".into(),
    }
}

pub(super) fn sub_traces_of_the_source_are_linked(mut world: TestStore) {
    world.write(vec![new_session("s"), sub_trace("s", "s", None, None)]);
    world.write(vec![
        super::world::new_run("s", "s", "s"),
        open_run("s"),
        add_message(message("s", 1, None, Role::User)),
    ]);
    let child = |id: &str| {
        vec![
            sub_trace(id, "s", Some("s"), Some("1")),
            child_run(id, id, "s", "s"),
            event("s", Some("s"), 2, child_started(id)),
        ]
    };
    world.write(child("s@1"));
    world.write(vec![event("s@1", Some("s@1"), 2, answered(5, 2, Some(3)))]);
    world.write(vec![
        add_message(message("s", 2, Some(1), Role::Tool)),
        event("s", Some("s"), 2, answered(1, 1, None)),
    ]);
    world.write(child("s@2"));
    world.write(vec![add_message(message("s", 3, Some(2), Role::Assistant))]);
    let linked = |world: &TestStore, id: &str| -> Vec<String> {
        let all = world.reader.linked_traces(&trace_id(id)).unwrap();
        all.iter().map(|trace| trace.trace_id.to_string()).collect()
    };
    for (id, source, to, want) in [
        ("b", "s", 2, vec!["s@1"]),
        ("c", "s", 3, vec!["s@1", "s@2"]),
        ("d", "b", 1, vec!["s@1"]),
    ] {
        world.write(vec![fork(id, source, to), fork_event(id, source, to)]);
        assert_eq!(linked(&world, id), want);
        assert!(
            world.reader.sub_traces(&trace_id(id)).unwrap().is_empty(),
            "they are not its own"
        );
    }
    let tree = world.reader.goal_tree(&trace_id("b")).unwrap().unwrap();
    let mission = tree.get(&goal_id("1")).unwrap();
    assert_eq!(mission.sub_trace_ids, [trace_id("s@1")]);
    assert_eq!(mission.cumulative_stats.unwrap().total_tokens, 7);
    assert!(linked(&world, "s").is_empty());

    for run in ["s@1", "s@2", "s"] {
        world.write(vec![event(
            run,
            Some(run),
            4,
            super::world::completed("done"),
        )]);
    }
    world.write(vec![Write::Session(SessionWrite::BeginRemoval(
        session_id("s"),
    ))]);
    assert!(linked(&world, "c").is_empty(), "they are there for nobody");
    while world
        .reader
        .session_deletions()
        .unwrap()
        .iter()
        .any(|removal| removal.session_id == session_id("s"))
    {
        world.write(vec![Write::Session(SessionWrite::RemoveRows {
            session_id: session_id("s"),
            limit: 3,
        })]);
    }
    assert!(linked(&world, "c").is_empty());
    assert_eq!(
        sequences(&world, "c", MessagePath::Main),
        [1, 2, 3],
        "the copy stays"
    );
    assert!(
        world
            .reader
            .goal_tree(&trace_id("b"))
            .unwrap()
            .unwrap()
            .goals[0]
            .sub_trace_ids
            .is_empty()
    );
}

pub(super) fn copied_artifacts_are_found_by_original_ids(mut world: TestStore) {
    use soong_protocol::ArtifactScope;
    let scope = |id: &str| ArtifactScope::Session {
        session_id: session_id(id),
    };
    begin(&mut world);
    world.write(vec![version("x1", &scope("a"), "plan", 1)]);
    let copy = |id: &str, session: &str, of: &str| {
        let made: Artifact = artifact(id, &scope(session), "plan", 1);
        let version = NewVersion {
            artifact: made,
            update_type: soong_protocol::UpdateType::Create,
            path: format!("sessions/{session}/{id}"),
        };
        Write::Artifact(ArtifactWrite::Copy(Box::new(NewArtifactCopy {
            version,
            source_artifact: artifact_id(of),
        })))
    };
    world.write(vec![
        fork("b", "a", 7),
        copy("x2", "b", "x1"),
        fork_event("b", "a", 7),
    ]);
    world.write(vec![
        fork("c", "b", 7),
        copy("x3", "c", "x2"),
        fork_event("c", "b", 7),
    ]);
    let found = |session: &str, name: &str| {
        let artifact = world.reader.artifact(&scope(session), name).unwrap();
        artifact.map(|artifact| artifact.artifact_id.to_string())
    };
    for (session, name, want) in [
        ("a", "x1", Some("x1")),
        ("b", "x1", Some("x2")),
        ("b", "plan", Some("x2")),
        ("c", "x1", Some("x3")),
        ("c", "x2", Some("x3")),
        ("a", "x2", None),
        ("b", "x3", None),
        ("b", "x", None),
        ("b", "", None),
    ] {
        assert_eq!(found(session, name).as_deref(), want, "{name} in {session}");
    }
    // They have the same lsn as the messages, so a rewind to any message keeps them.
    for sequence in [1, 3, 7] {
        let lsn = world
            .reader
            .resume_point(&trace_id("c"), sequence)
            .unwrap()
            .unwrap()
            .lsn;
        assert!(
            world
                .reader
                .changed_documents(&trace_id("c"), lsn)
                .unwrap()
                .is_empty()
        );
        let then = world.reader.artifacts_at(&session_id("c"), lsn).unwrap();
        assert_eq!(
            then.iter()
                .map(|(artifact, number)| (artifact.name.as_deref(), *number))
                .collect::<Vec<_>>(),
            [(Some("plan"), 1)]
        );
    }
}
