//! Permissions and their decisions (PERM-1).

use soong_protocol::{
    AccessRequest, ChainLink, Decision, Permission, PermissionDecision, PermissionId,
    PermissionStatus, PermissionWrite, RunEvent, RunStatus, Scope, SessionWrite, TraceId, Write,
};

use super::world::{TestStore, at, completed, event, run_id, session_id, started};
use crate::store::{PermissionFilter, StoreError};

/// A permission requested by a run; the run, its trace and its session have the same name.
pub(super) fn permission_request(id: &str, name: &str, second: i64) -> Permission {
    Permission {
        permission_id: PermissionId::new(id),
        run_id: run_id(name),
        trace_id: TraceId::new(name),
        session_id: session_id(name),
        tool_call_id: "c".into(),
        tool: "write".into(),
        arguments: r#"{"path": "x"}"#.into(),
        fingerprint: "f".into(),
        demand: AccessRequest {
            scope: Scope::Directory { path: "/p".into() },
            ..AccessRequest::whole_tool("/p/x")
        },
        diff: Some("+x".into()),
        chain: vec![ChainLink {
            run_id: run_id(name),
            trace_id: TraceId::new(name),
            agent_type: "default".into(),
            task: "t".into(),
        }],
        status: PermissionStatus::Pending,
        decision: None,
        by: None,
        reason: None,
        created_at: at(second),
        decided_at: None,
    }
}

fn ask(id: &str, second: i64) -> Write {
    Write::Permission(PermissionWrite::Request(Box::new(permission_request(
        id, "a", second,
    ))))
}

fn decide(id: &str, decision: Decision) -> Write {
    let permission_id = PermissionId::new(id);
    let by = "api".to_owned();
    Write::Permission(PermissionWrite::Decision(PermissionDecision {
        permission_id,
        decision,
        decided_by: by,
        reason: Some("so".into()),
        at: at(9),
    }))
}

fn pending(world: &TestStore) -> Vec<String> {
    let filter = PermissionFilter {
        status: Some(PermissionStatus::Pending),
        ..PermissionFilter::default()
    };
    world
        .reader
        .permissions(&filter)
        .unwrap()
        .into_iter()
        .map(|one| one.permission_id.to_string())
        .collect()
}

fn read(world: &TestStore, id: &str) -> Permission {
    world
        .reader
        .permission(&PermissionId::new(id))
        .unwrap()
        .unwrap()
}

pub(super) fn permission_is_decided_once_or_withdrawn_with_its_run(mut world: TestStore) {
    world.start_run("a");
    world.write(vec![
        event("a", Some("a"), 1, started()),
        ask("p1", 2),
        ask("p2", 3),
        ask("p3", 4),
    ]);
    world.write(vec![event(
        "a",
        Some("a"),
        4,
        RunEvent::Waiting {
            r#for: "permission".into(),
        },
    )]);
    assert_eq!(
        world.reader.run(&run_id("a")).unwrap().unwrap().status,
        RunStatus::Waiting
    );
    assert_eq!(pending(&world), ["p1", "p2", "p3"]);
    assert_eq!(read(&world, "p2"), permission_request("p2", "a", 3));
    // Requesting it again changes nothing, because a run that is resumed after a crash may do so.
    world.write(vec![decide("p1", Decision::AllowForSession), ask("p1", 5)]);
    let allowed = read(&world, "p1");
    assert_eq!(
        (allowed.status, allowed.decision),
        (PermissionStatus::Allowed, Some(Decision::AllowForSession))
    );
    assert_eq!(
        (allowed.by.as_deref(), allowed.reason.as_deref()),
        (Some("api"), Some("so"))
    );
    assert_eq!(
        (allowed.created_at, allowed.decided_at),
        (at(2), Some(at(9)))
    );
    for writes in [
        vec![decide("p1", Decision::Deny)],
        vec![
            decide("p2", Decision::Deny),
            decide("p2", Decision::AllowOnce),
        ],
    ] {
        assert!(matches!(
            world.write_rejected(writes),
            StoreError::AlreadyDecided(_)
        ));
    }
    assert!(matches!(
        world.write_rejected(vec![decide("nobody", Decision::Deny)]),
        StoreError::NotFound(_)
    ));
    assert_eq!(
        pending(&world),
        ["p2", "p3"],
        "what was refused wrote nothing"
    );
    world.write(vec![decide("p2", Decision::Deny)]);
    assert_eq!(read(&world, "p2").status, PermissionStatus::Denied);
    world.write(vec![event("a", Some("a"), 7, completed("done"))]);
    assert_eq!(
        (pending(&world), read(&world, "p3").status),
        (vec![], PermissionStatus::Withdrawn)
    );
    assert!(matches!(
        world.write_rejected(vec![decide("p3", Decision::AllowOnce)]),
        StoreError::AlreadyDecided(_)
    ));
    let of = |world: &TestStore, filter: PermissionFilter| {
        world.reader.permissions(&filter).unwrap().len()
    };
    assert_eq!(
        of(
            &world,
            PermissionFilter {
                session_id: Some(session_id("b")),
                ..PermissionFilter::default()
            }
        ),
        0
    );
    assert_eq!(
        of(
            &world,
            PermissionFilter {
                run_id: Some(run_id("a")),
                ..PermissionFilter::default()
            }
        ),
        3
    );
    world.write(vec![Write::Session(SessionWrite::BeginRemoval(
        session_id("a"),
    ))]);
    let left = world.reader.permission(&PermissionId::new("p1")).unwrap();
    assert_eq!((of(&world, PermissionFilter::default()), left), (0, None));
}
