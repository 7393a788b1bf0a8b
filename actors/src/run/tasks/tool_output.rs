//! Fits a tool's output into the conversation: a large output is stored as an artifact, and the
//! model gets its head and tail. An output that is shown only once is stored too, so that the model
//! can read it again (ART-9).

use std::sync::Arc;

use soong_protocol::{ArtifactRef, ErrorInfo, Provenance, ToolSpec};
use soong_tool::{
    ToolContext, ToolOutput,
    artifact::{ArtifactOwner, ArtifactService, Save},
};

use crate::{
    artifact::ArtifactHandle,
    run::machine::{
        inline::{InlineLimits, head, preview, reference_text},
        spec::RunSpec,
    },
};

/// Minimum size of an output that is stored because of its size, in bytes. A reference would be
/// longer than a smaller output.
const MIN_STORED_BYTES: usize = 512;

/// Stores an output that is too large, that its tool wants stored, or that is shown only once.
/// Replaces it by a short reference, unless it is only shown once and small enough. Paged outputs
/// are only cut.
pub(crate) async fn store_if_needed(
    mut output: ToolOutput,
    spec: &ToolSpec,
    context: &ToolContext,
    limits: InlineLimits,
    can_read_artifacts: bool,
) -> Result<ToolOutput, ErrorInfo> {
    let is_short = output.output.len() <= MIN_STORED_BYTES;
    let is_replaced = output.store_output || !is_short && limits.are_exceeded_by(&output.output);
    let is_once = output.include_output_only_once && can_read_artifacts && !is_short && !spec.paged;
    if !is_replaced && !is_once {
        return Ok(output);
    }
    if spec.paged {
        let output_text = if output.output.len() > limits.bytes {
            cut(&output.output, limits.bytes)
        } else {
            output.output
        };
        return Ok(ToolOutput {
            output: output_text,
            ..output
        });
    }
    let text = output.output.as_str();
    // Leaves room for the note that says so.
    let max_bytes = usize::try_from(limits.stored_bytes)
        .unwrap_or(usize::MAX)
        .saturating_sub(64);
    let is_cut = text.len() as u64 > limits.stored_bytes;
    let stored = if is_cut {
        cut(text, max_bytes)
    } else {
        text.to_owned()
    };
    let reference = match store(output.title.as_str(), stored, spec, context).await {
        Ok(reference) => reference,
        // The effect of the tool has happened, so a failure to store its output does not fail the
        // call.
        Err(error) => {
            let note = format!(
                "\n[the whole, {} bytes, could not be stored: {error}]",
                text.len()
            );
            let shown = if is_replaced {
                head(text, limits.bytes).to_owned() + &note
            } else {
                output.output
            };
            // Shown again, because it can be read nowhere else.
            return Ok(ToolOutput {
                output: shown,
                include_output_only_once: false,
                ..output
            });
        }
    };
    if is_once {
        let line = output
            .long_term_memory
            .get_or_insert_with(|| output.title.clone());
        line.push_str(&format!(
            " [read it again with read_artifact(name=\"{}\")]",
            reference.label()
        ));
    }
    if !is_replaced {
        return Ok(output);
    }
    let text = output.output.as_str();
    let short = reference_text(
        &reference,
        &output.title,
        text,
        limits,
        is_cut,
        can_read_artifacts,
    );
    Ok(ToolOutput {
        output: short,
        artifact_ref: Some(output.artifact_ref.unwrap_or(reference)),
        ..output
    })
}

async fn store(
    title: &str,
    text: String,
    spec: &ToolSpec,
    context: &ToolContext,
) -> Result<ArtifactRef, ErrorInfo> {
    let service: &Arc<dyn ArtifactService> = context.artifacts()?;
    let owner = ArtifactOwner {
        session_id: context.session_id.clone(),
        uid: context.uid.to_string(),
    };
    let title = if title.is_empty() { &spec.title } else { title };
    let save = Save {
        key: None,
        title: format!("{}: {}", spec.name, preview(title)),
        provenance: provenance(context),
        ..Save::new("", "text/plain", text)
    };
    Ok(service.save(&owner, save).await?.reference())
}

/// Returns the origin of what a call stores.
pub(crate) fn provenance(context: &ToolContext) -> Provenance {
    Provenance {
        run_id: Some(context.run_id.clone()),
        trace_id: Some(context.trace_id.clone()),
        message_sequence: context.message_sequence,
        tool_call_id: Some(context.tool_call_id.clone()),
    }
}

/// Describes a text that the run itself stores: its own answer, or the results of its children.
pub(crate) struct TextSource<'a> {
    pub(crate) title: &'a str,
    /// Sequence of the message that contains the call (`asked_in`), and the id of the call
    /// (`call`).
    pub(crate) message_sequence: Option<u64>,
    pub(crate) tool_call_id: Option<&'a str>,
}

/// Stores a text of a run as an artifact, cut to the maximum size.
pub(crate) async fn store_text(
    artifacts: &ArtifactHandle,
    spec: &RunSpec,
    about: &TextSource<'_>,
    text: String,
) -> Result<ArtifactRef, ErrorInfo> {
    let max_bytes = usize::try_from(spec.limits.inline.stored_bytes).unwrap_or(usize::MAX);
    let text = if text.len() > max_bytes {
        cut(&text, max_bytes.saturating_sub(64))
    } else {
        text
    };
    let save = Save {
        key: None,
        title: format!(
            "{}: {}",
            spec.identity.trace_id.last_segment(),
            preview(about.title)
        ),
        provenance: Provenance {
            run_id: Some(spec.identity.run_id.clone()),
            trace_id: Some(spec.identity.trace_id.clone()),
            message_sequence: about.message_sequence,
            tool_call_id: about.tool_call_id.map(str::to_owned),
        },
        ..Save::new("", "text/plain", text)
    };
    Ok(artifacts
        .save(&crate::run::tasks::artifact_owner(spec), save)
        .await?
        .reference())
}

/// Returns a note that summaries are shortened, with a reference to the full text.
pub(crate) fn shortened_note(reference: &ArtifactRef, can_read_artifacts: bool) -> String {
    let id = reference.label();
    let how = if can_read_artifacts {
        format!("; read them by lines with read_artifact(name=\"{id}\", offset=…)")
    } else {
        String::new()
    };
    format!(
        "together the results are too long: summaries are shortened here, and whole in artifact {id}{how}"
    )
}

/// Cuts a text to a number of bytes, and appends a note.
fn cut(text: &str, bytes: usize) -> String {
    format!("{}\n[cut: {} bytes in all]", head(text, bytes), text.len())
}

#[cfg(test)]
mod tests {
    use soong_protocol::{ArtifactId, RefKind};

    use super::*;

    #[test]
    fn inline_limit_applies_to_bytes_and_tokens() {
        let limits = InlineLimits {
            bytes: 100,
            tokens: 24,
            stored_bytes: 1_000,
        };
        for (text, passed) in [
            ("a".repeat(100), false),
            ("a".repeat(101), true),
            ("好".repeat(29), false), // 87 bytes, 22 tokens
            ("好".repeat(33), true),  // 99 bytes, 25 tokens
            (String::new(), false),
        ] {
            assert_eq!(
                limits.are_exceeded_by(&text),
                passed,
                "{} bytes",
                text.len()
            );
        }
    }

    #[test]
    fn stored_output_reference_shows_head_tail_and_artifact() {
        let reference = ArtifactRef {
            kind: RefKind::ArtifactRef,
            artifact_id: ArtifactId::new("a1"),
            name: None,
            version: 1,
            content_type: "text/plain".into(),
            size: 9_000,
            summary: "s".into(),
        };
        let text = format!("begin{}end\n", "好".repeat(5_000));
        let limits = InlineLimits {
            bytes: 50_000,
            tokens: 10_000,
            stored_bytes: 100_000,
        };
        let shown = reference_text(&reference, "all of it", &text, limits, false, true);
        for part in [
            "stored as artifact a1",
            "read_artifact(name=\"a1\"",
            "begin",
            "end\n",
            "[all of it: 15009 bytes in 1 lines",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(shown.chars().count() < 4_300);
        assert!(
            !reference_text(&reference, "", &text, limits, false, false).contains("read_artifact")
        );
        let short = "a".repeat(300);
        assert!(
            reference_text(&reference, "", &short, limits, false, false).ends_with(&short),
            "its tool wants it stored"
        );
        for (bytes, tokens) in [(2_000, 10_000), (600, 10_000), (50_000, 300)] {
            let limits = InlineLimits {
                bytes,
                tokens,
                stored_bytes: 100_000,
            };
            for text in [
                "a".repeat(4_000),
                "好".repeat(1_400),
                "a\n".repeat(40_000),
                "a".repeat(bytes + 1),
            ] {
                let shown = reference_text(&reference, "bash", &text, limits, false, true);
                assert!(
                    !limits.are_exceeded_by(&text) || !limits.are_exceeded_by(&shown),
                    "{bytes} {tokens}: {shown}"
                );
                assert!(
                    !limits.are_exceeded_by(&text) || shown.len() < text.len(),
                    "{bytes} {tokens}: {shown}"
                );
            }
        }
    }
}
