//! Output of `soong artifacts`: tables, records and results of changes.

use std::path::Path;

use serde_json::json;
use soong::{
    artifact::{BusySession, CleanupReport},
    protocol::{
        Artifact, ArtifactScope, ArtifactVersion, MatchLayer,
        api::{ArtifactView, EditView, Stored},
    },
};
use soong_tui::{format, table::Column, terminal::TextStyle, text};

use super::{Context, session_artifacts::SessionArtifacts};
use crate::{command::cleanup, exit::Failure, print, report};

/// Maximum number of lines of an artifact's text that follow its record, unless it is shown on a
/// terminal.
const MAX_TEXT_LINES: usize = 20;
/// Half of the maximum width of the reason in a cleanup table, in columns.
const COLUMNS: usize = 72;

/// Explanation of the mark of [`version_label`], printed below a table or record that contains it.
pub(in crate::command) const DIRTY_NOTE: &str = "* has edits that are not a stored version yet; they are stored when the run that made them ends";

/// Formats the version number of an artifact, followed by `*` if the artifact has edits that are
/// not stored as a version yet.
pub(in crate::command) fn version_label(artifact: &Artifact) -> String {
    format!(
        "{}{}",
        artifact.current_version,
        if artifact.dirty { "*" } else { "" }
    )
}

pub(super) async fn list(
    context: &Context<'_>,
    artifacts: &SessionArtifacts,
    columns: &[String],
) -> Result<(), Failure> {
    let artifacts = artifacts.list().await?;
    if context.global.json {
        return print::json(&artifacts);
    }
    if artifacts.is_empty() {
        return print::line("no artifacts");
    }
    let (changed, time) = print::times(context.terminal, ["CHANGED", "CHANGED (UTC)"]);
    let ellipsis = context.terminal.ellipsis();
    let row = |artifact: &Artifact| {
        // The title of a debug artifact says what it is; its text is data.
        let about = artifact
            .summary
            .as_deref()
            .filter(|_| !artifact.debug)
            .unwrap_or(&artifact.title);
        vec![
            artifact.key(),
            version_label(artifact),
            format::bytes(artifact.size),
            artifact.content_type.clone(),
            artifact.source.as_str().to_owned(),
            time(artifact.updated_at),
            text::cut(&text::safe_line(about), 48, ellipsis),
        ]
    };
    let rows: Vec<Vec<String>> = artifacts.iter().map(row).collect();
    print::selected_table(
        context.terminal,
        &[
            Column::text("ARTIFACT", 16),
            Column::whole("VERSION"),
            Column::whole("SIZE").drops(2),
            Column::text("TYPE", 10).drops(3),
            Column::whole("FROM").drops(4),
            Column::whole(changed),
            Column::text("ABOUT", 12).drops(1),
        ],
        &rows,
        columns,
    )?;
    if artifacts.iter().any(|artifact| artifact.dirty) {
        print::line_or_stderr(context.terminal, TextStyle::Dim, DIRTY_NOTE)?;
    }
    Ok(())
}

pub(super) async fn show(
    context: &Context<'_>,
    artifacts: &SessionArtifacts,
    name: &str,
) -> Result<(), Failure> {
    let view = artifacts.show(name).await?;
    if context.global.json {
        return print::json(&view);
    }
    let ArtifactView {
        artifact,
        content,
        versions,
    } = view;
    let whose = match &artifact.scope {
        ArtifactScope::Session { session_id } => format!("session {session_id}"),
        ArtifactScope::User { uid } => format!("user {uid}"),
    };
    let stored: Vec<String> = versions
        .iter()
        .map(|version| version.version.to_string())
        .collect();
    let current = version_label(&artifact).to_string();
    let stored = match stored.as_slice() {
        [] => "none stored".to_owned(),
        [only] if *only == current => "only version".to_owned(),
        _ => format!("stored: {}", stored.join(", ")),
    };
    let mut facts = vec![
        ("artifact", artifact.key()),
        ("id", artifact.artifact_id.to_string()),
        ("scope", whose),
        ("title", artifact.title.clone()),
        ("version", format!("{current} ({stored})")),
        ("type", artifact.content_type.clone()),
        ("size", format::bytes(artifact.size)),
        ("from", artifact.source.as_str().to_owned()),
    ];
    facts.extend(
        artifact
            .provenance
            .trace_id
            .iter()
            .map(|trace| ("trace", trace.to_string())),
    );
    facts.push((
        "created",
        format!("{} UTC", format::time(artifact.created_at)),
    ));
    facts.push((
        "changed",
        format!("{} UTC", format::time(artifact.updated_at)),
    ));
    for (name, fact) in facts {
        print::line(&format!("{name:<9} {}", text::safe_line(&fact)))?;
    }
    if artifact.dirty {
        print::line_or_stderr(context.terminal, TextStyle::Dim, DIRTY_NOTE)?;
    }
    let Some(content) = content else {
        return Ok(());
    };
    print::line("")?;
    if context.terminal.has_stdout {
        return if artifact.content_type.starts_with("text/markdown") {
            report::render(&content, context.terminal)
                .iter()
                .try_for_each(|line| print::line(line))
        } else {
            content
                .lines()
                .try_for_each(|line| print::line(&text::safe_line_keep_spaces(line)))
        };
    }
    let mut lines = content.lines();
    for line in lines.by_ref().take(MAX_TEXT_LINES) {
        print::line(&text::safe_line_keep_spaces(line))?;
    }
    match lines.count() {
        0 => Ok(()),
        more => print::line_or_stderr(
            context.terminal,
            TextStyle::Dim,
            &format!("({} more)", format::plural(more, "line", "lines")),
        ),
    }
}

pub(super) async fn versions(
    context: &Context<'_>,
    artifacts: &SessionArtifacts,
    name: &str,
) -> Result<(), Failure> {
    let versions = artifacts.versions(name).await?;
    if context.global.json {
        return print::json(&versions);
    }
    if versions.is_empty() {
        return print::line("no stored versions");
    }
    let (stored, time) = print::times(context.terminal, ["STORED", "STORED (UTC)"]);
    let ellipsis = context.terminal.ellipsis();
    let rows: Vec<Vec<String>> = versions
        .iter()
        .map(|version| {
            let changed = match version.changes.as_slice() {
                [] => String::new(),
                [(old, new)] => format!(
                    "{} -> {}",
                    short(old, 30, ellipsis),
                    short(new, 30, ellipsis)
                ),
                more => format!("{} replacements", more.len()),
            };
            vec![
                version.version.to_string(),
                format::bytes(version.size),
                version.update_type.as_str().to_owned(),
                version.source.as_str().to_owned(),
                time(version.created_at),
                changed,
            ]
        })
        .collect();
    print::table(
        context.terminal,
        &[
            Column::whole("VERSION"),
            Column::whole("SIZE"),
            Column::whole("BY").drops(1),
            Column::whole("FROM").drops(2),
            Column::whole(stored),
            Column::text("CHANGED", 12),
        ],
        &rows,
    )
}

fn short(foreign: &str, columns: usize, ellipsis: &str) -> String {
    text::cut(&text::safe_line(foreign), columns, ellipsis)
}

pub(super) fn stored(stored: &Stored) -> Result<(), Failure> {
    let Stored {
        name,
        version,
        size,
        content_type,
        ..
    } = stored;
    print::line(&text::safe_line(&format!(
        "{name} version {version}: {content_type}, {}",
        format::bytes(*size)
    )))
}

pub(super) fn edited(name: &str, edited: &EditView) -> Result<(), Failure> {
    let found = match (edited.layer, edited.similarity) {
        (Some(MatchLayer::Exact) | None, _) => "exact match".to_owned(),
        (Some(layer), similarity) => {
            // Round down, so that the similarity is never overstated.
            let percent = (similarity.unwrap_or(0.0) * 100.0).floor();
            format!("{layer} match, {percent} % similar")
        }
    };
    print::line(&text::safe_line(&format!(
        "{name} version {}: {found}",
        edited.version
    )))?;
    match (edited.layer, &edited.replaced) {
        (Some(MatchLayer::Exact) | None, _) | (_, None) => Ok(()),
        (_, Some(replaced)) => {
            print::line("replaced:")?;
            replaced.lines().try_for_each(|line| {
                print::line(&format!("  {}", text::safe_line_keep_spaces(line)))
            })
        }
    }
}

pub(super) fn deleted(
    context: &Context<'_>,
    name: &str,
    artifact: Option<&Artifact>,
    versions: &[ArtifactVersion],
) -> Result<(), Failure> {
    let numbers: Vec<u64> = versions.iter().map(|version| version.version).collect();
    if context.global.json {
        let artifact_id = artifact.map(|artifact| &artifact.artifact_id);
        let record = json!({ "name": name, "artifact_id": artifact_id, "versions": numbers });
        return print::json(&record);
    }
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    let what = match numbers.len() {
        0 => "no stored versions".to_owned(),
        1 => format!("version {}", numbers[0]),
        _ => format!("versions {}", numbers.join(", ")),
    };
    print::line(&text::safe_line(&format!("deleted {name}: {what}")))
}

pub(super) fn written(
    context: &Context<'_>,
    name: &str,
    path: &Path,
    size: u64,
) -> Result<(), Failure> {
    let line = format!(
        "{} written to {}, {}",
        text::safe_line(name),
        path.display(),
        format::bytes(size)
    );
    print::line_or_stderr(
        context.terminal,
        TextStyle::Plain,
        &text::safe_line_keep_spaces(&line),
    )
}

pub(super) fn cleaned(context: &Context<'_>, report: &CleanupReport) -> Result<(), Failure> {
    if context.global.json {
        return print::json(report);
    }
    for BusySession {
        session_id,
        artifacts,
    } in &report.busy
    {
        let artifacts = format::plural(
            usize::try_from(*artifacts).unwrap_or(usize::MAX),
            "artifact",
            "artifacts",
        );
        let line =
            format!("skipped: {artifacts} of session {session_id}, which has unfinished runs");
        print::line_or_stderr(context.terminal, TextStyle::Dim, &text::safe_line(&line))?;
    }
    let rows: Vec<Vec<String>> = report
        .candidates
        .iter()
        .map(|candidate| {
            let failed = report
                .failed
                .iter()
                .find(|failed| failed.artifact_id == candidate.artifact_id);
            let reason = cleanup::reason(&candidate.reason, failed.map(|failed| &failed.error));
            vec![
                candidate.session_id.to_string(),
                candidate
                    .name
                    .clone()
                    .unwrap_or_else(|| candidate.artifact_id.to_string()),
                format::bytes(candidate.bytes),
                format::time(candidate.updated_at),
                text::cut(
                    &text::safe_line(&reason),
                    COLUMNS * 2,
                    context.terminal.ellipsis(),
                ),
            ]
        })
        .collect();
    if !cleanup::print_candidates(
        context,
        &[
            Column::text("SESSION", 12),
            Column::text("ARTIFACT", 12),
            Column::whole("SIZE").drops(1),
            Column::whole("CHANGED (UTC)").drops(2),
            Column::text("REASON", 12),
        ],
        &rows,
    )? {
        return Ok(());
    }
    let bytes: u64 = report
        .candidates
        .iter()
        .map(|candidate| candidate.bytes)
        .sum();
    let all = format::plural(report.candidates.len(), "artifact", "artifacts");
    let deleted = (!report.dry_run).then_some(report.deleted.len());
    cleanup::close(context, &all, Some(format::bytes(bytes)), deleted)
}
