//! The model calls and tool calls that were executed, according to callbacks of the runtime.
//!
//! Each execution adds a line to a file, before its result is stored. The file is independent of
//! the database, so that `soong demo --kill` can compare both.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
};

use serde::{Deserialize, Serialize};
use soong::callback::{After, Before, Callback};

/// An execution.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Execution {
    pub(super) run_id: String,
    pub(super) step: Step,
}

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// The model call with this number of messages, which grows with each call of a run.
    ModelCall(usize),
    /// The tool call with this id.
    ToolCall(String),
}

/// How often each step was executed.
pub(super) type ExecutionCounts = BTreeMap<Execution, usize>;

/// Returns a callback that adds each execution to a file.
pub(super) fn log_to(path: &Path) -> Callback {
    let of_models = path.to_owned();
    let of_tools = path.to_owned();
    Callback::new("executions")
        .before_model(move |context, request| {
            let added = add(
                &of_models,
                context.run_id.as_str(),
                Step::ModelCall(request.messages.len()),
            );
            async move { Ok(added.map(|()| Before::Continue)?) }
        })
        .after_tool(move |context, call, _| {
            let added = add(&of_tools, context.run_id.as_str(), Step::ToolCall(call.id));
            async move { Ok(added.map(|()| After::Keep)?) }
        })
}

fn add(path: &Path, run_id: &str, step: Step) -> std::io::Result<()> {
    let execution = Execution {
        run_id: run_id.to_owned(),
        step,
    };
    let mut line = serde_json::to_vec(&execution)?;
    line.push(b'\n');
    // One write, so that lines of several threads do not mix.
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?
        .write_all(&line)
}

/// Reads how often each step was executed. A line that the end of the process has cut off is left
/// out.
pub(super) fn read(path: &Path) -> std::io::Result<ExecutionCounts> {
    let mut counts = ExecutionCounts::new();
    for line in std::io::read_to_string(File::open(path)?)?.lines() {
        if let Ok(execution) = serde_json::from_str::<Execution>(line) {
            *counts.entry(execution).or_default() += 1;
        }
    }
    Ok(counts)
}
