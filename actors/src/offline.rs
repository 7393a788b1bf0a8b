//! The offline model: a deterministic, rule-based model that needs no key and no network.
//!
//! The request is its only input: the offered tools, the task, and the results of the tool calls
//! made since the task was given. It keeps no state between model calls, so a restarted run
//! continues identically. Depending on the request, it acts as orchestrator, explorer, report
//! writer, evaluator, summarizer, reflector, tagger, namer or plain assistant; each role has its
//! own module. Answers written as prose state that no language model was used.
//!
//! A run uses it only if the configuration or the user selects it. It is never a fallback for
//! another provider.

mod child;
mod conversation;
mod evaluator;
mod listing;
mod namer;
mod orchestrator;
mod outcome;
mod plain;
mod plan;
mod purpose;
mod reflector;
mod report;
mod summary;
mod tagger;

use std::time::Duration;

use conversation::Conversation;
use futures::future::BoxFuture;
use serde_json::Value;
use soong_model::{
    Completion, DeltaSink, Model, ModelError, ModelRequest, tokens::estimate_tokens as tokens,
};
use soong_protocol::{Delta, InputKind, ToolCall, Usage};

/// Text that marks an answer as the work of this model.
const NOTICE: &str = "offline stand-in: rules, no language model";
/// Maximum number of pieces in which an answer is streamed.
const MAX_PIECES: usize = 8;
/// Minimum length of a piece in characters, except for the last piece.
const MIN_PIECE_CHARS: usize = 48;

/// Text and tool calls of one turn.
#[derive(Debug, Default, PartialEq)]
struct Turn {
    text: String,
    calls: Vec<(&'static str, Value)>,
}

impl Turn {
    /// Returns a turn that ends the run with an answer.
    fn answer(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            calls: Vec::new(),
        }
    }

    /// Returns a turn with tool calls. `text` explains them to users.
    fn call_tools(text: impl Into<String>, calls: Vec<(&'static str, Value)>) -> Self {
        Self {
            text: text.into(),
            calls,
        }
    }
}

/// The model `offline`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offline {
    /// Time from the model call to the end of the streamed answer. Default: zero.
    answer_time: Duration,
}

impl Offline {
    /// Creates a model that answers immediately.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a model that takes the time `pace` for each answer, so that a demo run is slow
    /// enough to watch.
    pub fn with_answer_time(pace: Duration) -> Self {
        Self { answer_time: pace }
    }
}

impl Model for Offline {
    fn name(&self) -> &str {
        "offline"
    }

    /// The rules read only text, but stand in for models that take all kinds.
    fn inputs(&self) -> &[InputKind] {
        &[
            InputKind::Text,
            InputKind::Image,
            InputKind::Pdf,
            InputKind::Audio,
        ]
    }

    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        deltas: &'a mut dyn DeltaSink,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            let conversation = Conversation::read(request);
            let turn = decide(&conversation);
            let pieces = pieces(&turn.text);
            // The same pause is made before each piece and after the last one.
            let pause = self.answer_time / u32::try_from(pieces.len() + 1).unwrap_or(u32::MAX);
            for piece in pieces {
                wait(pause).await;
                deltas.push(Delta::Text {
                    text: piece.to_owned(),
                });
            }
            wait(pause).await;
            Ok(completion(request, conversation.turn, turn))
        })
    }
}

async fn wait(pause: Duration) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

/// Decides the next turn. Pure: the same conversation always yields the same turn.
fn decide(conversation: &Conversation<'_>) -> Turn {
    if summary::is_asked(conversation) {
        return summary::next(conversation);
    }
    if reflector::is_asked(conversation) {
        return reflector::next(conversation);
    }
    if tagger::is_asked(conversation) {
        return tagger::next(conversation);
    }
    if namer::is_asked(conversation) {
        return namer::next(conversation);
    }
    if conversation.exceeds_message_limit() {
        return Turn::answer(format!(
            "I stop here: this took more steps than it should ({NOTICE})."
        ));
    }
    if conversation.offers("agent") && orchestrator::is_asked(conversation) {
        return orchestrator::next(conversation);
    }
    if let Some(scope) = plan::Scope::parse(conversation.task) {
        return child::next(conversation, &scope);
    }
    if report::is_asked(conversation.task) {
        return report::next(conversation);
    }
    if evaluator::is_asked(conversation) {
        return evaluator::next(conversation);
    }
    plain::next(conversation)
}

fn completion(request: &ModelRequest, turn: usize, decided: Turn) -> Completion {
    let calls = decided.calls.into_iter().enumerate();
    let tool_calls: Vec<ToolCall> = calls
        .map(|(n, (name, arguments))| ToolCall {
            id: format!("off_{turn}_{n}"),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        })
        .collect();
    let call_tokens = |calls: &[ToolCall]| {
        calls
            .iter()
            .map(|call| tokens(&call.name) + tokens(&call.arguments))
            .sum::<u64>()
    };
    let system: u64 = request.system.iter().map(|block| tokens(block)).sum();
    let messages: u64 = request
        .messages
        .iter()
        .map(|message| tokens(&message.content) + call_tokens(&message.tool_calls) + 4)
        .sum();
    let tools: u64 = request
        .tools
        .iter()
        .map(|tool| tokens(&tool.description) + tokens(&tool.parameters.to_string()))
        .sum();
    let usage = Usage {
        prompt_tokens: system + messages + tools,
        completion_tokens: tokens(&decided.text) + call_tokens(&tool_calls),
        estimated: true,
        ..Usage::default()
    };
    let finish_reason = if tool_calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    }
    .to_owned();
    Completion {
        text: decided.text,
        tool_calls,
        usage: Some(usage),
        finish_reason,
        ..Completion::default()
    }
}

/// Splits a text into at most [`MAX_PIECES`] pieces for streaming.
fn pieces(text: &str) -> Vec<&str> {
    let size = text
        .chars()
        .count()
        .div_ceil(MAX_PIECES)
        .max(MIN_PIECE_CHARS);
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest
            .char_indices()
            .nth(size)
            .map_or(rest.len(), |(end, _)| end);
        let (piece, tail) = rest.split_at(end);
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

/// Converts untrusted text to one line of at most `max_chars` characters, plus `…` if it was
/// truncated.
///
/// Backticks are replaced, because the evaluator treats text in backticks as a path.
fn plain_line(text: &str, max_chars: usize) -> String {
    let mut line = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('`', "'");
    line.retain(|c| !c.is_control());
    if let Some((end, _)) = line.char_indices().nth(max_chars) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Formats a count: `1 file`, `2 files`.
fn count(number: u64, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

#[cfg(test)]
mod tests;
