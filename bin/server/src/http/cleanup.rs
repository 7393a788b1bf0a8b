//! Reads the bodies of cleanup requests, including the field names of older documents.

use std::path::PathBuf;

use serde::Deserialize;
use soong::{
    ErrorCode, ErrorInfo,
    artifact::Cleanup,
    protocol::api::{Age, ArtifactCleanupBody},
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

const fn yes() -> bool {
    true
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

/// Filters for the task journals to clean up. A journal must match all of them.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(as = TaskCleanup))]
pub(super) struct TaskCleanupBody {
    /// The project folder. The name `project` is accepted too.
    #[serde(alias = "project")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    project_dir: PathBuf,
    /// Whether to list the journals without deleting them. Default: true.
    #[serde(default = "yes")]
    dry_run: bool,
    /// Whether to include journals of failed tasks, in addition to those of completed tasks.
    #[serde(default)]
    include_failed: bool,
    /// Whether to include journals of cancelled tasks.
    #[serde(default)]
    include_cancelled: bool,
    /// Only journals that have not been written for this time, in milliseconds.
    older_than_ms: Option<u64>,
    /// The same in seconds, or as a duration such as `30d`.
    older_than: Option<Age>,
}

impl TryFrom<TaskCleanupBody> for TaskCleanup {
    type Error = ErrorInfo;

    fn try_from(body: TaskCleanupBody) -> Result<Self, ErrorInfo> {
        let TaskCleanupBody {
            project_dir,
            dry_run,
            include_failed,
            include_cancelled,
            older_than_ms,
            older_than,
        } = body;
        let older_than_ms = age_ms(older_than_ms, older_than)?;
        Ok(Self {
            project_dir,
            dry_run,
            include_failed,
            include_cancelled,
            older_than_ms,
        })
    }
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
        let tasks =
            TaskCleanup::try_from(serde_json::from_value::<TaskCleanupBody>(tasks).unwrap())
                .unwrap();
        assert_eq!(
            (tasks.project_dir, tasks.dry_run, tasks.older_than_ms),
            ("/p".into(), false, Some(7_200_000))
        );
        assert!(
            serde_json::from_value::<TaskCleanupBody>(json!({"project": "/p", "age": 1})).is_err()
        );
    }
}
