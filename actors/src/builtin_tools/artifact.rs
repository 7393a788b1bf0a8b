//! The artifact tools of models, and how they say what they did (ART-4).
//!
//! Not here: what the calls do (`artifact/`); one file holds those that write, one each those that read.

mod list;
mod read;
mod write;

pub(crate) use list::ListArtifacts;
pub(crate) use read::ReadArtifact;
use soong_protocol::MatchLayer;
pub(crate) use write::{CreateArtifact, RewriteArtifact, UpdateArtifact};

use crate::{
    artifact::{Edited, Place},
    tool::{ToolContext, ToolOutput},
};

/// Longest piece of a replaced text that an answer repeats, in characters.
const REPLACED_CHARS: usize = 2_000;

fn place(context: &ToolContext) -> Place {
    Place { session_id: context.session_id.clone(), uid: context.uid.to_string() }
}

/// Escapes what stands between tags and in attributes.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Says what an edit did, in short XML, with the reference beside it (ART-4).
///
/// Also for a call whose outcome was lost and whose effect is recorded: it says the same again.
pub(crate) fn written(edited: &Edited) -> ToolOutput {
    let artifact = &edited.artifact;
    let (version, key) = (artifact.current_version, artifact.key());
    let verb = match edited.update_type {
        soong_protocol::UpdateType::Create => "created",
        soong_protocol::UpdateType::Rewrite => "rewritten",
        soong_protocol::UpdateType::Withdraw => "withdrawn",
        soong_protocol::UpdateType::Update | soong_protocol::UpdateType::UpdateFuzzy => "updated",
    };
    let mut output = format!(
        "<artifact version=\"{version}\"><id>{}</id><title>{}</title><status>{verb}, {} bytes</status>",
        escape(&key),
        escape(&artifact.title),
        artifact.size
    );
    if let (Some(layer), Some(similarity), Some(replaced)) = (edited.layer, edited.similarity, &edited.replaced) {
        output.push_str(&format!("<match layer=\"{}\" similarity=\"{similarity:.3}\"", layer.as_str()));
        // What was found as it was given needs not be repeated.
        output.push_str(&match layer {
            MatchLayer::Exact => "/>".to_owned(),
            MatchLayer::Normalized | MatchLayer::Fuzzy => {
                format!("><replaced>{}</replaced></match>", escape(&crate::text::shorten(replaced, REPLACED_CHARS)))
            }
        });
    }
    output.push_str("</artifact>");
    ToolOutput {
        title: format!("{key} {verb}"),
        output,
        artifact_delta: [(key, version)].into(),
        artifact_ref: Some(artifact.reference()),
        artifact_snapshot: edited.snapshot.clone(),
        ..ToolOutput::default()
    }
}
