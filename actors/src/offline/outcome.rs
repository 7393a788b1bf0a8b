//! Results of `agent` and `evaluate`, parsed from their JSON, even if it is truncated.

use serde_json::{Deserializer, Value};

/// Outcome of one child run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Outcome {
    /// Reported status.
    pub(super) status: String,
    /// Its answer.
    pub(super) summary: String,
    /// Findings of an evaluation.
    pub(super) findings: Vec<String>,
    /// Whether an evaluation passed.
    pub(super) passed: Option<bool>,
    /// Why the run failed.
    pub(super) error: Option<String>,
    /// Index in the list of tasks, starting at 0, if the trace id contains it.
    task_index: Option<usize>,
}

impl Outcome {
    /// Returns the outcome of a call that failed as a whole.
    pub(super) fn failed(error: Option<&str>) -> Self {
        Self {
            status: "failed".to_owned(),
            error: error.map(str::to_owned),
            ..Self::default()
        }
    }

    /// Returns whether the child completed its task.
    pub(super) fn is_complete(&self) -> bool {
        self.status == "completed"
    }

    fn read(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let error = value
            .get("error")
            .filter(|error| !error.is_null())
            .map(|error| {
                let message = error
                    .get("message")
                    .and_then(Value::as_str)
                    .or(error.as_str());
                message.map_or_else(|| error.to_string(), str::to_owned)
            });
        let findings = value
            .get("findings")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        Some(Self {
            status: text("status")?,
            summary: text("summary").unwrap_or_default(),
            findings: findings
                .iter()
                .filter_map(|finding| finding.as_str().map(str::to_owned))
                .collect(),
            passed: value.get("passed").and_then(Value::as_bool),
            error,
            task_index: text("sub_trace_id").and_then(|id| task_index(&id)),
        })
    }
}

/// Parses the index in the task list from `…@explore-003-…`.
fn task_index(trace_id: &str) -> Option<usize> {
    let number = trace_id
        .rsplit('@')
        .next()?
        .strip_prefix("explore-")?
        .split('-')
        .next()?;
    number.parse::<usize>().ok()?.checked_sub(1)
}

/// Parses all outcomes of a result; of a truncated text, the complete ones.
fn outcomes(result: &str) -> Vec<Outcome> {
    if let Ok(value) = serde_json::from_str::<Value>(result.trim()) {
        let listed = value.get("results").and_then(Value::as_array);
        return match listed {
            Some(results) => results.iter().filter_map(Outcome::read).collect(),
            None => Outcome::read(&value).into_iter().collect(),
        };
    }
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = result[from..].find("{\"mode\"").map(|at| from + at) {
        let mut values = Deserializer::from_str(&result[at..]).into_iter::<Value>();
        let outcome = values
            .next()
            .and_then(Result::ok)
            .as_ref()
            .and_then(Outcome::read);
        from = if outcome.is_some() {
            at + values.byte_offset().max(1)
        } else {
            at + 1
        };
        found.extend(outcome);
    }
    found
}

/// Returns the outcome of a single child.
pub(super) fn single(result: &str) -> Option<Outcome> {
    outcomes(result).into_iter().next()
}

/// Returns the outcomes of `tasks` children in the order of the tasks. `None` for a child without a
/// result.
pub(super) fn of_tasks(result: &str, tasks: usize) -> Vec<Option<Outcome>> {
    let mut ordered = vec![None; tasks];
    for (index, outcome) in outcomes(result).into_iter().enumerate() {
        if let Some(slot) = ordered.get_mut(outcome.task_index.unwrap_or(index)) {
            *slot = Some(outcome);
        }
    }
    ordered
}
