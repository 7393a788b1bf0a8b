//! Cleanup of sessions: selects old sessions, and reports the outcome of each.
//!
//! Pure. Elsewhere: deleting one session (`deletion.rs`), deleting all selected ones
//! (`runtime/sessions.rs`).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use soong_protocol::{ErrorInfo, Session, SessionId, Timestamp};

/// Selection of sessions to clean up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCleanup {
    /// Minimum time since the last activity of a session. Only older sessions are selected.
    pub older_than: Duration,
    /// Whether sessions are only listed, not deleted.
    pub dry_run: bool,
}

/// A session that could not be deleted. The cleanup continued with the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCleanupFailure {
    /// Id of the session.
    pub session_id: SessionId,
    /// The reason.
    pub error: ErrorInfo,
}

/// Report of a cleanup of sessions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SessionCleanupReport {
    /// Whether nothing was deleted because it was a dry run.
    pub dry_run: bool,
    /// Selected sessions, least recently active first. A session that became active after the
    /// selection is kept.
    pub candidates: Vec<Session>,
    /// Sessions that are old enough but kept, because they have running or waiting runs.
    pub busy: Vec<SessionId>,
    /// Deleted sessions.
    pub deleted: Vec<SessionId>,
    /// Sessions that could not be deleted.
    pub failed: Vec<SessionCleanupFailure>,
}

impl SessionCleanup {
    /// Selects the sessions to delete. Deletes nothing.
    pub fn choose(
        &self,
        sessions: impl IntoIterator<Item = Session>,
        now: Timestamp,
    ) -> SessionCleanupReport {
        let is_old = |session: &Session| {
            u128::from(now.millis_since(session.updated_at)) > self.older_than.as_millis()
        };
        let mut old: Vec<Session> = sessions.into_iter().filter(is_old).collect();
        old.sort_by(|one, other| {
            (one.updated_at, &one.session_id).cmp(&(other.updated_at, &other.session_id))
        });
        let (busy, candidates): (Vec<Session>, _) =
            old.into_iter().partition(|session| session.live_runs > 0);
        let busy = busy.into_iter().map(|session| session.session_id).collect();
        SessionCleanupReport {
            dry_run: self.dry_run,
            candidates,
            busy,
            ..SessionCleanupReport::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_sessions_are_candidates_unless_active() {
        let session = |id: &str, minute: i64, live_runs: u64| Session {
            session_id: SessionId::new(id),
            kind: soong_protocol::SessionKind::default(),
            slug: None,
            name: None,
            uid: "local".into(),
            project_dir: "p".into(),
            incarnation: 1,
            first_session_seq: 1,
            last_session_seq: 1,
            live_runs,
            created_at: Timestamp::default(),
            updated_at: Timestamp::from_millis(minute * 60_000),
            last_run_at: None,
        };
        let all = [
            session("new", 10, 0),
            session("b", 2, 0),
            session("a", 2, 0),
            session("old", 1, 0),
            session("busy", 0, 2),
        ];
        let now = Timestamp::from_millis(10 * 60_000);
        for (minutes, want, busy) in [
            (0, vec!["old", "a", "b"], vec!["busy"]),
            (7, vec!["old", "a", "b"], vec!["busy"]),
            (8, vec!["old"], vec!["busy"]),
            (9, vec![], vec!["busy"]),
            (10, vec![], vec![]),
        ] {
            let request = SessionCleanup {
                older_than: Duration::from_secs(minutes * 60),
                dry_run: true,
            };
            let report = request.choose(all.clone(), now);
            let ids: Vec<&str> = report
                .candidates
                .iter()
                .map(|session| session.session_id.as_str())
                .collect();
            assert_eq!(ids, want, "{minutes}");
            assert_eq!(
                report
                    .busy
                    .iter()
                    .map(SessionId::as_str)
                    .collect::<Vec<_>>(),
                busy,
                "{minutes}"
            );
        }
    }
}
