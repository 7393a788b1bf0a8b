//! Cleanup: selects artifacts that may be deleted, each with a reason, and deletes them (ART-13).
//!
//! The selection is a pure function. It selects only artifacts of sessions without an unfinished
//! run. Artifacts of users, memory and project files are never deleted.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use soong_protocol::{
    Artifact, ArtifactScope, BusySession, Candidate, Cleanup, CleanupFailure, CleanupReport,
    ErrorInfo, SessionId, Timestamp,
};
use soong_storage::store::{Reader, StoreError};

use super::{ArtifactReader, ArtifactStore};
use crate::clock::now;

impl ArtifactStore {
    /// Lists the candidates, and deletes them unless the request is a dry run.
    pub(crate) async fn clean_up(&self, request: Cleanup) -> Result<CleanupReport, ErrorInfo> {
        let (candidates, busy) = self.reader.select_candidates(&request).await?;
        let mut report = CleanupReport {
            dry_run: request.dry_run,
            busy,
            ..CleanupReport::default()
        };
        for (artifact, candidate) in candidates {
            let artifact_id = artifact.artifact_id.clone();
            report.candidates.push(candidate);
            if request.dry_run {
                continue;
            }
            // Do not delete an artifact that was changed after the selection.
            let is_unchanged = |now: &Artifact| {
                (now.current_version, now.updated_at)
                    == (artifact.current_version, artifact.updated_at)
            };
            match self.delete_artifact(&artifact, is_unchanged).await {
                Ok(true) => report.deleted.push(artifact_id),
                Ok(false) => {}
                Err(error) => report.failed.push(CleanupFailure { artifact_id, error }),
            }
        }
        Ok(report)
    }
}

/// Keeps those of `all` whose session belongs to the user `uid`.
fn filter_by_user(
    reader: &dyn Reader,
    all: Vec<(Artifact, u64)>,
    uid: &str,
) -> Result<Vec<(Artifact, u64)>, StoreError> {
    let mut is_own: HashMap<SessionId, bool> = HashMap::new();
    let mut own = Vec::new();
    for (artifact, bytes) in all {
        let ArtifactScope::Session { session_id } = &artifact.scope else {
            continue;
        };
        let known = match is_own.get(session_id) {
            Some(known) => *known,
            None => {
                let found = reader
                    .session(session_id)?
                    .is_some_and(|session| session.uid == uid);
                *is_own.entry(session_id.clone()).or_insert(found)
            }
        };
        if known {
            own.push((artifact, bytes));
        }
    }
    Ok(own)
}

impl ArtifactReader {
    /// Lists the candidates and their reasons. Deletes nothing, even if the request is not a dry
    /// run.
    pub async fn cleanup_candidates(&self, request: &Cleanup) -> Result<CleanupReport, ErrorInfo> {
        let (chosen, busy) = self.select_candidates(request).await?;
        let candidates = chosen.into_iter().map(|(_, candidate)| candidate).collect();
        Ok(CleanupReport {
            dry_run: true,
            candidates,
            busy,
            ..CleanupReport::default()
        })
    }

    async fn select_candidates(
        &self,
        request: &Cleanup,
    ) -> Result<(Vec<(Artifact, Candidate)>, Vec<BusySession>), ErrorInfo> {
        let uid = request.uid.clone();
        let (all, busy) = self
            .reads
            .read(move |reader| {
                let busy: HashSet<SessionId> = reader
                    .live_runs(None)?
                    .into_iter()
                    .map(|run| run.session_id)
                    .collect();
                let mut all = reader.session_artifacts()?;
                if let Some(uid) = uid {
                    all = filter_by_user(reader, all, &uid)?;
                }
                Ok((all, busy))
            })
            .await?;
        let (chosen, skipped) = select_candidates_from(request, &all, &busy, now());
        let candidates = chosen
            .into_iter()
            .map(|(artifact, candidate)| (artifact.clone(), candidate))
            .collect();
        Ok((candidates, skipped))
    }
}

/// Selects the candidates from `all`: pairs of an artifact and the total size of its versions in
/// bytes. The candidates are ordered by their last change, oldest first. Also returns the sessions
/// that were skipped because they are in `busy`.
fn select_candidates_from<'a>(
    request: &Cleanup,
    all: &'a [(Artifact, u64)],
    busy: &HashSet<SessionId>,
    now: Timestamp,
) -> (Vec<(&'a Artifact, Candidate)>, Vec<BusySession>) {
    let mut newer_bytes: u64 = 0;
    let mut skipped: BTreeMap<&SessionId, u64> = BTreeMap::new();
    let mut chosen = Vec::new();
    for (artifact, bytes) in all.iter().rev() {
        let ArtifactScope::Session { session_id } = &artifact.scope else {
            continue;
        };
        let is_included = request
            .session_id
            .as_ref()
            .is_none_or(|wanted| wanted == session_id)
            && (artifact.debug || request.include_all);
        if !is_included {
            continue;
        }
        let age = now.millis_since(artifact.updated_at);
        if busy.contains(session_id) {
            // Count only artifacts that are old enough to be candidates.
            if request.older_than_ms.is_none_or(|limit| age > limit) {
                *skipped.entry(session_id).or_default() += 1;
            }
            continue;
        }
        newer_bytes = newer_bytes.saturating_add(*bytes);
        let mut reasons = vec![
            if artifact.debug {
                "debug artifact"
            } else {
                "the request includes ordinary artifacts"
            }
            .to_owned(),
        ];
        if let Some(limit) = request.older_than_ms {
            if age <= limit {
                continue;
            }
            reasons.push(format!("unchanged for {}", format_duration(age)));
        }
        if let Some(limit) = request.max_bytes {
            if newer_bytes <= limit {
                continue;
            }
            reasons.push(format!(
                "with the newer artifacts, the total is {newer_bytes} bytes, more than {limit}"
            ));
        }
        let candidate = Candidate {
            artifact_id: artifact.artifact_id.clone(),
            session_id: session_id.clone(),
            name: artifact.name.clone(),
            title: artifact.title.clone(),
            bytes: *bytes,
            updated_at: artifact.updated_at,
            reason: reasons.join("; "),
        };
        chosen.push((artifact, candidate));
    }
    chosen.reverse();
    let busy = |(session_id, artifacts): (&SessionId, u64)| BusySession {
        session_id: session_id.clone(),
        artifacts,
    };
    (chosen, skipped.into_iter().map(busy).collect())
}

/// Formats a duration in the largest unit of which it has at least two, rounded down: 119 s, 2 min.
fn format_duration(millis: u64) -> String {
    let seconds = Duration::from_millis(millis).as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use soong_protocol::{ArtifactId, ArtifactSource, Provenance};

    use super::*;

    /// Returns an artifact that was changed this many minutes after the epoch.
    fn artifact(id: &str, session: &str, minute: i64, debug: bool) -> Artifact {
        let at = Timestamp::from_millis(minute * 60_000);
        Artifact {
            artifact_id: ArtifactId::new(id),
            scope: ArtifactScope::Session {
                session_id: SessionId::new(session),
            },
            name: (!debug).then(|| id.to_owned()),
            withdrawn: None,
            title: id.to_owned(),
            filename: id.to_owned(),
            content_type: "text/plain".into(),
            size: 1,
            current_version: 1,
            stored_version: 1,
            dirty: false,
            source: ArtifactSource::Tool,
            debug,
            provenance: Provenance::default(),
            summary: None,
            metadata: serde_json::Map::new(),
            created_at: at,
            updated_at: at,
        }
    }

    #[test]
    fn candidates_match_all_filters_and_carry_a_reason() {
        let mut of_user = artifact("u", "s", 0, true);
        of_user.scope = ArtifactScope::User {
            uid: "local".into(),
        };
        let all = [
            (of_user, 1),
            (artifact("old", "s", 1, false), 10),
            (artifact("trace", "s", 2, true), 10),
            (artifact("other", "t", 3, true), 10),
            (artifact("busy", "b", 4, true), 10),
            (artifact("busy too", "b", 5, false), 10),
            (artifact("new", "s", 60, false), 10),
            (artifact("fresh", "s", 61, true), 10),
        ];
        let now = Timestamp::from_millis(62 * 60_000);
        let busy = HashSet::from([SessionId::new("b")]);
        let plain = Cleanup::default;
        let hour = Some(30 * 60_000);
        for (cleanup, want, skipped) in [
            (plain(), vec!["trace", "other", "fresh"], 1),
            (
                Cleanup {
                    session_id: Some(SessionId::new("s")),
                    ..plain()
                },
                vec!["trace", "fresh"],
                0,
            ),
            (
                Cleanup {
                    include_all: true,
                    ..plain()
                },
                vec!["old", "trace", "other", "new", "fresh"],
                2,
            ),
            (
                Cleanup {
                    older_than_ms: hour,
                    ..plain()
                },
                vec!["trace", "other"],
                1,
            ),
            (
                Cleanup {
                    older_than_ms: Some(58 * 60_000),
                    ..plain()
                },
                vec!["trace", "other"],
                0,
            ),
            (
                Cleanup {
                    max_bytes: Some(20),
                    ..plain()
                },
                vec!["trace"],
                1,
            ),
            (
                Cleanup {
                    max_bytes: Some(0),
                    ..plain()
                },
                vec!["trace", "other", "fresh"],
                1,
            ),
            (
                Cleanup {
                    max_bytes: Some(9),
                    older_than_ms: hour,
                    include_all: true,
                    ..plain()
                },
                vec!["old", "trace", "other"],
                2,
            ),
            (
                Cleanup {
                    max_bytes: Some(1_000),
                    ..plain()
                },
                vec![],
                1,
            ),
        ] {
            let (candidates, busy) = select_candidates_from(&cleanup, &all, &busy, now);
            assert_eq!(
                busy.iter().map(|session| session.artifacts).sum::<u64>(),
                skipped,
                "{cleanup:?}"
            );
            let ids: Vec<&str> = candidates
                .iter()
                .map(|(artifact, _)| artifact.artifact_id.as_str())
                .collect();
            assert_eq!(ids, want, "{cleanup:?}");
            assert!(
                candidates
                    .iter()
                    .all(|(_, candidate)| !candidate.reason.is_empty())
            );
        }
        let request = Cleanup {
            max_bytes: Some(20),
            older_than_ms: hour,
            ..plain()
        };
        let reason = &select_candidates_from(&request, &all, &busy, now).0[0]
            .1
            .reason;
        for part in ["debug artifact", "60 min", "more than 20"] {
            assert!(reason.contains(part), "{reason}");
        }
    }
}
