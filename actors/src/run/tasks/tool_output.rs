//! What a tool's output becomes for the model: itself, or, where it is too large, an artifact with its head
//! and tail (ART-9).

use std::sync::Arc;

use soong_protocol::{ArtifactRef, ErrorInfo, Provenance, ToolSpec};

use crate::run::machine::{outcome::preview, spec::RunSpec};
use crate::{
    artifact::{ArtifactService, ArtifactStore, Place, Save},
    model::tokens::estimate_tokens,
    text::shorten,
    tool::{ToolContext, ToolOutput},
};

/// Shortest output that is stored for its size: the line that refers to it would be longer.
const LEAST_STORED_BYTES: usize = 512;
/// How much of a stored output a model sees of its beginning and of its end, in characters each, if the limits allow it.
const SHOWN_CHARS: usize = 2_000;

/// What is read whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    /// In bytes.
    pub(crate) bytes: usize,
    /// In tokens, as they are estimated.
    pub(crate) tokens: u64,
    /// Largest text that is stored, in bytes.
    pub(crate) stored_bytes: u64,
}

impl Limits {
    /// Returns whether a text is too much to be read whole.
    pub(crate) fn are_passed_by(self, text: &str) -> bool {
        // A token is at least a byte: most texts need no counting.
        text.len() > self.bytes || (text.len() as u64 > self.tokens && estimate_tokens(text) > self.tokens)
    }
}

/// Stores an output that is too large, or that its tool wants stored; what is left is short.
pub(crate) async fn fit(
    output: ToolOutput,
    spec: &ToolSpec,
    context: &ToolContext,
    limits: Limits,
    can_read_artifacts: bool,
) -> Result<ToolOutput, ErrorInfo> {
    let is_large = limits.are_passed_by(&output.output) && output.output.len() > LEAST_STORED_BYTES;
    if !is_large && !output.store_output {
        return Ok(output);
    }
    if spec.paged {
        let output_text =
            if output.output.len() > limits.bytes { cut(&output.output, limits.bytes) } else { output.output };
        return Ok(ToolOutput { output: output_text, ..output });
    }
    let text = output.output.as_str();
    // Room for the line that says so.
    let most = usize::try_from(limits.stored_bytes).unwrap_or(usize::MAX).saturating_sub(64);
    let is_cut = text.len() as u64 > limits.stored_bytes;
    let stored = if is_cut { cut(text, most) } else { text.to_owned() };
    let reference = match store(output.title.as_str(), stored, spec, context).await {
        Ok(reference) => reference,
        // What the tool did is done: a store that refuses makes no failure of it.
        Err(error) => {
            let note = format!("\n[the whole, {} bytes, could not be stored: {error}]", text.len());
            let shown = head(text, limits.bytes).to_owned() + &note;
            return Ok(ToolOutput { output: shown, ..output });
        }
    };
    let short = reference_text(&reference, &output.title, text, limits, is_cut, can_read_artifacts);
    Ok(ToolOutput { output: short, artifact_ref: Some(output.artifact_ref.unwrap_or(reference)), ..output })
}

async fn store(title: &str, text: String, spec: &ToolSpec, context: &ToolContext) -> Result<ArtifactRef, ErrorInfo> {
    let service: &Arc<dyn ArtifactService> = context.artifacts()?;
    let place = Place { session_id: context.session_id.clone(), uid: context.uid.to_string() };
    let title = if title.is_empty() { &spec.title } else { title };
    let save = Save {
        key: None,
        title: format!("{}: {}", spec.name, preview(title)),
        provenance: Provenance {
            run_id: Some(context.run_id.clone()),
            trace_id: Some(context.trace_id.clone()),
            message_sequence: context.message_sequence,
            tool_call_id: Some(context.tool_call_id.clone()),
        },
        ..Save::new("", "text/plain", text)
    };
    Ok(service.save(&place, save).await?.reference())
}

/// What a run itself stores, of its own or of its children's.
pub(crate) struct About<'a> {
    pub(crate) title: &'a str,
    /// The message and the call that asked for it.
    pub(crate) asked_in: Option<u64>,
    pub(crate) call: Option<&'a str>,
}

/// Stores a text of a run as a product, cut to what may be stored.
pub(crate) async fn keep(
    artifacts: &ArtifactStore,
    run: &RunSpec,
    about: &About<'_>,
    text: String,
) -> Result<ArtifactRef, ErrorInfo> {
    let most = usize::try_from(run.inline.stored_bytes).unwrap_or(usize::MAX);
    let text = if text.len() > most { cut(&text, most.saturating_sub(64)) } else { text };
    let save = Save {
        key: None,
        title: format!("{}: {}", run.trace_id.short(), preview(about.title)),
        provenance: Provenance {
            run_id: Some(run.run_id.clone()),
            trace_id: Some(run.trace_id.clone()),
            message_sequence: about.asked_in,
            tool_call_id: about.call.map(str::to_owned),
        },
        ..Save::new("", "text/plain", text)
    };
    Ok(artifacts.save(&crate::run::tasks::place(run), save).await?.reference())
}

/// Says that summaries are shortened, and where they are whole.
pub(crate) fn shortened_note(reference: &ArtifactRef, can_read_artifacts: bool) -> String {
    let id = reference.label();
    let how = if can_read_artifacts {
        format!("; read them by lines with read_artifact(name=\"{id}\", offset=…)")
    } else {
        String::new()
    };
    format!("together the results are too long: summaries are shortened here, and whole in artifact {id}{how}")
}

/// Returns what stands in the message instead of a text: what it is, how it begins and ends, and where the whole is.
///
/// If the text is over the limits, the result is within them and shorter than the text; at least its first line is kept.
pub(crate) fn reference_text(
    reference: &ArtifactRef,
    title: &str,
    text: &str,
    limits: Limits,
    is_cut: bool,
    can_read_artifacts: bool,
) -> String {
    let lines = text.lines().count();
    let id = reference.label();
    let cut = if is_cut { ", cut to what artifacts.max_text_bytes allows" } else { "" };
    let how = if can_read_artifacts {
        format!("read it by lines with read_artifact(name=\"{id}\", offset=…)")
    } else {
        "ask for less at once to see more of it".to_owned()
    };
    let what = if title.is_empty() { "the output".to_owned() } else { preview(title) };
    let first = format!("[{what}: {} bytes in {lines} lines, stored as artifact {id}{cut}; {how}]\n", text.len());
    let (chars, is_large) = (text.chars().count(), limits.are_passed_by(text));
    if chars <= 2 * SHOWN_CHARS && !is_large {
        return first + text;
    }
    let mut shown = SHOWN_CHARS.min(chars / 2);
    while shown > 0 {
        let from = text.char_indices().nth(chars - shown).map_or(0, |(at, _)| at);
        let ends = format!("--- its beginning\n{}\n--- its end\n…{}", shorten(text, shown), &text[from..]);
        let out = format!("{first}{ends}");
        if !is_large || out.len() < text.len() && !limits.are_passed_by(&out) {
            return out;
        }
        shown = shown * 3 / 4;
    }
    first
}

/// Cuts a text to so many bytes, and says so.
fn cut(text: &str, bytes: usize) -> String {
    format!("{}\n[cut: {} bytes in all]", head(text, bytes), text.len())
}

/// Returns at most so many bytes of the beginning, between characters.
pub(crate) fn head(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use soong_protocol::{ArtifactId, RefKind};

    use super::*;

    #[test]
    fn art_9_the_limit_is_in_bytes_or_in_tokens_whichever_is_reached_first() {
        let limits = Limits { bytes: 100, tokens: 24, stored_bytes: 1_000 };
        for (text, passed) in [
            ("a".repeat(100), false),
            ("a".repeat(101), true),
            ("好".repeat(29), false), // 87 bytes, 22 tokens
            ("好".repeat(33), true),  // 99 bytes, 25 tokens
            (String::new(), false),
        ] {
            assert_eq!(limits.are_passed_by(&text), passed, "{} bytes", text.len());
        }
    }

    #[test]
    fn what_stands_for_a_stored_output_shows_its_ends_and_where_it_is() {
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
        let limits = Limits { bytes: 50_000, tokens: 10_000, stored_bytes: 100_000 };
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
        assert!(shown.chars().count() < 2 * SHOWN_CHARS + 300);
        assert!(!reference_text(&reference, "", &text, limits, false, false).contains("read_artifact"));
        let short = "a".repeat(300);
        assert!(
            reference_text(&reference, "", &short, limits, false, false).ends_with(&short),
            "its tool wants it stored"
        );
        for (bytes, tokens) in [(2_000, 10_000), (600, 10_000), (50_000, 300)] {
            let limits = Limits { bytes, tokens, stored_bytes: 100_000 };
            for text in ["a".repeat(4_000), "好".repeat(1_400), "a\n".repeat(40_000), "a".repeat(bytes + 1)] {
                let shown = reference_text(&reference, "bash", &text, limits, false, true);
                assert!(!limits.are_passed_by(&text) || !limits.are_passed_by(&shown), "{bytes} {tokens}: {shown}");
                assert!(!limits.are_passed_by(&text) || shown.len() < text.len(), "{bytes} {tokens}: {shown}");
            }
        }
    }
}
