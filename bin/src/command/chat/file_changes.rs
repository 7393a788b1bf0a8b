//! Reverts the changes of project files that agents made after a message.
//!
//! A file is left alone if it was changed otherwise: its content must be the one that the last change wrote, and each
//! change must have begun with the content that the one before it wrote.
//!
//! Elsewhere: recording the changes (`soong_tool`), going back in the conversation (`going_back.rs`).

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures::StreamExt;
use soong::{
    protocol::{
        ArtifactEvent, Event, EventRecord, FileChange, MessageEvent, PreviousContent, SessionId, ToolEvent, TraceId,
    },
    tool::sha256,
};
use soong_client::{Client, artifact_path};
use soong_tui::{format, text};

use crate::{
    exit::{Exit, Failure},
    file,
};

/// Tools whose effects cannot be reverted.
const COMMAND_TOOLS: [&str; 1] = ["bash"];

/// Changes in a session after a message of its main trace.
#[derive(Debug, Default)]
pub(super) struct ChangesAfter {
    /// Changed files, in the order of the first change of each.
    files: Vec<ChangedFile>,
    /// Number of commands that ran.
    commands: usize,
    /// Whether goals were added or changed.
    has_goals: bool,
    /// Names of the documents that were edited.
    documents: BTreeSet<String>,
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

/// How a file is reverted.
#[derive(Debug, Clone, PartialEq)]
enum Reversion<'a> {
    Restore(&'a Bytes),
    Delete,
    /// It stays as it is, for this reason.
    Keep(&'static str),
}

impl ChangesAfter {
    /// Reads what has happened after a message, and the previous contents of the changed files.
    pub(super) async fn read(client: &Client, session: &SessionId, sequence: u64) -> Result<Self, Failure> {
        let trace = TraceId::root(session);
        let mut changes = Self::default();
        let mut since = 0;
        loop {
            let page = client.session_event_page(&trace, since).await?;
            let Some(last) = page.last() else { break };
            since = last.session_seq;
            page.iter().for_each(|record| changes.apply(record, &trace, sequence));
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
            Event::Message(MessageEvent::Added { sequence: added, .. })
                if record.trace_id == *trace && *added == sequence =>
            {
                *self = Self::default();
            }
            Event::Tool(ToolEvent::Completed { name, file_change, .. }) => {
                self.commands += usize::from(COMMAND_TOOLS.contains(&name.as_str()));
                let Some(change) = file_change else { return };
                let path = PathBuf::from(&change.path);
                match self.files.iter_mut().find(|file| file.path == path) {
                    Some(file) => file.changes.push(FileChange::clone(change)),
                    None => {
                        self.files.push(ChangedFile { path, changes: vec![FileChange::clone(change)], previous: None })
                    }
                }
            }
            Event::Goal(_) if record.trace_id == *trace => self.has_goals = true,
            Event::Artifact(ArtifactEvent::Edited { name, .. }) => drop(self.documents.insert(name.clone())),
            _ => {}
        }
    }

    /// Returns whether files were changed.
    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Returns lines that say what going back changes. `messages`: number of messages that are taken back.
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
            let name = project.and_then(|project| file.path.strip_prefix(project).ok()).unwrap_or(&file.path).display();
            lines.push(match file.reversion() {
                Reversion::Restore(_) => format!("files: restores {name}"),
                Reversion::Delete => format!("files: deletes {name}, which is new"),
                Reversion::Keep(why) => format!("files: leaves {name} alone: {why}"),
            });
        }
        if self.commands > 0 {
            lines.push(format!("not undone: effects of {}", format::plural(self.commands, "command", "commands")));
        }
        lines.iter().map(|line| text::safe_line(line)).collect()
    }

    /// Reverts the files. Returns the paths of those that were reverted. Stops at the first error.
    pub(super) async fn revert(&self) -> Result<Vec<&Path>, Failure> {
        let mut reverted = Vec::new();
        for file in &self.files {
            match file.reversion() {
                Reversion::Keep(_) => continue,
                Reversion::Delete => std::fs::remove_file(&file.path).map_err(|error| {
                    let what = format!("the file {} cannot be deleted: {error}", file.path.display());
                    Failure::new(Exit::Failed, what, "Check its folder and its permissions.")
                })?,
                Reversion::Restore(content) => {
                    file::write(&file.path, futures::stream::iter([Ok(content.clone())]).boxed()).await?;
                }
            }
            reverted.push(file.path.as_path());
        }
        Ok(reverted)
    }
}

impl ChangedFile {
    /// Decides how the file is reverted. Reads its current content.
    fn reversion(&self) -> Reversion<'_> {
        // A folder of the path that has become a symbolic link would lead elsewhere.
        let is_same_place = self.path.canonicalize().is_ok_and(|place| place == self.path);
        let current = std::fs::read(&self.path).ok().filter(|_| is_same_place).map(|bytes| sha256(&bytes));
        self.reversion_from(current.as_deref())
    }

    /// Decides how the file is reverted. `current`: the hash of its content; `None` if it does not exist.
    fn reversion_from(&self, current: Option<&str>) -> Reversion<'_> {
        const NOT_KEPT: Reversion<'_> = Reversion::Keep("its previous content is not kept");
        let Some(current) = current else { return Reversion::Keep("it was removed since") };
        if self.changes.last().is_none_or(|last| last.sha256 != current) {
            return Reversion::Keep("it was changed since");
        }
        for pair in self.changes.windows(2) {
            match &pair[1].previous {
                Some(previous) if previous.sha256 == pair[0].sha256 => {}
                None if !pair[1].created => return NOT_KEPT,
                _ => return Reversion::Keep("it was also changed by others"),
            }
        }
        match &self.previous {
            _ if self.changes[0].created => Reversion::Delete,
            Some(previous) => Reversion::Restore(previous),
            None => NOT_KEPT,
        }
    }
}

/// Reads a content that was kept. Returns `None` if it was deleted, or if secrets in it were removed when it was stored.
async fn load(client: &Client, session: &SessionId, previous: &PreviousContent) -> Result<Option<Bytes>, Failure> {
    let mut body = match client.open(&artifact_path(session, previous.artifact_id.as_str(), "/content")).await {
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

    /// Returns a change from one content to another. `None`: the file is created; `Some("?")`: the content is not kept.
    fn change(from: Option<&str>, to: &str) -> FileChange {
        let stored = from.filter(|from| *from != "?");
        let previous =
            stored.map(|from| PreviousContent { artifact_id: ArtifactId::new("a"), sha256: sha256(from.as_bytes()) });
        let sha256 = sha256(to.as_bytes());
        FileChange { path: "/p/a".to_owned(), sha256, created: from.is_none(), previous, diff: None }
    }

    #[test]
    fn file_that_others_changed_is_left_alone() {
        let old = Bytes::from("old");
        let restore = || Reversion::Restore(&old);
        for (changes, current, want) in [
            (vec![(Some("old"), "1")], Some("1"), restore()),
            (vec![(Some("old"), "1"), (Some("1"), "2")], Some("2"), restore()),
            (vec![(Some("old"), "1")], Some("mine"), Reversion::Keep("it was changed since")),
            (vec![(Some("old"), "1")], None, Reversion::Keep("it was removed since")),
            (
                vec![(Some("old"), "1"), (Some("mine"), "2")],
                Some("2"),
                Reversion::Keep("it was also changed by others"),
            ),
            (vec![(Some("old"), "1"), (None, "2")], Some("2"), Reversion::Keep("it was also changed by others")),
            (
                vec![(Some("old"), "1"), (Some("?"), "2")],
                Some("2"),
                Reversion::Keep("its previous content is not kept"),
            ),
            (vec![(Some("?"), "1")], Some("1"), Reversion::Keep("its previous content is not kept")),
            (vec![(None, "1"), (Some("1"), "2")], Some("2"), Reversion::Delete),
        ] {
            let made: Vec<FileChange> = changes.iter().map(|(from, to)| change(*from, to)).collect();
            let previous = made[0].previous.as_ref().map(|_| old.clone());
            let file = ChangedFile { path: "/p/a".into(), changes: made, previous };
            let current = current.map(|text: &str| sha256(text.as_bytes()));
            assert_eq!(file.reversion_from(current.as_deref()), want, "{changes:?} {current:?}");
        }
    }
}
