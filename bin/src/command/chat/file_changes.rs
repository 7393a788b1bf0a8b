//! Reverts the changes of project files that agents made after a message.
//!
//! A file is left alone if it was changed otherwise: its content, and the content at the start of
//! each change, must be one that an agent wrote or replaced earlier.
//!
//! Elsewhere: recording the changes (`soong_tool`), going back in the conversation
//! (`going_back.rs`).

use std::{
    collections::BTreeSet,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures::StreamExt;
use soong::{
    protocol::{
        ArtifactEvent, Event, EventRecord, FileChange, MessageEvent, PreviousContent, SessionId,
        ToolEvent, TraceId,
        api::{VersionQuery, operation::ReadContent},
    },
    tool::{self, sha256},
};
use soong_client::Client;
use soong_tui::{format, text};

use crate::exit::{Exit, Failure};

/// Changes in a session after a message of its main trace.
#[derive(Debug, Default)]
pub(super) struct ChangesAfter {
    /// Changed files, in the order of the first change of each.
    files: Vec<ChangedFile>,
    /// Number of commands that ran, also of those that failed.
    commands: usize,
    /// Number of calls of tools of MCP servers.
    mcp_calls: usize,
    /// Whether goals were added or changed.
    has_goals: bool,
    /// Names of the documents that were edited.
    documents: BTreeSet<String>,
    /// Whether the event of the message was read. A fork copies messages without their events.
    is_complete: bool,
}

/// A file that agents changed.
#[derive(Debug)]
struct ChangedFile {
    path: PathBuf,
    /// At least one.
    changes: Vec<FileChange>,
    /// Content before the first change, if it is kept.
    previous: Option<Bytes>,
}

/// The files that [`ChangesAfter::revert`] has handled.
#[derive(Debug, Default)]
pub(super) struct Reverted<'a> {
    /// Files that were reverted.
    pub(super) files: Vec<&'a Path>,
    /// Files that stay as they are, each with the reason.
    pub(super) unchanged: Vec<(&'a Path, &'static str)>,
    /// The error that ended it.
    pub(super) failure: Option<Failure>,
}

/// How a file is reverted.
#[derive(Debug, Clone, PartialEq)]
enum Reversion<'a> {
    Restore(&'a Bytes),
    Delete,
    /// It has its previous content already, or does not exist as before.
    Unneeded,
    /// It stays as it is, for this reason.
    Keep(&'static str),
}

impl ChangesAfter {
    /// Reads what has happened after a message, and the previous contents of the changed files.
    pub(super) async fn read(
        client: &Client,
        session: &SessionId,
        sequence: u64,
    ) -> Result<Self, Failure> {
        let trace = TraceId::root(session);
        let mut changes = Self::default();
        let mut since = 0;
        loop {
            let page = client.session_event_page(&trace, since).await?;
            let Some(last) = page.last() else { break };
            since = last.session_seq;
            page.iter()
                .for_each(|record| changes.apply(record, &trace, sequence));
        }
        for file in &mut changes.files {
            if let Some(previous) = &file.changes[0].previous {
                file.previous = load(client, session, previous).await?;
            }
        }
        Ok(changes)
    }

    /// Applies an event. The event of the message itself discards everything before it.
    fn apply(&mut self, record: &EventRecord, trace: &TraceId, sequence: u64) {
        match &record.event {
            Event::Message(MessageEvent::Added {
                sequence: added, ..
            }) if record.trace_id == *trace && *added == sequence => {
                *self = Self {
                    is_complete: true,
                    ..Self::default()
                };
            }
            Event::Tool(ToolEvent::Completed {
                name, file_change, ..
            }) => {
                self.count_call(name);
                let Some(change) = file_change else { return };
                let path = PathBuf::from(&change.path);
                match self.files.iter_mut().find(|file| file.path == path) {
                    Some(file) => file.changes.push(FileChange::clone(change)),
                    None => self.files.push(ChangedFile {
                        path,
                        changes: vec![FileChange::clone(change)],
                        previous: None,
                    }),
                }
            }
            Event::Tool(ToolEvent::Failed { name, .. }) => self.count_call(name),
            Event::Goal(_) if record.trace_id == *trace => self.has_goals = true,
            Event::Artifact(ArtifactEvent::Edited { name, .. }) => {
                self.documents.insert(name.clone());
            }
            _ => {}
        }
    }

    /// Counts a call whose effects cannot be reverted.
    fn count_call(&mut self, tool: &str) {
        self.commands += usize::from(tool == "bash");
        self.mcp_calls += usize::from(tool.starts_with("mcp."));
    }

    /// Returns whether files differ from their state at the message.
    pub(super) fn has_files(&self) -> bool {
        self.files
            .iter()
            .any(|file| file.reversion() != Reversion::Unneeded)
    }

    /// Returns lines that say what going back changes. `messages`: number of messages that are
    /// taken back.
    pub(super) fn preview(&self, messages: usize, project: Option<&Path>) -> Vec<String> {
        let mut parts = vec![format::plural(messages, "message", "messages")];
        if self.has_goals {
            parts.push("changes of goals".to_owned());
        }
        if !self.documents.is_empty() {
            let names: Vec<&str> = self.documents.iter().map(String::as_str).collect();
            parts.push(format!("edits of {}", names.join(", ")));
        }
        let mut lines = vec![format!("conversation: takes back {}", parts.join(", "))];
        for file in &self.files {
            let name = project
                .and_then(|project| file.path.strip_prefix(project).ok())
                .unwrap_or(&file.path)
                .display();
            lines.push(match file.reversion() {
                Reversion::Restore(_) => format!("files: restores {name}"),
                Reversion::Delete => format!("files: deletes {name}, which is new"),
                Reversion::Keep(why) => format!("files: leaves {name} alone: {why}"),
                Reversion::Unneeded => continue,
            });
        }
        if !self.is_complete {
            lines.push(
                "files: keeps all changes from before this session was forked; it has no record of them".to_owned(),
            );
        }
        let commands =
            (self.commands > 0).then(|| format::plural(self.commands, "command", "commands"));
        let calls =
            (self.mcp_calls > 0).then(|| format::plural(self.mcp_calls, "MCP call", "MCP calls"));
        let effects: Vec<String> = commands.into_iter().chain(calls).collect();
        if !effects.is_empty() {
            lines.push(format!("not undone: effects of {}", effects.join(" and ")));
        }
        lines.iter().map(|line| text::safe_line(line)).collect()
    }

    /// Reverts the files, and stops at the first error.
    pub(super) fn revert(&self) -> Reverted<'_> {
        let mut reverted = Reverted::default();
        for file in &self.files {
            let reversion = file.reversion();
            // The file may be changed at any time, so its content is checked again when it is
            // replaced.
            let is_expected = |current: &mut File| {
                let mut bytes = Vec::new();
                let is_read = current.read_to_end(&mut bytes).is_ok();
                is_read && file.reversion_from(Some(&sha256(&bytes))) == reversion
            };
            let outcome = match &reversion {
                Reversion::Unneeded => continue,
                Reversion::Keep(why) => {
                    reverted.unchanged.push((&file.path, why));
                    continue;
                }
                Reversion::Delete => tool::remove_if(&file.path, is_expected),
                Reversion::Restore(content) => tool::replace_if(&file.path, content, is_expected),
            };
            match outcome {
                Ok(true) => reverted.files.push(&file.path),
                Ok(false) => reverted
                    .unchanged
                    .push((&file.path, "it was changed meanwhile")),
                Err(error) => {
                    let what = format!(
                        "the file {} cannot be reverted: {error}",
                        file.path.display()
                    );
                    let failure =
                        Failure::new(Exit::Failed, what, "Check its folder and its permissions.");
                    reverted.failure = Some(failure);
                    break;
                }
            }
        }
        reverted
    }
}

impl ChangedFile {
    /// Decides how the file is reverted. Reads its current content.
    fn reversion(&self) -> Reversion<'_> {
        let bytes = match std::fs::read(&self.path) {
            // A folder of the path that has become a symbolic link would lead elsewhere.
            Ok(_) if self.path.canonicalize().ok().as_ref() != Some(&self.path) => {
                return Reversion::Keep("its path leads elsewhere now");
            }
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(_) => return Reversion::Keep("it cannot be read"),
        };
        self.reversion_from(bytes.map(|bytes| sha256(&bytes)).as_deref())
    }

    /// Decides how the file is reverted. `current`: the hash of its content; `None` if it does not
    /// exist.
    fn reversion_from(&self, current: Option<&str>) -> Reversion<'_> {
        const NOT_KEPT: Reversion<'_> = Reversion::Keep("its previous content is not kept");
        // Hashes of the contents that agents have written or replaced; `None`: the file did not
        // exist.
        let mut known: Vec<Option<&str>> = Vec::new();
        for change in &self.changes {
            let before = change
                .previous
                .as_ref()
                .map(|previous| previous.sha256.as_str());
            match before {
                None if !change.created => return NOT_KEPT,
                before if known.is_empty() => known.push(before),
                // A user may have reverted earlier changes.
                before if known.contains(&before) => {}
                _ => return Reversion::Keep("it was also changed by others"),
            }
            known.push(Some(&change.sha256));
        }
        match (&self.previous, current) {
            _ if known.first() == Some(&current) => Reversion::Unneeded,
            (_, None) => Reversion::Keep("it was removed since"),
            _ if !known.contains(&current) => Reversion::Keep("it was changed since"),
            _ if self.changes[0].created => Reversion::Delete,
            (Some(previous), _) => Reversion::Restore(previous),
            (None, _) => NOT_KEPT,
        }
    }
}

/// Reads a content that was kept. Returns `None` if it was deleted, or if secrets in it were
/// removed when it was stored.
async fn load(
    client: &Client,
    session: &SessionId,
    previous: &PreviousContent,
) -> Result<Option<Bytes>, Failure> {
    let mut body = match client
        .open_content(ReadContent {
            session_id: session.clone(),
            name: previous.artifact_id.to_string(),
            query: VersionQuery::default(),
        })
        .await
    {
        Ok(found) => found.body,
        Err(error) if error.code == soong::ErrorCode::ArtifactNotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok((sha256(&bytes) == previous.sha256).then(|| bytes.into()))
}

#[cfg(test)]
mod tests {
    use soong::protocol::ArtifactId;

    use super::*;

    /// Returns a change from one content to another. `None`: the file is created; `Some("?")`: the
    /// content is not kept.
    fn change(from: Option<&str>, to: &str) -> FileChange {
        let stored = from.filter(|from| *from != "?");
        let previous = stored.map(|from| PreviousContent {
            artifact_id: ArtifactId::new("a"),
            sha256: sha256(from.as_bytes()),
        });
        let sha256 = sha256(to.as_bytes());
        FileChange {
            path: "/p/a".to_owned(),
            sha256,
            created: from.is_none(),
            previous,
            diff: None,
        }
    }

    #[test]
    fn file_that_others_changed_is_left_alone() {
        let old = Bytes::from("old");
        let restore = || Reversion::Restore(&old);
        for (changes, current, want) in [
            (vec![(Some("old"), "1")], Some("1"), restore()),
            (
                vec![(Some("old"), "1"), (Some("1"), "2")],
                Some("2"),
                restore(),
            ),
            (
                vec![(Some("old"), "1")],
                Some("mine"),
                Reversion::Keep("it was changed since"),
            ),
            (
                vec![(Some("old"), "1")],
                None,
                Reversion::Keep("it was removed since"),
            ),
            (
                vec![(Some("old"), "1"), (Some("mine"), "2")],
                Some("2"),
                Reversion::Keep("it was also changed by others"),
            ),
            (
                vec![(Some("old"), "1"), (None, "2")],
                Some("2"),
                Reversion::Keep("it was also changed by others"),
            ),
            (
                vec![(Some("old"), "1"), (Some("?"), "2")],
                Some("2"),
                Reversion::Keep("its previous content is not kept"),
            ),
            (
                vec![(Some("?"), "1")],
                Some("1"),
                Reversion::Keep("its previous content is not kept"),
            ),
            (
                vec![(None, "1"), (Some("1"), "2")],
                Some("2"),
                Reversion::Delete,
            ),
            // Changes that were reverted before.
            (vec![(Some("old"), "1")], Some("old"), Reversion::Unneeded),
            (vec![(None, "1")], None, Reversion::Unneeded),
            (
                vec![(None, "1"), (Some("1"), "2")],
                Some("1"),
                Reversion::Delete,
            ),
            (vec![(None, "1"), (None, "2")], Some("2"), Reversion::Delete),
            (
                vec![(Some("old"), "1"), (Some("old"), "2")],
                Some("2"),
                restore(),
            ),
        ] {
            let made: Vec<FileChange> =
                changes.iter().map(|(from, to)| change(*from, to)).collect();
            let previous = made[0].previous.as_ref().map(|_| old.clone());
            let file = ChangedFile {
                path: "/p/a".into(),
                changes: made,
                previous,
            };
            let current = current.map(|text: &str| sha256(text.as_bytes()));
            assert_eq!(
                file.reversion_from(current.as_deref()),
                want,
                "{changes:?} {current:?}"
            );
        }
    }
}
