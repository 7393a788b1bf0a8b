//! Exports a trace and its sub-traces to files that can be read without soong.
//!
//! Each trace is written to a separate folder. Events and messages that were recorded after the
//! record of the trace was read are left out, so that they match the record. The target folder
//! appears only when the export is complete.
//!
//! Elsewhere: reading the records (`source.rs`), the export to one HTML page (`page.rs`).

mod page;

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use serde::{Serialize, Serializer};
use soong::{
    MessagePath,
    protocol::{Event, EventRecord, Run, RunEvent, RunId, Trace, TraceId, api::TraceView},
};
use soong_tui::{format, text};

pub(crate) use self::page::export_page;
use crate::{
    exit::Failure,
    source::Source,
    staged_dir::{StagedDir, write_failure},
};

/// Maximum length of a folder name, in bytes. Common file systems accept this length.
const NAME_BYTES: usize = 255;
/// Maximum length of the folder's name in the name of a message file, which a number follows, in
/// bytes.
const MESSAGE_NAME_BYTES: usize = 230;

/// Content of `meta.json`: the fields of the trace's record, the same record under `trace`, and
/// related records.
#[derive(Serialize)]
struct Meta<'a> {
    #[serde(flatten)]
    fields: &'a Trace,
    /// Version of soong that wrote the file.
    soong: &'static str,
    trace: &'a Trace,
    /// Runs of the trace, in the order of their first events.
    runs: Vec<RunMeta>,
    /// Sequence numbers of the messages on the main path. A summary replaces the messages that it
    /// covers.
    main_path: Vec<u64>,
    /// Traces of the sub-agents that this trace started, each exported to a separate folder.
    sub_traces: Vec<&'a TraceId>,
}

/// Record of a run, serialized with the additional fields `profile` and `model`.
struct RunMeta {
    run: Run,
    /// Model name from the run's last start event. `None`: the run has not started.
    model: Option<String>,
}

impl Serialize for RunMeta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut record = serde_json::to_value(&self.run).map_err(serde::ser::Error::custom)?;
        if let Some(record) = record.as_object_mut() {
            record.insert("profile".to_owned(), self.run.settings.model.clone().into());
            if let Some(model) = &self.model {
                record.insert("model".to_owned(), model.clone().into());
            }
        }
        record.serialize(serializer)
    }
}

/// Description of one exported trace.
#[derive(Debug, Serialize)]
pub(crate) struct ExportedTrace {
    trace_id: TraceId,
    /// Name of its folder in the target folder.
    folder: String,
    messages: u64,
    events: u64,
    runs: usize,
}

/// Result of an export.
#[derive(Debug, Serialize)]
pub(crate) struct Exported {
    dir: PathBuf,
    /// The exported traces. The requested trace is first.
    traces: Vec<ExportedTrace>,
}

impl Exported {
    /// Describes the export on one line.
    pub(crate) fn summary(&self) -> String {
        let total = |count: fn(&ExportedTrace) -> u64, one: &str, many: &str| {
            let total = self.traces.iter().map(count).sum::<u64>();
            format::plural(usize::try_from(total).unwrap_or(usize::MAX), one, many)
        };
        let sub_trace = match self.traces.len().saturating_sub(1) {
            0 => String::new(),
            below => format!(" (sub-traces: {below})"),
        };
        let id = self
            .traces
            .first()
            .map_or("", |written| written.trace_id.as_str());
        text::safe_line_keep_spaces(&format!(
            "trace {id}{sub_trace} written to {}: {}, {}",
            self.dir.display(),
            total(|written| written.messages, "message", "messages"),
            total(|written| written.events, "event", "events"),
        ))
    }
}

/// Exports a trace and all traces below it to `dir`, which must be empty or not exist. Partial
/// output is removed if the export fails or the future is dropped.
pub(crate) async fn export(source: &Source, id: &str, dir: &Path) -> Result<Exported, Failure> {
    let top = source.trace(id).await?;
    let beside = StagedDir::create(dir)?;
    let traces = write_all(source, top, beside.path()).await?;
    Ok(Exported {
        dir: beside.commit()?,
        traces,
    })
}

async fn write_all(
    source: &Source,
    top: TraceView,
    root: &Path,
) -> Result<Vec<ExportedTrace>, Failure> {
    let mut written = Vec::new();
    let mut open = VecDeque::new();
    let mut next = Some(top);
    while let Some(view) = next {
        open.extend(
            view.sub_traces
                .iter()
                .map(|sub_trace| sub_trace.trace_id.clone()),
        );
        let folder = folder_name(&view.trace.trace_id, written.len());
        written.push(write_trace(source, &view, root, folder).await?);
        next = match open.pop_front() {
            Some(below) => Some(source.trace(below.as_str()).await?),
            None => None,
        };
    }
    Ok(written)
}

async fn write_trace(
    source: &Source,
    view: &TraceView,
    root: &Path,
    folder: String,
) -> Result<ExportedTrace, Failure> {
    let TraceView {
        trace,
        goal_tree,
        sub_traces,
    } = view;
    let trace_dir = root.join(&folder);
    let messages_place = trace_dir.join("messages");
    std::fs::create_dir_all(&messages_place)
        .map_err(|error| write_failure(&messages_place, &error))?;
    write_json(&trace_dir.join("goal.json"), goal_tree)?;
    let (events, begun) = write_events(source, trace, &trace_dir.join("events.jsonl")).await?;
    let mut runs = Vec::with_capacity(begun.len());
    for (id, model) in begun {
        runs.push(RunMeta {
            run: source.run(&id).await?,
            model,
        });
    }
    let file_name: String = folder.chars().take(MESSAGE_NAME_BYTES).collect();
    let mut messages = 0;
    let write_message = |message: soong::protocol::Message| {
        messages += 1;
        let name = format!("{file_name}-{:04}.json", message.sequence);
        write_json(&messages_place.join(name), &message)
    };
    source
        .each_message(&trace.trace_id, trace.last_sequence, write_message)
        .await?;
    let path = source
        .messages(trace.trace_id.as_str(), MessagePath::Main)
        .await?;
    // The main path may have grown since the record was read.
    let main_path = path
        .iter()
        .map(|message| message.sequence)
        .filter(|one| *one <= trace.last_sequence)
        .collect();
    let sub_traces = sub_traces
        .iter()
        .map(|sub_trace| &sub_trace.trace_id)
        .collect();
    let runs_written = runs.len();
    let soong = env!("CARGO_PKG_VERSION");
    let meta = Meta {
        fields: trace,
        soong,
        trace,
        runs,
        main_path,
        sub_traces,
    };
    write_json(&trace_dir.join("meta.json"), &meta)?;
    Ok(ExportedTrace {
        trace_id: trace.trace_id.clone(),
        folder,
        messages,
        events,
        runs: runs_written,
    })
}

/// Runs in the order of their first events, each with the model of its last start.
type RunModels = Vec<(RunId, Option<String>)>;

/// Writes the events of a trace, up to the last event that its record names. Returns the number of
/// events and the runs that they belong to.
async fn write_events(
    source: &Source,
    trace: &Trace,
    path: &Path,
) -> Result<(u64, RunModels), Failure> {
    let broken = |error: io::Error| write_failure(path, &error);
    let mut out = BufWriter::new(File::create_new(path).map_err(broken)?);
    let mut runs: RunModels = Vec::new();
    let mut count = 0;
    let write = |record: EventRecord| {
        serde_json::to_writer(&mut out, &record).map_err(|error| broken(error.into()))?;
        out.write_all(b"\n").map_err(broken)?;
        count += 1;
        let Some(run) = &record.run_id else {
            return Ok(());
        };
        let known = runs.iter().rposition(|(id, _)| id == run);
        let at = known.unwrap_or_else(|| {
            runs.push((run.clone(), None));
            runs.len() - 1
        });
        if let Event::Run(RunEvent::LoopStarted { model, .. }) = &record.event {
            runs[at].1 = Some(model.clone());
        }
        Ok(())
    };
    source
        .each_event(&trace.trace_id, trace.last_event_id, write)
        .await?;
    out.flush().map_err(broken)?;
    Ok((count, runs))
}

fn write_json(path: &Path, record: &impl Serialize) -> Result<(), Failure> {
    let broken = |error: io::Error| write_failure(path, &error);
    let mut out = BufWriter::new(File::create_new(path).map_err(broken)?);
    serde_json::to_writer_pretty(&mut out, record).map_err(|error| broken(error.into()))?;
    out.write_all(b"\n")
        .and_then(|()| out.flush())
        .map_err(broken)
}

/// Returns the folder name of a trace: its id if that is a safe file name, else `number` and the
/// sanitized last segment of the id.
fn folder_name(id: &TraceId, number: usize) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.@".contains(c);
    let text = id.as_str();
    if !text.is_empty()
        && text.len() <= NAME_BYTES
        && !text.starts_with('.')
        && text.chars().all(is_plain)
    {
        return text.to_owned();
    }
    let safe: String = id
        .last_segment()
        .chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .take(NAME_BYTES / 2)
        .collect();
    format!("{number:04}-{safe}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_named_after_trace_if_the_id_is_safe() {
        let long = "s".repeat(255);
        let deep = format!("{}@explore-001-20251121044001-007", "s".repeat(250));
        for (id, want) in [
            ("s", "s"),
            ("s.1_x", "s.1_x"),
            (
                "s@explore-001-20251121044001-007",
                "s@explore-001-20251121044001-007",
            ),
            (&long, &long),
            (&deep, "0007-explore-001-20251121044001-007"),
            ("../x", "0007-.._x"),
            (".", "0007-."),
            ("", "0007-"),
            ("好", "0007-_"),
        ] {
            assert_eq!(folder_name(&TraceId::new(id), 7), want, "{id:?}");
        }
    }
}
