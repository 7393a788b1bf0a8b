//! The conversation as the offline model reads it: the last task, and the results of the calls
//! since then.

use std::collections::HashMap;

use serde_json::Value;
use soong_model::ModelRequest;
use soong_protocol::{ErrorCode, Message, Role};

use crate::{
    context::{is_replacement, is_summary},
    memory::EXPERIENCES_HEADING,
};

/// Number of messages after a task at which the run is stopped. No task takes that many.
const MAX_TASK_MESSAGES: u64 = 250;
/// Beginnings of context messages that a run inserts; they are not tasks.
const CONTEXT_MARKS: [&str; 4] = ["## ", "# ", "<", "Mission:"];

/// One tool call with its result.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: Value,
    result: Option<&'a str>,
}

impl<'a> Exchange<'a> {
    /// Returns the result, unless the call failed.
    pub(super) fn ok(&self) -> Option<&'a str> {
        self.result.filter(|text| !is_error(text))
    }

    /// Returns the error, if the call failed.
    pub(super) fn error(&self) -> Option<&'a str> {
        self.result.filter(|text| is_error(text))
    }

    /// Returns a text argument.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.arguments.get(name).and_then(Value::as_str)
    }
}

/// Whether a tool message reports a failure, judged by its beginning, or by being an object with
/// `error` but no `status`.
pub(super) fn is_error(text: &str) -> bool {
    let text = text.trim_start();
    let starts = |mark: &str| {
        text.get(..mark.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(mark))
    };
    if ["error:", "error ", "error (", "<error", "[error"]
        .iter()
        .any(|mark| starts(mark))
    {
        return true;
    }
    if ErrorCode::ALL.iter().any(|code| {
        text.strip_prefix(code.as_str())
            .is_some_and(|rest| rest.starts_with(':'))
    }) {
        return true;
    }
    // The result of a failed child has a status; that of a failed call has none.
    let object = || serde_json::from_str::<Value>(text).ok();
    text.starts_with('{')
        && object()
            .is_some_and(|value| value.get("error").is_some() && value.get("status").is_none())
}

/// The request as the model reads it.
pub(super) struct Conversation<'a> {
    request: &'a ModelRequest,
    /// The last task.
    pub(super) task: &'a str,
    /// The calls since then, in order.
    pub(super) exchanges: Vec<Exchange<'a>>,
    /// The calls of earlier tasks.
    pub(super) earlier: Vec<Exchange<'a>>,
    /// Number of assistant messages so far.
    pub(super) turn: usize,
    length: u64,
}

impl<'a> Conversation<'a> {
    /// Parses a request.
    pub(super) fn read(request: &'a ModelRequest) -> Self {
        let messages: Vec<&'a Message> = request.messages.iter().map(AsRef::as_ref).collect();
        let start = task_index(&messages);
        let task = start
            .and_then(|index| messages.get(index))
            .map_or("", |message| message.content.as_str());
        // Experiences of earlier runs are appended to a task and are not part of it.
        let task = task
            .split(&format!("\n\n{EXPERIENCES_HEADING}\n"))
            .next()
            .unwrap_or(task);
        let (before, since) = messages.split_at(start.unwrap_or(0));
        let length = match (since.first(), since.last()) {
            (Some(first), Some(last)) => last
                .sequence
                .saturating_sub(first.sequence)
                .max(since.len() as u64),
            _ => 0,
        };
        Self {
            request,
            task,
            exchanges: exchanges(since),
            earlier: exchanges(before),
            turn: messages
                .iter()
                .filter(|message| message.role == Role::Assistant)
                .count(),
            length,
        }
    }

    /// Returns whether a tool is offered.
    pub(super) fn offers(&self, name: &str) -> bool {
        self.request.tools.iter().any(|tool| tool.name == name)
    }

    /// Returns the calls of a tool since the task was given.
    pub(super) fn calls<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Exchange<'a>> {
        self.exchanges
            .iter()
            .filter(move |exchange| exchange.name == name)
    }

    /// Returns whether a tool was called since the task was given.
    pub(super) fn has_called(&self, name: &str) -> bool {
        self.calls(name).next().is_some()
    }

    /// Returns the rest of the first line that begins with `mark`, in user messages or the system
    /// prompt.
    pub(super) fn find_line_after(&self, mark: &str) -> Option<&'a str> {
        let users = self
            .request
            .messages
            .iter()
            .filter(|message| message.role == Role::User);
        let texts = users
            .map(|message| message.content.as_str())
            .chain(self.request.system.iter().map(AsRef::as_ref));
        texts
            .flat_map(str::lines)
            .find_map(|line| line.trim_start().strip_prefix(mark))
    }

    /// Returns whether the system prompt contains a text.
    pub(super) fn system_contains(&self, text: &str) -> bool {
        self.request.system.iter().any(|block| block.contains(text))
    }

    /// Returns whether the task has taken far too many messages, for any reason.
    pub(super) fn exceeds_message_limit(&self) -> bool {
        self.length > MAX_TASK_MESSAGES
    }
}

/// Returns the index of the last task: a message of the user, not context that the run inserted.
fn task_index(messages: &[&Message]) -> Option<usize> {
    let users = || (0..messages.len()).filter(|index| messages[*index].role == Role::User);
    // A user writes first or after an answer; context follows the user's message or tool results.
    let follows_on = |index: usize| index > 0 && messages[index - 1].role != Role::Assistant;
    let is_marked = |index: usize| {
        CONTEXT_MARKS
            .iter()
            .any(|mark| messages[index].content.starts_with(mark))
    };
    let stands_for_others = |index: usize| {
        let is_of_runtime = messages[index].origin.is_some() && !messages[index].is_request();
        is_of_runtime || is_summary(messages[index]) || is_replacement(&messages[index].content)
    };
    let is_context =
        |index: &usize| stands_for_others(*index) || follows_on(*index) && is_marked(*index);
    users()
        .rev()
        .find(|index| !is_context(index))
        .or_else(|| users().next())
}

fn exchanges<'a>(messages: &[&'a Message]) -> Vec<Exchange<'a>> {
    // By position as well as by id, since an id may be reused after an earlier task.
    let mut results: HashMap<&str, Vec<(usize, &'a str)>> = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        if let Some(id) = message.tool_call_id.as_deref() {
            results
                .entry(id)
                .or_default()
                .push((index, &message.content));
        }
    }
    let result_of = |id: &str, index: usize| {
        results
            .get(id)
            .and_then(|all| all.iter().find(|(at, _)| *at > index))
            .map(|(_, text)| *text)
    };
    let mut exchanges = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        for call in &message.tool_calls {
            exchanges.push(Exchange {
                name: &call.name,
                arguments: serde_json::from_str(&call.arguments).unwrap_or(Value::Null),
                result: result_of(&call.id, index),
            });
        }
    }
    exchanges
}
