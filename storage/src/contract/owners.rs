//! Ownership of records: lists and sums of a single user.

use soong_protocol::{
    Permission, PermissionWrite, Question, QuestionId, SessionId, SubAgentEvent, UsageBy,
    UsageReport, Write,
};

use super::{
    permissions,
    world::{TestStore, answered, event, session_id, started},
};
use crate::store::{PermissionFilter, QuestionFilter, SessionFilter, TraceFilter, UsageFilter};

/// Lists the sessions of a user in pages of one item, because records of other users must not count
/// for the limit.
fn listed_sessions(world: &TestStore, uid: Option<String>) -> Vec<SessionId> {
    let filter = SessionFilter {
        uid,
        ..SessionFilter::default()
    };
    let mut found = Vec::new();
    let mut cursor = None;
    loop {
        let page = world
            .reader
            .sessions(&filter, 1, cursor.as_deref())
            .unwrap();
        found.extend(page.items.into_iter().map(|session| session.session_id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return found;
        }
    }
}

pub(super) fn lists_and_usage_can_be_filtered_by_user(mut world: TestStore) {
    for (name, tokens) in [("a", 1), ("bob1", 10), ("b", 100), ("bob2", 1_000)] {
        world.start_run(name);
        let question = SubAgentEvent::QuestionAsked {
            question_id: QuestionId::new(format!("q-{name}")),
            question: "?".into(),
            to: None,
            tool_call_id: "c".into(),
        };
        world.write(vec![
            event(name, Some(name), 1, started()),
            event(name, Some(name), 2, answered(tokens, 0, None)),
            event(name, Some(name), 3, question),
            Write::Permission(PermissionWrite::Request(Box::new(
                permissions::permission_request(&format!("p-{name}"), name, 4),
            ))),
        ]);
    }
    for (uid, sessions, tokens) in [
        (None, &["a", "bob1", "b", "bob2"][..], 1_111),
        (Some("local"), &["a", "b"], 101),
        (Some("bob"), &["bob1", "bob2"], 1_010),
        (Some("eve"), &[], 0),
    ] {
        let uid = uid.map(str::to_owned);
        let newest_first = || {
            sessions
                .iter()
                .rev()
                .map(|id| session_id(id))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            listed_sessions(&world, uid.clone()),
            newest_first(),
            "sessions of {uid:?}"
        );
        let filter = TraceFilter {
            uid: uid.clone(),
            ..TraceFilter::default()
        };
        let traces = world.reader.traces(&filter, 100, None).unwrap().items;
        assert_eq!(
            traces
                .into_iter()
                .map(|trace| trace.session_id)
                .collect::<Vec<_>>(),
            newest_first(),
            "traces of {uid:?}"
        );
        let filter = PermissionFilter {
            uid: uid.clone(),
            ..PermissionFilter::default()
        };
        let of = |permission: Permission| permission.session_id.to_string();
        let session_ids: Vec<String> = world
            .reader
            .permissions(&filter)
            .unwrap()
            .into_iter()
            .map(of)
            .collect();
        assert_eq!(session_ids, sessions, "permissions of {uid:?}");
        let filter = QuestionFilter {
            uid: uid.clone(),
            ..QuestionFilter::default()
        };
        let of = |question: Question| question.session_id.to_string();
        let session_ids: Vec<String> = world
            .reader
            .questions(&filter)
            .unwrap()
            .into_iter()
            .map(of)
            .collect();
        assert_eq!(session_ids, sessions, "questions of {uid:?}");
        let filter = UsageFilter {
            uid: uid.clone(),
            ..UsageFilter::default()
        };
        for by in [UsageBy::Day, UsageBy::Model, UsageBy::Session] {
            let total = UsageReport::from_rows(world.reader.usage(by, &filter).unwrap()).total;
            assert_eq!(total.total_tokens, tokens, "usage of {uid:?} by {by:?}");
        }
    }
    let session_ids = ["a", "nobody", "bob1"].map(session_id);
    let owners = world.reader.session_owners(&session_ids).unwrap();
    assert_eq!(
        owners,
        [
            (session_id("a"), "local".to_owned()),
            (session_id("bob1"), "bob".to_owned())
        ]
    );
}
