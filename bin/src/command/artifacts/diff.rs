//! `soong artifacts diff`: compares two versions of a text.

use futures::TryStreamExt;
use serde_json::json;
use soong::{artifact::is_text, tool::unified_diff};
use soong_tui::{terminal::TextStyle, text};

use super::{Context, session_artifacts::SessionArtifacts};
use crate::{
    exit::{Exit, Failure},
    print,
};

/// Prints the difference between two versions; see the help for the default numbers.
pub(super) async fn diff(
    context: &Context<'_>,
    artifacts: &SessionArtifacts,
    name: &str,
    from: Option<u64>,
    to: Option<u64>,
) -> Result<(), Failure> {
    let (from, to) = match (from, to) {
        (Some(from), to) => (from, to),
        (None, _) => default_versions(artifacts, name).await?,
    };
    let old = content(artifacts, name, Some(from)).await?;
    let new = content(artifacts, name, to).await?;
    let diff = unified_diff(&old, &new).ok_or_else(|| {
        let what = format!("these versions of {name} have too many different lines to compare");
        Failure::new(
            Exit::Failed,
            what,
            "Get both with `soong artifacts get`, and compare the files.",
        )
    })?;
    if context.global.json {
        return print::json(&json!({ "name": name, "from": from, "to": to, "diff": diff }));
    }
    let to = to.map_or_else(
        || "current content".to_owned(),
        |to| format!("version {to}"),
    );
    let heading = text::safe_line(&format!("{name}: version {from} and {to}"));
    print::line_or_stderr(context.terminal, TextStyle::Bold, &heading)?;
    if old == new {
        return print::line_or_stderr(context.terminal, TextStyle::Plain, "no difference");
    }
    // The first two lines name files.
    diff.split_terminator('\n').skip(2).try_for_each(|line| {
        let style = match line.as_bytes().first() {
            Some(b'+') => TextStyle::Green,
            Some(b'-') => TextStyle::Red,
            Some(b'@') => TextStyle::Cyan,
            _ => TextStyle::Plain,
        };
        // Otherwise a line whose end has changed would look the same.
        let line = line
            .strip_suffix('\r')
            .map_or_else(|| line.to_owned(), |line| format!("{line}\\r"));
        print::line(
            &context
                .terminal
                .stdout
                .paint(style, &text::safe_line_keep_spaces(&line)),
        )
    })
}

/// Returns the versions to compare if the user names none; `None`: the current content.
async fn default_versions(
    artifacts: &SessionArtifacts,
    name: &str,
) -> Result<(u64, Option<u64>), Failure> {
    let is_dirty = artifacts.show(name).await?.artifact.dirty;
    let mut stored: Vec<u64> = artifacts
        .versions(name)
        .await?
        .iter()
        .map(|version| version.version)
        .collect();
    stored.sort_unstable();
    match stored[..] {
        [.., last] if is_dirty => Ok((last, None)),
        [.., before, last] => Ok((before, Some(last))),
        _ => {
            let what = format!("{name} has no earlier version to compare with");
            Err(Failure::new(
                Exit::NotFound,
                what,
                "See `soong artifacts versions NAME`.",
            ))
        }
    }
}

/// Returns the text of a version, or the current one.
async fn content(
    artifacts: &SessionArtifacts,
    name: &str,
    version: Option<u64>,
) -> Result<String, Failure> {
    let content = artifacts.content(name, version).await?;
    if !is_text(&content.content_type) {
        let what = format!("{name} is {}, not text", content.content_type);
        return Err(Failure::usage(
            what,
            "Get both versions with `soong artifacts get`, and compare the files.",
        ));
    }
    let pieces: Vec<bytes::Bytes> = content.body.try_collect().await?;
    Ok(String::from_utf8_lossy(&pieces.concat()).into_owned())
}
