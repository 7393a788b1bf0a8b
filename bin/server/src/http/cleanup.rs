//! Reads the bodies of cleanup requests, including the field names of older documents.

use soong::{
    ErrorCode, ErrorInfo,
    artifact::Cleanup,
    protocol::api::{Age, ArtifactCleanupBody, TaskCleanupBody},
    task_journal::TaskCleanup,
};

use crate::duration::duration;

fn invalid(message: impl Into<String>) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::ValidationError, message)
}

/// Returns an age in milliseconds, in whichever form it was given.
fn age_ms(older_than_ms: Option<u64>, older_than: Option<Age>) -> Result<Option<u64>, ErrorInfo> {
    let seconds = match (older_than_ms, older_than) {
        (Some(_), Some(_)) => {
            return Err(invalid(
                "older_than and older_than_ms are mutually exclusive: set one of them",
            ));
        }
        (given, None) => return Ok(given),
        (None, Some(Age::Seconds(seconds))) => seconds,
        (None, Some(Age::Text(text))) => duration(&text)
            .map_err(|why| invalid(format!("older_than: {why}")))?
            .as_secs(),
    };
    Ok(Some(seconds.saturating_mul(1_000)))
}

/// Returns the cleanup that a body requests.
///
/// # Errors
/// `validation_error` if the age is invalid, or given twice.
pub fn artifact_cleanup(body: ArtifactCleanupBody) -> Result<Cleanup, ErrorInfo> {
    let ArtifactCleanupBody {
        session_id,
        uid,
        dry_run,
        include_all,
        older_than_ms,
        older_than,
        max_bytes,
    } = body;
    let older_than_ms = age_ms(older_than_ms, older_than)?;
    Ok(Cleanup {
        session_id,
        uid,
        dry_run,
        include_all,
        older_than_ms,
        max_bytes,
    })
}

/// Returns the cleanup of task journals that a body requests.
///
/// # Errors
/// `validation_error` if the age is invalid, or given twice.
pub(super) fn task_cleanup(body: TaskCleanupBody) -> Result<TaskCleanup, ErrorInfo> {
    let TaskCleanupBody {
        project_dir,
        dry_run,
        include_failed,
        include_cancelled,
        older_than_ms,
        older_than,
    } = body;
    let older_than_ms = age_ms(older_than_ms, older_than)?;
    Ok(TaskCleanup {
        project_dir,
        dry_run,
        include_failed,
        include_cancelled,
        older_than_ms,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn age_is_parsed_in_every_format() {
        for (body, want) in [
            (json!({}), Ok(None)),
            (json!({"older_than_ms": 5}), Ok(Some(5))),
            (json!({"older_than": 90}), Ok(Some(90_000))),
            (json!({"older_than": "30d"}), Ok(Some(2_592_000_000))),
            (
                json!({"older_than": "30x"}),
                Err("older_than: \"30x\" is not a valid duration"),
            ),
            (
                json!({"older_than": 1, "older_than_ms": 1}),
                Err("set one of them"),
            ),
        ] {
            let parsed: ArtifactCleanupBody = serde_json::from_value(body.clone()).unwrap();
            match (artifact_cleanup(parsed), want) {
                (Ok(cleanup), Ok(want)) => assert_eq!(
                    (cleanup.older_than_ms, cleanup.dry_run),
                    (want, true),
                    "{body}"
                ),
                (Err(error), Err(part)) => assert!(error.message.contains(part), "{body}: {error}"),
                (got, want) => panic!("{body}: {got:?}, not {want:?}"),
            }
        }
        let tasks = json!({"project": "/p", "dry_run": false, "older_than": "2h"});
        let tasks = task_cleanup(serde_json::from_value(tasks).unwrap()).unwrap();
        assert_eq!(
            (tasks.project_dir, tasks.dry_run, tasks.older_than_ms),
            ("/p".into(), false, Some(7_200_000))
        );
        assert!(
            serde_json::from_value::<TaskCleanupBody>(json!({"project": "/p", "age": 1})).is_err()
        );
    }
}
