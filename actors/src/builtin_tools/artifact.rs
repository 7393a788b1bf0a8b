//! Artifact tools of models, and the text of their results (ART-4).
//!
//! The calls are in `artifact/`: one file for the tools that write, and one for each tool that
//! reads.

mod list;
mod read;
mod write;

pub(crate) use list::ListArtifacts;
pub(crate) use read::ReadArtifact;
use soong_protocol::MatchLayer;
use soong_tool::{
    ToolContext, ToolOutput,
    artifact::{ArtifactOwner, Edited},
};
pub(crate) use write::{CreateArtifact, RewriteArtifact, UpdateArtifact};

/// Maximum length of the replaced text that a result repeats, in characters.
const REPLACED_CHARS: usize = 2_000;

fn artifact_owner(context: &ToolContext) -> ArtifactOwner {
    ArtifactOwner {
        session_id: context.session_id.clone(),
        uid: context.uid.to_string(),
    }
}

/// Escapes text for XML content and attributes.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Returns the result of an edit: short XML, and a reference to the artifact (ART-4).
///
/// Also used for a call whose outcome was lost although its effect was recorded: the result is the
/// same.
pub(crate) fn edit_output(edited: &Edited) -> ToolOutput {
    let artifact = &edited.artifact;
    let version = artifact.current_version;
    let key = artifact.key();
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
    if let (Some(layer), Some(similarity), Some(replaced)) =
        (edited.layer, edited.similarity, &edited.replaced)
    {
        output.push_str(&format!(
            "<match layer=\"{}\" similarity=\"{similarity:.3}\"",
            layer.as_str()
        ));
        // An exact match is the text that the model sent, so it is not repeated.
        output.push_str(&match layer {
            MatchLayer::Exact => "/>".to_owned(),
            MatchLayer::Normalized | MatchLayer::Fuzzy => {
                format!(
                    "><replaced>{}</replaced></match>",
                    escape(&soong_text::shorten(replaced, REPLACED_CHARS))
                )
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
