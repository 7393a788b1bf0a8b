//! The Artifacts pane: artifacts of the run's session, and a preview of one of them.

use super::PaneContext;
use crate::{format, styled_line::StyledLine, terminal::TextStyle, text};

pub(super) fn lines(page: &PaneContext<'_>) -> Option<Vec<StyledLine>> {
    if let Some(preview) = &page.records.preview {
        let mut lines = vec![
            StyledLine::of(TextStyle::Bold, text::safe_line(&preview.name))
                .and(TextStyle::Dim, "  (Esc: back to the list)"),
        ];
        let broken = preview
            .lines
            .iter()
            .flat_map(|line| text::break_line(&text::safe_line_keep_spaces(line), page.columns));
        lines.extend(broken.map(|line| StyledLine::of(TextStyle::Plain, line)));
        return Some(lines);
    }
    let artifacts = page.records.artifacts.as_ref()?;
    if artifacts.is_empty() {
        return Some(vec![StyledLine::of(
            TextStyle::Dim,
            "no artifacts in this session",
        )]);
    }
    let line = |(at, artifact): (usize, &soong_protocol::Artifact)| {
        let is_chosen = at == page.chosen;
        let state = if artifact.dirty { "edited" } else { "" };
        StyledLine::of(TextStyle::Cyan, if is_chosen { "> " } else { "  " })
            .and(
                if is_chosen {
                    TextStyle::Bold
                } else {
                    TextStyle::Plain
                },
                text::safe_line(&artifact.key()),
            )
            .and(
                TextStyle::Dim,
                format!(
                    "  v{} {} {} {state}",
                    artifact.current_version,
                    format::bytes(artifact.size),
                    text::safe_line(&artifact.content_type),
                ),
            )
            .and(
                TextStyle::Plain,
                format!(
                    "  {}",
                    text::safe_line(artifact.summary.as_deref().unwrap_or(&artifact.title))
                ),
            )
    };
    Some(artifacts.iter().enumerate().map(line).collect())
}
