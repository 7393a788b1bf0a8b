//! Removes the temporary files of writes that were cut off when the process was killed (TOOL-8).
//!
//! Such files are looked for in the folders that the last calls of interrupted runs name.
//! Elsewhere: what a temporary file is (`soong_tool`), the runs (`recovery.rs`).

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::SystemTime};

use serde_json::Value;
use soong_protocol::{Message, Role, Run, ToolCall, TraceId};
use soong_storage::store::{Reader, StoreError};
use soong_text::unwrap_json_string;
use soong_tool::remove_drafts_beside;

use super::services::Services;

/// Starts to remove the files that interrupted runs may have left.
pub(super) fn remove_in_background(services: &Arc<Services>, interrupted: &[Run]) {
    let started_runs: Vec<Run> = interrupted
        .iter()
        .filter(|run| run.started_at.is_some())
        .cloned()
        .collect();
    if started_runs.is_empty() {
        return;
    }
    // No run of this process writes yet.
    let opened_at = SystemTime::now();
    let reader = services.core.reader.clone();
    let roots = services.resolver.projects.roots();
    services.core.lifetime.spawn(async move {
        let paths = match reader
            .read(move |reader| written_paths(reader, &started_runs))
            .await
        {
            Ok(paths) => paths,
            Err(error) => {
                // The files only take up space.
                tracing::warn!(%error, "temporary files of writes that were cut off may be left");
                return;
            }
        };
        let removal = tokio::task::spawn_blocking(move || {
            for (project, path) in paths {
                let removed = remove_drafts_beside(&roots, &project, &path, opened_at);
                if removed > 0 {
                    tracing::info!(
                        removed,
                        path,
                        "removed temporary files of a write that was cut off"
                    );
                }
            }
        });
        // A panic is logged, and the files only take up space.
        let _ = removal.await;
    });
}

/// Returns the paths that the last calls of these runs write, each with its project.
fn written_paths(
    reader: &dyn Reader,
    runs: &[Run],
) -> Result<BTreeSet<(PathBuf, String)>, StoreError> {
    let mut paths = BTreeSet::new();
    for run in runs {
        let Some(session) = reader.session(&run.session_id)? else {
            continue;
        };
        let Some(last_answer) = last_answer(reader, &run.trace_id)? else {
            continue;
        };
        for path in last_answer.tool_calls.iter().filter_map(written_path) {
            paths.insert((PathBuf::from(&session.project_dir), path));
        }
    }
    Ok(paths)
}

/// Returns the last answer of a conversation, if only results of its calls follow it.
fn last_answer(reader: &dyn Reader, trace: &TraceId) -> Result<Option<Message>, StoreError> {
    let head = reader.trace(trace)?.map_or(0, |trace| trace.head_sequence);
    let mut next = Some(head);
    while let Some(sequence) = next {
        let Some(message) = reader.messages_at(trace, &[sequence])?.pop() else {
            break;
        };
        match message.role {
            Role::Assistant => return Ok(Some(message)),
            Role::Tool => next = message.parent_sequence,
            Role::User | Role::System => break,
        }
    }
    Ok(None)
}

/// Returns the path that a call writes; `None` if it writes no file.
fn written_path(call: &ToolCall) -> Option<String> {
    if call.name != "write" && call.name != "edit" {
        return None;
    }
    let unwrapped = unwrap_json_string(&call.arguments);
    let arguments: Value =
        serde_json::from_str(unwrapped.as_deref().unwrap_or(&call.arguments)).ok()?;
    Some(arguments.get("path")?.as_str()?.to_owned())
}
