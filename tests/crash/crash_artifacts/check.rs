//! Compares the database, the files and the acknowledged reports of a home that has been opened
//! after a kill.
//!
//! The content of each document is computed again from its stored versions and edits, by
//! independent code. Nothing is repaired; every violation is reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

use soong::{
    MessagePath, Runtime, TraceFilter,
    artifact::ArtifactOwner,
    protocol::{
        Artifact, ArtifactEvent, ArtifactId, ArtifactScope, Event, EventRecord, Message, Role,
        RunId, SessionId, ToolEvent,
    },
};
use soong_storage::{sqlite::SqliteReader, store::Reader};

use super::{
    Failed,
    report::{self, ReportLedger},
    run_timeline::first_violation,
};

/// Counters of what was checked.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) kills: u64,
    openings: u64,
    acknowledged_edits: usize,
    acknowledged_versions: usize,
    acknowledged_events: usize,
    deleted: usize,
    versions: usize,
    edits: usize,
    orphans: usize,
    interrupted: usize,
}

impl Counts {
    /// Counts the announced files and live runs that a child left for startup to repair.
    pub(crate) fn take_before(&mut self, reader: &SqliteReader) -> Result<(), Failed> {
        self.orphans += reader.blob_intents()?.len();
        self.interrupted += reader.live_runs(None)?.len();
        Ok(())
    }

    /// Counts the acknowledged reports of a home that is no longer used.
    pub(crate) fn close(&mut self, ledger: &ReportLedger) {
        self.acknowledged_edits += ledger.edited.len();
        self.acknowledged_versions += ledger.saved.len();
        self.acknowledged_events += ledger.events.len();
        self.deleted += ledger.deleted.len();
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills, {} openings; acknowledged: {} edits, {} versions, {} deletions, {} events; compared: {} \
             versions, {} edits; repaired: {} announced files, {} runs",
            self.kills,
            self.openings,
            self.acknowledged_edits,
            self.acknowledged_versions,
            self.deleted,
            self.acknowledged_events,
            self.versions,
            self.edits,
            self.orphans,
            self.interrupted
        )
    }
}

/// State of an artifact, computed from its rows and files.
struct CheckedArtifact {
    artifact: Artifact,
    /// Content by number: after an edit, or as stored.
    contents: BTreeMap<u64, Vec<u8>>,
    /// Run and tool call of each edit.
    edits: BTreeMap<u64, (RunId, String)>,
}

/// Checks everything. Returns the violations.
pub(crate) async fn all(
    runtime: &Runtime,
    reader: &SqliteReader,
    ledger: &ReportLedger,
    counts: &mut Counts,
) -> Result<Vec<String>, Failed> {
    counts.openings += 1;
    let mut wrong: Vec<String> = reader.check_integrity()?;
    wrong.extend(
        reader
            .blob_intents()?
            .iter()
            .map(|path| format!("the write intent of {path} still exists")),
    );
    for run in reader.live_runs(None)? {
        wrong.push(format!(
            "run {} is still {}",
            run.run_id,
            run.status.as_str()
        ));
    }
    let mut artifacts: Vec<Artifact> = reader
        .session_artifacts()?
        .into_iter()
        .map(|(artifact, _)| artifact)
        .collect();
    artifacts.extend(reader.artifacts(&ArtifactScope::User {
        uid: "local".to_owned(),
    })?);
    let mut found = BTreeMap::new();
    let mut paths = BTreeSet::new();
    for artifact in artifacts {
        let one = replay(
            runtime.info().home(),
            reader,
            artifact,
            &mut paths,
            &mut wrong,
        )?;
        counts.versions += reader.versions(&one.artifact.artifact_id)?.len();
        counts.edits += one.edits.len();
        compare_with_library(runtime, &one, &mut wrong).await;
        found.insert(one.artifact.artifact_id.clone(), one);
    }
    for folder in ["sessions", "users"] {
        walk(
            runtime.info().home(),
            &runtime.info().home().join(folder),
            &paths,
            &mut wrong,
        )?;
    }
    acknowledged(&found, ledger, &mut wrong);
    let events = histories(reader, &mut wrong)?;
    for ((trace, event_id), (kind, data)) in &ledger.events {
        let stored = events
            .get(trace.as_str())
            .and_then(|of| of.get(*event_id as usize - 1));
        if !stored.is_some_and(|stored| stored.event.kind() == kind && stored.data == *data) {
            wrong.push(format!(
                "event {event_id} of {trace} ({kind}) was seen but is not stored"
            ));
        }
    }
    let gone: BTreeSet<&ArtifactId> = events
        .values()
        .flatten()
        .filter_map(|record| match &record.event {
            Event::Artifact(ArtifactEvent::Deleted { artifact_id, .. }) => Some(artifact_id),
            _ => None,
        })
        .collect();
    for record in events.values().flatten() {
        compare_with_event(&found, &gone, ledger, record, &mut wrong);
    }
    Ok(wrong)
}

/// Reads the versions and edits of an artifact, and replays them.
fn replay(
    home: &Path,
    reader: &SqliteReader,
    artifact: Artifact,
    paths: &mut BTreeSet<String>,
    wrong: &mut Vec<String>,
) -> Result<CheckedArtifact, Failed> {
    let id = artifact.artifact_id.clone();
    let label = format!("{} ({id})", artifact.key());
    let mut found = CheckedArtifact {
        artifact,
        contents: BTreeMap::new(),
        edits: BTreeMap::new(),
    };
    let current = found.artifact.current_version;
    let stored = found.artifact.stored_version;
    if current != stored {
        wrong
            .push(format!("{label} has edits up to {current} and no run, but only version version {stored} is stored"));
    }
    let versions = reader.versions(&id)?;
    if !versions.is_sorted_by(|a, b| a.version < b.version)
        || versions.last().map(|one| one.version) != Some(stored)
    {
        let numbers: Vec<u64> = versions.iter().map(|one| one.version).collect();
        wrong.push(format!(
            "{label} has versions {numbers:?}, but its last version should be {stored}"
        ));
    }
    let mut files: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for version in &versions {
        let Some(path) = reader.blob_path(&id, version.version)? else {
            continue;
        };
        match std::fs::read(home.join(&path)) {
            Ok(bytes) if bytes.len() as u64 == version.size => {
                drop(files.insert(version.version, bytes))
            }
            Ok(bytes) => wrong.push(format!(
                "{path} has {} bytes instead of {}",
                bytes.len(),
                version.size
            )),
            Err(error) => wrong.push(format!("{path} of {label} read failed: {error}")),
        }
        paths.insert(path);
    }
    let mut edits = reader
        .edits(&id, 0, i64::MAX as u64)?
        .into_iter()
        .peekable();
    let mut text: Vec<u8> = Vec::new();
    for number in 1..=current {
        let edit = edits.next_if(|edit| edit.revision == number);
        match (&edit, files.remove(&number)) {
            (Some(edit), file) => {
                let start = edit.splice.start as usize;
                let removed = edit.splice.removed as usize;
                if start + removed > text.len() {
                    wrong.push(format!("edit {number} of {label} is outside its text"));
                    break;
                }
                text.splice(start..start + removed, edit.splice.inserted.bytes());
                found.edits.insert(
                    number,
                    (edit.effect.run_id.clone(), edit.effect.tool_call_id.clone()),
                );
                if file.is_some_and(|file| file != text) {
                    wrong.push(format!(
                        "version {number} of {label} does not match its edits"
                    ));
                }
            }
            (None, Some(file)) => text = file,
            (None, None) => wrong.push(format!(
                "{label} has neither an edit nor a version {number}"
            )),
        }
        found.contents.insert(number, text.clone());
    }
    wrong.extend(edits.map(|edit| {
        format!(
            "{label} has an edit {} beyond its number {current}",
            edit.revision
        )
    }));
    if text.len() as u64 != found.artifact.size {
        wrong.push(format!(
            "{label} is recorded with {} bytes, but has {}",
            found.artifact.size,
            text.len()
        ));
    }
    Ok(found)
}

/// Checks that the library returns the computed content.
async fn compare_with_library(runtime: &Runtime, found: &CheckedArtifact, wrong: &mut Vec<String>) {
    let artifact = &found.artifact;
    let (session_id, uid) = match &artifact.scope {
        ArtifactScope::Session { session_id } => (session_id.clone(), "local".to_owned()),
        ArtifactScope::User { uid } => (SessionId::new("any"), uid.clone()),
    };
    let owner = ArtifactOwner { session_id, uid };
    let loaded = match runtime
        .artifacts()
        .load(&owner, &artifact.key(), None)
        .await
    {
        Ok(loaded) => loaded.bytes().await,
        Err(error) => Err(error),
    };
    match loaded {
        Ok(bytes)
            if found
                .contents
                .get(&artifact.current_version)
                .is_some_and(|content| *content == bytes) => {}
        Ok(bytes) => wrong.push(format!(
            "{} is read as {} different bytes",
            artifact.key(),
            bytes.len()
        )),
        Err(error) => wrong.push(format!("{} read failed: {error}", artifact.key())),
    }
}

/// Checks that each file belongs to a version, and that no folder below `artifacts` is empty.
fn walk(
    home: &Path,
    folder: &Path,
    paths: &BTreeSet<String>,
    wrong: &mut Vec<String>,
) -> Result<(), Failed> {
    if !folder.is_dir() {
        return Ok(());
    }
    let shown = folder.strip_prefix(home)?;
    let mut is_empty = true;
    for entry in std::fs::read_dir(folder)? {
        is_empty = false;
        let path = entry?.path();
        if path.is_dir() {
            walk(home, &path, paths, wrong)?;
        } else if !paths.contains(&path.strip_prefix(home)?.display().to_string()) {
            wrong.push(format!(
                "{} belongs to no version",
                path.strip_prefix(home)?.display()
            ));
        }
    }
    // The folder sessions/ID/artifacts may be empty.
    if is_empty && shown.components().count() > 3 {
        wrong.push(format!("{} is an empty folder", shown.display()));
    }
    Ok(())
}

/// Checks that stored and deleted artifacts match the reports of the children.
fn acknowledged(
    found: &BTreeMap<ArtifactId, CheckedArtifact>,
    ledger: &ReportLedger,
    wrong: &mut Vec<String>,
) {
    let may_be_gone = |id: &ArtifactId| ledger.deleting.contains(id);
    for ((id, version), (size, hash)) in &ledger.saved {
        match found.get(id) {
            None if may_be_gone(id) => {}
            None => wrong.push(format!(
                "{id} was acknowledged in version {version} but is missing"
            )),
            Some(one) => match one.contents.get(version) {
                Some(bytes) if bytes.len() as u64 == *size && report::hash(bytes) == *hash => {}
                Some(_) => wrong.push(format!(
                    "version {version} of {} differs from what was saved",
                    one.artifact.key()
                )),
                None => wrong.push(format!(
                    "version {version} of {} is missing",
                    one.artifact.key()
                )),
            },
        }
    }
    for ((id, version), text) in &ledger.edited {
        match found.get(id) {
            None if may_be_gone(id) => {}
            None => wrong.push(format!("{id} was seen at edit {version} but is missing")),
            Some(one)
                if one
                    .contents
                    .get(version)
                    .is_some_and(|bytes| bytes == text.as_bytes()) => {}
            Some(one) => wrong.push(format!(
                "edit {version} of {} differs from what was seen",
                one.artifact.key()
            )),
        }
    }
    for id in ledger.deleted.iter().filter(|id| found.contains_key(*id)) {
        wrong.push(format!("{id} was deleted but exists again"));
    }
}

/// Checks that a stored event matches the state of its artifact.
fn compare_with_event(
    found: &BTreeMap<ArtifactId, CheckedArtifact>,
    gone: &BTreeSet<&ArtifactId>,
    ledger: &ReportLedger,
    record: &EventRecord,
    wrong: &mut Vec<String>,
) {
    let (id, number, text, call) = match &record.event {
        Event::Artifact(ArtifactEvent::Edited { snapshot, .. }) => (
            &snapshot.artifact_id,
            snapshot.version,
            snapshot.content.as_deref(),
            None,
        ),
        Event::Artifact(ArtifactEvent::Saved {
            artifact_id,
            version,
            ..
        }) => (artifact_id, *version, None, None),
        Event::Tool(ToolEvent::Completed {
            tool_call_id,
            name,
            artifact_ref: Some(artifact),
            ..
        }) => {
            let is_edit = name.ends_with("_artifact") && !artifact.label().starts_with("user:");
            (
                &artifact.artifact_id,
                artifact.version,
                None,
                is_edit.then_some(tool_call_id),
            )
        }
        _ => return,
    };
    let at = format!(
        "event {} of {} ({})",
        record.event_id,
        record.trace_id,
        record.event.kind()
    );
    let Some(one) = found.get(id) else {
        // The deletion of a user's artifact is recorded in no trace.
        if !gone.contains(id) && !ledger.deleting.contains(id) {
            wrong.push(format!("{at} refers to {id}, which does not exist"));
        }
        return;
    };
    match one.contents.get(&number) {
        None => wrong.push(format!(
            "{at}: {} has no version {number}",
            one.artifact.key()
        )),
        Some(bytes) if text.is_some_and(|text| text.as_bytes() != bytes) => {
            wrong.push(format!(
                "{at}: {} has different content at version {number}",
                one.artifact.key()
            ));
        }
        Some(_) => {}
    }
    if let (Some(call), Some(run)) = (call, &record.run_id)
        && !one
            .edits
            .get(&number)
            .is_some_and(|(by, of)| by == run && of == call)
    {
        wrong.push(format!(
            "{at}: edit {number} of {} is not recorded with its call",
            one.artifact.key()
        ));
    }
}

/// Reads the events of every trace, and checks them and the conversation.
fn histories(
    reader: &SqliteReader,
    wrong: &mut Vec<String>,
) -> Result<BTreeMap<String, Vec<EventRecord>>, Failed> {
    let mut all = BTreeMap::new();
    for trace in reader
        .traces(&TraceFilter::default(), usize::MAX / 2, None)?
        .items
    {
        let events = reader.events(&trace.trace_id, 0, usize::MAX / 2)?;
        let mut runs: BTreeMap<&RunId, Vec<&EventRecord>> = BTreeMap::new();
        for (index, event) in events.iter().enumerate() {
            if event.event_id != index as u64 + 1 {
                wrong.push(format!(
                    "timeline {} has a gap before {}",
                    trace.trace_id, event.event_id
                ));
            }
            if let Some(run) = &event.run_id {
                runs.entry(run).or_default().push(event);
            }
        }
        wrong.extend(
            runs.iter().filter_map(|(run, events)| {
                Some(format!("run {run}: {}", first_violation(events)?))
            }),
        );
        let messages = reader.messages(&trace.trace_id, MessagePath::Main)?;
        wrong.extend(
            conversation(&messages).map(|why| format!("conversation {}: {why}", trace.trace_id)),
        );
        all.insert(trace.trace_id.to_string(), events);
    }
    Ok(all)
}

/// Returns the first violation in a conversation that a provider would reject: each call must be
/// answered once, directly after it.
fn conversation(messages: &[Message]) -> Option<String> {
    let mut owed: Vec<&str> = Vec::new();
    for message in messages {
        match (message.role, message.tool_call_id.as_deref()) {
            (Role::Tool, Some(id)) => match owed.iter().position(|call| *call == id) {
                Some(index) => drop(owed.remove(index)),
                None => return Some(format!("{id} is answered but was not requested")),
            },
            _ if !owed.is_empty() => {
                return Some(format!(
                    "{owed:?} are not answered before {}",
                    message.sequence
                ));
            }
            _ => owed.extend(message.tool_calls.iter().map(|call| call.id.as_str())),
        }
    }
    (!owed.is_empty()).then(|| format!("{owed:?} are not answered"))
}
