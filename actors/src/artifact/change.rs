//! Changes to a text, and how they are applied. No I/O; the clock is read only to limit the search.
//!
//! Elsewhere: how a changed text is stored (`store/edit.rs`), finding the passage that a change names (`matcher.rs`).

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use soong_protocol::{
    Artifact, ArtifactSnapshot, ArtifactSource, EffectId, ErrorCode, ErrorInfo, MatchLayer, Provenance, Splice,
    UpdateType,
};

use super::{content::is_text, matcher, not_found};

/// Maximum duration of the search for the text to be replaced (ART-7).
const MATCH_LIMIT: Duration = Duration::from_millis(500);

/// A change to a text.
#[derive(Debug, Clone)]
pub enum Change {
    /// Creates the artifact. Fails with `artifact_exists` if it exists.
    Create {
        /// The whole text.
        content: String,
        /// MIME type of a text.
        content_type: String,
        /// Title for users. Empty: the name.
        title: String,
    },
    /// Replaces the passage that matches `old` (ART-7).
    Update {
        /// The passage to find.
        old: String,
        /// Its replacement.
        new: String,
    },
    /// Replaces the whole text.
    Rewrite {
        /// The whole text.
        content: String,
    },
}

/// A request to edit a text.
#[derive(Debug, Clone)]
pub struct EditRequest {
    /// Name of the artifact, with the prefix `user:` for the user scope.
    pub key: String,
    /// The change.
    pub change: Change,
    /// Kind of producer.
    pub source: ArtifactSource,
    /// Run, call and trace that produced the edit.
    pub provenance: Provenance,
    /// The tool call that makes the edit; `None` for clients. A repeated request with the same effect returns the first
    /// result.
    pub effect: Option<EffectId>,
}

/// The result of an edit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edited {
    /// The artifact after the edit.
    pub artifact: Artifact,
    /// Type of the change.
    pub update_type: UpdateType,
    /// Layer of the matcher that found the replaced passage; absent if the whole text was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<MatchLayer>,
    /// Similarity of `replaced` to the passage that was searched for, up to 1; absent if the whole text was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub similarity: Option<f64>,
    /// Passage that was replaced; absent if the whole text was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<String>,
    /// Content after the edit. `None` if the edit was recorded earlier and others followed.
    #[serde(skip)]
    pub snapshot: Option<ArtifactSnapshot>,
}

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
        Self { text: after, splice, update_type, old: None, layer: None, similarity: None, replaced: None }
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
pub(super) fn apply(change: &Change, key: &str, before: Option<&str>) -> Result<Applied, ErrorInfo> {
    match (change, before) {
        (Change::Create { content, content_type, .. }, None) => {
            if !is_text(content_type) {
                let message =
                    format!("{content_type:?} is not a text type: a document must be text, such as text/markdown");
                return Err(ErrorInfo::new(ErrorCode::UnsupportedMedia, message));
            }
            Ok(Applied::whole("", content.clone(), UpdateType::Create))
        }
        (Change::Create { .. }, Some(_)) => Err(already_exists(key)),
        (_, None) => Err(not_found(key)),
        (Change::Rewrite { content }, Some(before)) => Ok(Applied::whole(before, content.clone(), UpdateType::Rewrite)),
        (Change::Update { old, new }, Some(before)) => {
            let start = Instant::now();
            let found = matcher::find(before, old, &mut || start.elapsed() > MATCH_LIMIT)
                .map_err(|error| ErrorInfo::new(error.code(), format!("{key:?}: {error}")))?;
            let splice =
                Splice { start: found.range.start as u64, removed: found.range.len() as u64, inserted: new.clone() };
            Ok(Applied {
                text: [&before[..found.range.start], new, &before[found.range.end..]].concat(),
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
    let message = format!("an artifact named {key:?} already exists: change it, or use another name");
    ErrorInfo::new(ErrorCode::ArtifactExists, message)
}
