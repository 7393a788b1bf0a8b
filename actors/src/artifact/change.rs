//! Changes to a text, and how they are applied. No I/O; the clock is read only to limit the search.
//!
//! Elsewhere: how a changed text is stored (`store/edit.rs`), finding the passage that a change
//! names (`soong_match`).

use std::time::{Duration, Instant};

use soong_protocol::{Artifact, ErrorCode, ErrorInfo, MatchLayer, Splice, UpdateType};
use soong_tool::artifact::{Change, Edited, is_text};

use super::not_found;

/// Maximum duration of the search for the text to be replaced (ART-7).
const MATCH_LIMIT: Duration = Duration::from_millis(500);

/// The result of applying a change to a text.
pub(super) struct Applied {
    pub(super) text: String,
    pub(super) splice: Splice,
    pub(super) update_type: UpdateType,
    pub(super) old: Option<String>,
    pub(super) layer: Option<MatchLayer>,
    pub(super) similarity: Option<f64>,
    pub(super) replaced: Option<String>,
}

impl Applied {
    fn whole(before: &str, after: String, update_type: UpdateType) -> Self {
        let splice = Splice::replace_all(before, after.clone());
        Self {
            text: after,
            splice,
            update_type,
            old: None,
            layer: None,
            similarity: None,
            replaced: None,
        }
    }

    /// Returns the result of the edit for the artifact in its new state.
    pub(super) fn result_of(&self, artifact: Artifact) -> Edited {
        Edited {
            artifact,
            update_type: self.update_type,
            layer: self.layer,
            similarity: self.similarity,
            replaced: self.replaced.clone(),
            snapshot: None,
        }
    }
}

/// Applies a change to a text. `before` is `None` if the artifact does not exist.
pub(super) fn apply(
    change: &Change,
    key: &str,
    before: Option<&str>,
) -> Result<Applied, ErrorInfo> {
    match (change, before) {
        (
            Change::Create {
                content,
                content_type,
                ..
            },
            None,
        ) => {
            if !is_text(content_type) {
                let message = format!(
                    "{content_type:?} is not a text type: a document must be text, such as text/markdown"
                );
                return Err(ErrorInfo::new(ErrorCode::UnsupportedMedia, message));
            }
            Ok(Applied::whole("", content.clone(), UpdateType::Create))
        }
        (Change::Create { .. }, Some(_)) => Err(already_exists(key)),
        (_, None) => Err(not_found(key)),
        (Change::Rewrite { content }, Some(before)) => {
            Ok(Applied::whole(before, content.clone(), UpdateType::Rewrite))
        }
        (Change::Update { old, new }, Some(before)) => {
            let start = Instant::now();
            let found = soong_match::find(before, old, &mut || start.elapsed() > MATCH_LIMIT)
                .map_err(|error| ErrorInfo::new(error.code(), format!("{key:?}: {error}")))?;
            let splice = Splice {
                start: found.range.start as u64,
                removed: found.range.len() as u64,
                inserted: new.clone(),
            };
            Ok(Applied {
                text: [
                    &before[..found.range.start],
                    new,
                    &before[found.range.end..],
                ]
                .concat(),
                splice,
                update_type: found.layer.update_type(),
                old: Some(old.clone()),
                layer: Some(found.layer),
                similarity: Some(found.similarity),
                replaced: Some(before[found.range].to_owned()),
            })
        }
    }
}

/// Returns the error for a name that is taken.
pub(super) fn already_exists(key: &str) -> ErrorInfo {
    let message =
        format!("an artifact named {key:?} already exists: change it, or use another name");
    ErrorInfo::new(ErrorCode::ArtifactExists, message)
}
