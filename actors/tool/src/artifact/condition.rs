//! Conditions of a change: the version that the artifact must have.

use serde_json::json;
use soong_protocol::{ErrorCode, ErrorInfo};

/// A set of versions of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionSet {
    /// Any version, as long as the artifact exists.
    Any,
    /// One of these.
    Of(Vec<u64>),
}

impl VersionSet {
    /// Returns whether the set contains this version.
    pub fn contains(&self, version: u64) -> bool {
        match self {
            Self::Any => true,
            Self::Of(versions) => versions.contains(&version),
        }
    }
}

/// The version that an artifact must have for a change, like the headers `If-Match` and
/// `If-None-Match` of HTTP. The default allows any state, also that the artifact does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeCondition {
    /// The artifact must have one of these versions.
    pub if_match: Option<VersionSet>,
    /// The artifact must have none of these versions; with [`VersionSet::Any`], it must not exist.
    pub if_none_match: Option<VersionSet>,
}

impl ChangeCondition {
    /// Checks the condition for an artifact with this current version; `None` if it does not exist.
    ///
    /// # Errors
    /// `precondition_failed`, with the current version as `details.version`.
    pub fn check(&self, key: &str, current: Option<u64>) -> Result<(), ErrorInfo> {
        let matches_current =
            |versions: &VersionSet| current.is_some_and(|version| versions.contains(version));
        let has_match = self.if_match.as_ref().is_none_or(matches_current);
        let has_no_excluded = !self.if_none_match.as_ref().is_some_and(matches_current);
        if has_match && has_no_excluded {
            return Ok(());
        }
        let message = match current {
            Some(version) => {
                format!("artifact {key:?} has version {version}, which the request does not allow")
            }
            None => {
                format!("artifact {key:?} does not exist, and the request requires a version of it")
            }
        };
        let details = json!({ "version": current });
        Err(ErrorInfo {
            details,
            ..ErrorInfo::new(ErrorCode::PreconditionFailed, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_is_that_of_http() {
        let of = |versions: &[u64]| Some(VersionSet::Of(versions.to_vec()));
        for (if_match, if_none_match, current, holds) in [
            (None, None, None, true),
            (None, None, Some(3), true),
            (of(&[3]), None, Some(3), true),
            (of(&[1, 3]), None, Some(3), true),
            (of(&[2]), None, Some(3), false),
            (of(&[]), None, Some(3), false),
            (of(&[1]), None, None, false),
            (Some(VersionSet::Any), None, Some(3), true),
            (Some(VersionSet::Any), None, None, false),
            (None, Some(VersionSet::Any), None, true),
            (None, Some(VersionSet::Any), Some(3), false),
            (None, of(&[3]), Some(3), false),
            (None, of(&[2]), Some(3), true),
            (of(&[3]), of(&[3]), Some(3), false),
        ] {
            let condition = ChangeCondition {
                if_match,
                if_none_match,
            };
            let checked = condition.check("a", current);
            assert_eq!(checked.is_ok(), holds, "{condition:?} for {current:?}");
            if let Err(error) = checked {
                assert_eq!(error.details, json!({ "version": current }));
            }
        }
    }
}
