//! What tool calls and children bring back, as text for models and records for parents.
//!
//! Pure. Not here: when an outcome is recorded (`decide.rs`, `calls.rs`).

use serde::{Deserialize, Serialize};
use soong_protocol::{
    ChildMode, ChildResult, Collaborator, CollaboratorKind, CollaboratorStatus, ErrorCode, ErrorInfo, FlushFailure,
    RunId, RunStatus, StatsPair, TraceId,
};

use super::state::{Ending, RunState};
use crate::live::RunOutcome;

/// Longest summary in events, rows and collaborator lines, in characters.
const SUMMARY_CHARS: usize = 1_000;
/// Longest preview of arguments and outputs in events, in characters.
const PREVIEW_CHARS: usize = 200;
/// Longest line about a collaborator, in characters.
const COLLABORATOR_CHARS: usize = 160;
/// Longest text of one child's answer in its parent's conversation, in bytes; its trace has the rest.
const CHILD_ANSWER_BYTES: usize = 65_536;

/// Cuts `text` to `max` characters; `…` stands for the rest.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

pub(crate) fn summary(text: &str) -> String {
    shorten(text, SUMMARY_CHARS)
}

pub(crate) fn preview(text: &str) -> String {
    shorten(text, PREVIEW_CHARS)
}

/// Refuses a child of a run that is over.
pub(crate) fn takes_no_children() -> ErrorInfo {
    ErrorInfo::new(ErrorCode::NothingRunning, "the run has ended: it takes no more children")
}

/// Says that an answer was longer than it may be.
pub(crate) fn cut_at_limit() -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::ProviderError,
        "the answer was cut at its token limit: raise model.max_output_tokens; what came is kept as a partial message",
    )
}

/// Writes an error as a tool message, so that the model can mend its call.
pub(crate) fn error_text(error: &ErrorInfo) -> String {
    format!("Error [{}]: {}", error.code, error.message)
}

/// Says that documents could not be stored as versions, and which (ART-4).
pub(crate) fn not_flushed(failed: &[FlushFailure]) -> ErrorInfo {
    let lines: Vec<String> = failed.iter().map(|one| format!("{} ({})", one.name, one.error.message)).collect();
    let message = format!(
        "not every document that the run edited could be stored as a version: {}; the edits are recorded, and the \
         documents hold them",
        lines.join("; ")
    );
    let artifacts: Vec<&str> = failed.iter().map(|one| one.name.as_str()).collect();
    ErrorInfo {
        details: serde_json::json!({ "artifacts": artifacts }),
        ..ErrorInfo::new(ErrorCode::StorageError, message)
    }
}

/// What an evaluator answers.
#[derive(Deserialize)]
struct Judgement {
    passed: bool,
    summary: String,
    #[serde(default)]
    findings: Vec<String>,
}

/// Finds the JSON object of an answer: alone, or in a code fence.
fn judgement(answer: &str) -> Option<Judgement> {
    let text = answer.trim();
    let fenced = text.split("```").nth(1).map(|block| block.trim_start_matches("json").trim());
    [Some(text), fenced].into_iter().flatten().find_map(|candidate| serde_json::from_str(candidate).ok())
}

/// Writes down what a run brings to its parent (SUB-4); `None` for a run without one.
pub(crate) fn child_result(state: &RunState, ending: &Ending, now: soong_protocol::Timestamp) -> Option<ChildResult> {
    let parent = state.spec.parent.as_ref()?;
    let mut result = ChildResult {
        mode: parent.mode,
        sub_trace_id: state.spec.trace_id.clone(),
        run_id: state.spec.run_id.clone(),
        status: ending.status,
        summary: clip_answer(&state.answer, &state.spec.trace_id),
        findings: Vec::new(),
        passed: None,
        artifacts: state.artifacts.clone(),
        stats: state.stats(now),
        error: ending.error.clone(),
    };
    if parent.mode == ChildMode::Evaluate && ending.status == RunStatus::Completed {
        match judgement(&state.answer) {
            Some(judgement) => {
                result.passed = Some(judgement.passed);
                result.summary = judgement.summary;
                result.findings = judgement.findings;
            }
            None => {
                result.error = Some(ErrorInfo::new(
                    ErrorCode::ValidationError,
                    "the evaluator did not answer with {\"passed\", \"summary\", \"findings\"}: read its summary, or evaluate again",
                ));
            }
        }
    }
    Some(result)
}

/// Says how an ended run ended, to those who wait and to its parent.
pub(crate) fn run_outcome(
    run: &RunState,
    at: soong_protocol::Timestamp,
) -> Option<(RunOutcome, Option<Box<ChildResult>>)> {
    let ending = run.ended_as()?;
    let outcome = RunOutcome {
        run_id: run.spec.run_id.clone(),
        trace_id: run.spec.trace_id.clone(),
        status: ending.status,
        end_reason: ending.reason,
        output: run.answer.clone(),
        error: ending.error.clone(),
        stats: run.stats(at),
        artifacts: run.artifacts.clone(),
    };
    Some((outcome, child_result(run, &ending, at).map(Box::new)))
}

fn clip_answer(answer: &str, trace: &TraceId) -> String {
    if answer.len() <= CHILD_ANSWER_BYTES {
        return answer.to_owned();
    }
    let mut end = CHILD_ANSWER_BYTES;
    while !answer.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}\n[cut: {} bytes in all; the rest is in trace {trace}]", &answer[..end], answer.len())
}

/// Names a child as a collaborator.
pub(crate) fn collaborator_name(trace: &TraceId) -> String {
    trace.short().to_owned()
}

pub(crate) fn collaborator_at_start(trace: &TraceId, task: &str) -> Collaborator {
    Collaborator {
        name: collaborator_name(trace),
        kind: CollaboratorKind::Agent,
        trace_id: Some(trace.clone()),
        status: CollaboratorStatus::Running,
        summary: one_line(task),
    }
}

pub(crate) fn collaborator_at_end(result: &ChildResult) -> Collaborator {
    let error = result.error.as_ref().map(|error| error.message.as_str());
    Collaborator {
        name: collaborator_name(&result.sub_trace_id),
        kind: CollaboratorKind::Agent,
        trace_id: Some(result.sub_trace_id.clone()),
        status: match result.status {
            RunStatus::Completed => CollaboratorStatus::Completed,
            _ => CollaboratorStatus::Failed,
        },
        summary: one_line(if result.summary.is_empty() { error.unwrap_or("") } else { &result.summary }),
    }
}

/// Puts a text on one short line.
pub(crate) fn one_line(text: &str) -> String {
    shorten(&text.split_whitespace().collect::<Vec<_>>().join(" "), COLLABORATOR_CHARS)
}

/// A child's result as its parent's model reads it: statistics stay in the record, but where it was cut off.
#[derive(Serialize)]
struct ResultForModel<'a> {
    mode: ChildMode,
    sub_trace_id: &'a TraceId,
    run_id: &'a RunId,
    status: &'static str,
    summary: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    passed: Option<bool>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    findings: &'a [String],
    #[serde(skip_serializing_if = "<[soong_protocol::ArtifactRef]>::is_empty")]
    artifacts: &'a [soong_protocol::ArtifactRef],
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<&'a StatsPair>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl<'a> ResultForModel<'a> {
    fn new(result: &'a ChildResult) -> Self {
        // What was cut off can be gone on with (MSG-6).
        let is_cut_off = result.error.as_ref().is_some_and(|error| error.code == ErrorCode::Interrupted);
        let hint = || {
            let id = &result.sub_trace_id;
            format!("it was cut off; to let it go on, call agent(task=\"…\", continue_from=\"{id}\")")
        };
        Self {
            mode: result.mode,
            sub_trace_id: &result.sub_trace_id,
            run_id: &result.run_id,
            status: if is_cut_off { "interrupted" } else { result.status.as_str() },
            summary: &result.summary,
            passed: result.passed,
            findings: &result.findings,
            artifacts: &result.artifacts,
            error: result.error.as_ref(),
            stats: is_cut_off.then_some(&result.stats),
            hint: is_cut_off.then(hint),
        }
    }
}

#[derive(Serialize)]
struct ExploreForModel<'a> {
    mode: ChildMode,
    results: Vec<ResultForModel<'a>>,
}

/// Writes the children's results as the tool message of their call: a list in task order for an
/// explore, the one result otherwise.
pub(crate) fn results_text(results: &[&ChildResult]) -> String {
    let mut shown = results.iter().map(|result| ResultForModel::new(result));
    let json = match results.first().map(|result| result.mode) {
        Some(mode @ ChildMode::Explore) => serde_json::to_string(&ExploreForModel { mode, results: shown.collect() }),
        _ => serde_json::to_string(&shown.next()),
    };
    json.unwrap_or_default()
}

/// Sums up in a line what several children brought, for their goal (GOAL-3).
pub(crate) fn joint_summary(results: &[&ChildResult]) -> String {
    if let [only] = results {
        return summary(collaborator_at_end(only).summary.as_str());
    }
    let done = results.iter().filter(|result| result.status == RunStatus::Completed).count();
    let lines = results.iter().map(|result| collaborator_at_end(result).line()).collect::<Vec<_>>().join("\n");
    summary(&format!("{done} of {} sub-agents completed\n{lines}", results.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evaluation_is_read_alone_or_from_a_fence() {
        for (answer, passed) in [
            ("{\"passed\": true, \"summary\": \"ok\"}", Some(true)),
            ("Sure:\n```json\n{\"passed\": false, \"summary\": \"no\", \"findings\": [\"x\"]}\n```\n", Some(false)),
            ("it passed", None),
            ("{\"passed\": \"yes\"}", None),
        ] {
            assert_eq!(judgement(answer).map(|judgement| judgement.passed), passed, "{answer}");
        }
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(shorten("héllo", 2), "hé…");
        assert_eq!(shorten("hé", 2), "hé");
    }
}
