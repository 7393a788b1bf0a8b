//! Outcomes of tool calls, children and runs: text for models, records for parents, outcomes for
//! callers.
//!
//! Pure; part of the run state machine.
//!
//! Elsewhere: when an outcome is recorded (`machine/transition.rs`,
//! `machine/tool_calls/scheduler.rs`).

use serde::{Deserialize, Serialize};
use soong_protocol::{
    ArtifactRef, ChildMode, ChildResult, Collaborator, CollaboratorKind, CollaboratorStatus,
    EndReason, ErrorCode, ErrorInfo, RunId, RunSettings, RunStatus, StatsPair, Timestamp, ToolCall,
    TraceId,
};
use soong_text::{on_one_line, shorten};

use crate::{
    actor_tree::RunEnd,
    run::machine::{
        RunState,
        ending::Ending,
        errors::schema_mismatch,
        inline::{head, reference_text},
        state::phase::Phase,
    },
};

/// Maximum length of a summary in events, rows and collaborator lines, in characters.
const MAX_SUMMARY_CHARS: usize = 1_000;
/// Maximum length of a line about a collaborator, in characters.
const MAX_COLLABORATOR_CHARS: usize = 160;
/// Minimum length of a shortened summary when a call has many results, in bytes.
const MIN_SUMMARY_BYTES: usize = 200;

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Id of the run.
    pub run_id: RunId,
    /// Id of its trace.
    pub trace_id: TraceId,
    /// Final status.
    pub status: RunStatus,
    /// Reason for the end.
    pub end_reason: EndReason,
    /// The complete final answer. If the run did not finish: the text so far.
    pub output: String,
    /// Tool calls that the caller must execute, see
    /// [`RunRequest::auto_execute_tools`](crate::RunRequest::auto_execute_tools).
    pub tool_calls: Vec<ToolCall>,
    /// The error, if the run failed.
    pub error: Option<ErrorInfo>,
    /// Time of the end.
    pub completed_at: Timestamp,
    /// Number of turns started.
    pub turn: u32,
    /// Usage of the run itself and of its subtree.
    pub stats: StatsPair,
    /// Artifacts that the run stored.
    pub artifacts: Vec<ArtifactRef>,
}

impl RunOutcome {
    /// Returns the data that is shown to watchers of the actor tree.
    pub(crate) fn run_end(&self) -> RunEnd {
        RunEnd {
            run_id: self.run_id.clone(),
            status: self.status,
            error: self.error.clone(),
            completed_at: self.completed_at,
            turn: self.turn,
            tokens: self.stats.own.total_tokens,
            cost: self.stats.own.cost,
            estimated: self.stats.own.estimated,
        }
    }
}

pub(crate) fn summary(text: &str) -> String {
    shorten(text, MAX_SUMMARY_CHARS)
}

/// Formats an error as a tool message, so that the model can correct its call.
pub(crate) fn error_text(error: &ErrorInfo) -> String {
    format!("Error [{}]: {}", error.code, error.message)
}

/// The answer of an evaluator.
#[derive(Deserialize)]
struct Evaluation {
    passed: bool,
    summary: String,
    #[serde(default)]
    findings: Vec<String>,
}

/// Creates the result of a run for its parent (SUB-4); `None` if the run has no parent.
pub(crate) fn child_result(state: &RunState, ending: &Ending) -> Option<ChildResult> {
    let parent = state.spec.identity.parent.as_ref()?;
    let mut result = ChildResult {
        mode: parent.mode,
        sub_trace_id: state.spec.identity.trace_id.clone(),
        run_id: state.spec.identity.run_id.clone(),
        status: ending.status,
        summary: answer_for_parent(state),
        findings: Vec::new(),
        passed: None,
        artifacts: state.artifacts.clone(),
        stats: state.stats(),
        error: ending.error.clone(),
    };
    if parent.mode == ChildMode::Evaluate && ending.status == RunStatus::Completed {
        match serde_json::from_str::<Evaluation>(&state.answer.text).ok() {
            Some(judgement) => {
                result.passed = Some(judgement.passed);
                result.summary = judgement.summary;
                result.findings = judgement.findings;
            }
            None => result.error = Some(schema_mismatch("it is not a valid evaluation", true)),
        }
    }
    Some(result)
}

impl RunState {
    /// Returns what the run used so far.
    pub(crate) fn stats(&self) -> StatsPair {
        let mut own = self.usage.own;
        own.duration_ms = self.clock.used_ms;
        let mut tree = own;
        tree.add_descendant(&self.usage.below);
        StatsPair { own, tree }
    }

    /// Returns the ending of the run; `None` if it has not ended.
    pub(crate) fn final_ending(&self) -> Option<Ending> {
        let Phase::Ended(status) = self.phase else {
            return None;
        };
        let completed = Ending {
            status,
            reason: EndReason::Completed,
            error: None,
        };
        Some(
            self.end
                .ending
                .clone()
                .filter(|_| status != RunStatus::Completed)
                .unwrap_or(completed),
        )
    }
}

/// Returns the outcome of an ended run, and its result for the parent. `None` if the run has not
/// ended.
pub(crate) fn run_outcome(run: &RunState) -> Option<(RunOutcome, Option<Box<ChildResult>>)> {
    // The last event of an ended run is its terminal event.
    let ending = run.final_ending()?;
    let at = run.clock.last_event_at?;
    let outcome = RunOutcome {
        run_id: run.spec.identity.run_id.clone(),
        trace_id: run.spec.identity.trace_id.clone(),
        status: ending.status,
        end_reason: ending.reason,
        output: run.answer.text.clone(),
        tool_calls: run.answer.unexecuted_calls.clone(),
        error: ending.error.clone(),
        completed_at: at,
        turn: run.turn.number,
        stats: run.stats(),
        artifacts: run.artifacts.clone(),
    };
    Some((outcome, child_result(run, &ending).map(Box::new)))
}

/// Returns a run's answer for its parent: the whole text, or its head and tail with a reference to
/// the stored answer (SUB-4).
fn answer_for_parent(run: &RunState) -> String {
    let answer = &run.answer.text;
    let limits = run.spec.limits.inline;
    match run.stored_answer() {
        Some(reference) => reference_text(reference, "the answer", answer, limits, false, true),
        None if limits.are_exceeded_by(answer) => {
            let trace = &run.spec.identity.trace_id;
            format!(
                "{}\n[cut: {} bytes in all; the rest is in trace {trace}]",
                head(answer, limits.bytes),
                answer.len()
            )
        }
        None => answer.clone(),
    }
}

/// Returns the name of a child among the collaborators of its parent. Children of earlier versions
/// have no name of their own.
pub(crate) fn collaborator_name<'a>(settings: &'a RunSettings, trace: &'a TraceId) -> &'a str {
    settings
        .collaborator
        .as_deref()
        .unwrap_or_else(|| trace.last_segment())
}

pub(crate) fn started_collaborator(name: &str, trace: &TraceId, task: &str) -> Collaborator {
    Collaborator {
        name: name.to_owned(),
        kind: CollaboratorKind::Agent,
        trace_id: Some(trace.clone()),
        status: CollaboratorStatus::Running,
        summary: one_line(task),
    }
}

/// Returns a running child as a collaborator. Its summary is the focused goal if that is open, else
/// the task.
pub(crate) fn running_collaborator(run: &RunState, status: CollaboratorStatus) -> Collaborator {
    let goal = run.goals.current().filter(|goal| goal.status.is_open());
    let summary = goal.map_or(run.task(), |goal| goal.description.as_str());
    let settings = &run.spec.settings;
    let trace = &run.spec.identity.trace_id;
    Collaborator {
        status,
        ..started_collaborator(collaborator_name(settings, trace), trace, summary)
    }
}

pub(crate) fn ended_collaborator(name: &str, result: &ChildResult) -> Collaborator {
    let error = result.error.as_ref().map(|error| error.message.as_str());
    Collaborator {
        name: name.to_owned(),
        kind: CollaboratorKind::Agent,
        trace_id: Some(result.sub_trace_id.clone()),
        status: match result.status {
            RunStatus::Completed => CollaboratorStatus::Completed,
            _ => CollaboratorStatus::Failed,
        },
        summary: one_line(if result.summary.is_empty() {
            error.unwrap_or("")
        } else {
            &result.summary
        }),
    }
}

/// Shortens a text to one line of at most [`MAX_COLLABORATOR_CHARS`] characters.
pub(crate) fn one_line(text: &str) -> String {
    shorten(&on_one_line(text), MAX_COLLABORATOR_CHARS)
}

/// A child's result for the parent's model. Statistics are included only if the child can be
/// continued.
#[derive(Serialize)]
struct ResultForModel<'a> {
    mode: ChildMode,
    sub_trace_id: &'a TraceId,
    run_id: &'a RunId,
    status: &'static str,
    summary: std::borrow::Cow<'a, str>,
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
    fn new(result: &'a ChildResult, summary_bytes: usize) -> Self {
        // A sub-agent that was interrupted or cancelled can be continued (MSG-6).
        let is_interrupted = result
            .error
            .as_ref()
            .is_some_and(|error| error.code == ErrorCode::Interrupted);
        let can_continue = is_interrupted || result.status == RunStatus::Cancelled;
        let hint = || {
            let id = &result.sub_trace_id;
            let call = match result.mode {
                ChildMode::Evaluate => "evaluate(",
                ChildMode::Explore | ChildMode::Delegate => "agent(task=\"…\", ",
            };
            let how = if is_interrupted {
                "cut off"
            } else {
                "cancelled"
            };
            format!("it was {how}; to let it go on, call {call}continue_from=\"{id}\")")
        };
        Self {
            mode: result.mode,
            sub_trace_id: &result.sub_trace_id,
            run_id: &result.run_id,
            status: if is_interrupted {
                "interrupted"
            } else {
                result.status.as_str()
            },
            summary: if result.summary.len() > summary_bytes {
                format!("{}…", head(&result.summary, summary_bytes)).into()
            } else {
                result.summary.as_str().into()
            },
            passed: result.passed,
            findings: &result.findings,
            artifacts: &result.artifacts,
            error: result.error.as_ref(),
            stats: can_continue.then_some(&result.stats),
            hint: can_continue.then(hint),
        }
    }
}

#[derive(Serialize)]
struct ExploreForModel<'a> {
    mode: ChildMode,
    results: Vec<ResultForModel<'a>>,
}

/// Formats the results of the children of a call as its tool message: a list in task order for
/// `explore`, else the single result. With `max_bytes`, each summary is cut to an equal share of
/// half of it, but to no less than [`MIN_SUMMARY_BYTES`].
pub(crate) fn results_text(results: &[&ChildResult], max_bytes: Option<usize>) -> String {
    let max_summary_bytes = max_bytes.map_or(usize::MAX, |bytes| {
        (bytes / results.len().max(1) / 2).max(MIN_SUMMARY_BYTES)
    });
    let mut shown = results
        .iter()
        .map(|result| ResultForModel::new(result, max_summary_bytes));
    let json = match results.first().map(|result| result.mode) {
        Some(mode @ ChildMode::Explore) => serde_json::to_string(&ExploreForModel {
            mode,
            results: shown.collect(),
        }),
        _ => serde_json::to_string(&shown.next()),
    };
    json.unwrap_or_default()
}

/// Inserts a `note` field at the start of a JSON object.
pub(crate) fn with_note(note: &str, object: &str) -> String {
    let note = serde_json::Value::from(note);
    format!(
        "{{\"note\":{note},{}",
        object.strip_prefix('{').unwrap_or(object)
    )
}

/// Summarizes the results of several children for their goal (GOAL-3).
pub(crate) fn joint_summary(results: &[(&str, &ChildResult)]) -> String {
    if let [(name, only)] = results {
        return summary(ended_collaborator(name, only).summary.as_str());
    }
    let done = results
        .iter()
        .filter(|(_, result)| result.status == RunStatus::Completed)
        .count();
    let lines = results
        .iter()
        .map(|(name, result)| ended_collaborator(name, result).line())
        .collect::<Vec<_>>()
        .join("\n");
    summary(&format!(
        "{done} of {} sub-agents completed\n{lines}",
        results.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_truncated_at_char_boundary() {
        assert_eq!(shorten("héllo", 2), "hé…");
        assert_eq!(shorten("hé", 2), "hé");
    }
}
