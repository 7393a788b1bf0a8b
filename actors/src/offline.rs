//! The offline model: a deterministic, rule-based stand-in that needs no key and no network.
//!
//! It decides from the request alone: which tools are offered, what was asked, what the calls since
//! then brought. It keeps nothing between calls, so a run that was restarted goes on identically.
//! By what it is offered and asked it is an orchestrator, an explorer, the writer of a report, a
//! judge, one who sums up, or a plain helper; each has a file. It says in every answer that it is no language model.
//! Not here: any claim to understand; it is never used in place of a configured provider.

mod child;
mod conversation;
mod evaluator;
mod listing;
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
use soong_protocol::{Delta, ToolCall, Usage};

use crate::model::{Completion, DeltaSink, Model, ModelError, ModelRequest, tokens::estimate_tokens as tokens};

/// What every answer says about its author.
const STAND_IN: &str = "offline stand-in: rules, no language model";
/// Most pieces in which an answer is streamed, and the least characters of one.
const MAX_PIECES: usize = 8;
const MIN_PIECE_CHARS: usize = 48;

/// What the model says and asks for in one turn.
#[derive(Debug, Default, PartialEq)]
struct Turn {
    text: String,
    calls: Vec<(&'static str, Value)>,
}

impl Turn {
    /// Ends the run with an answer.
    fn answer(text: impl Into<String>) -> Self {
        Self { text: text.into(), calls: Vec::new() }
    }

    /// Asks for tools; `text` says why, to people.
    fn ask(text: impl Into<String>, calls: Vec<(&'static str, Value)>) -> Self {
        Self { text: text.into(), calls }
    }
}

/// The model `offline`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offline {
    /// How long it takes for an answer.
    pace: Duration,
}

impl Offline {
    /// Makes the model; it answers at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes one that takes its time for each answer, as a service does: so that people can watch it.
    pub fn at_pace(pace: Duration) -> Self {
        Self { pace }
    }
}

impl Model for Offline {
    fn name(&self) -> &str {
        "offline"
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
            // As long before the first piece as between them.
            let pause = self.pace / u32::try_from(pieces.len() + 1).unwrap_or(u32::MAX);
            for piece in pieces {
                wait(pause).await;
                deltas.push(Delta::Text { text: piece.to_owned() });
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

/// Decides what to do next. Pure: the same conversation leads to the same turn.
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
    if conversation.is_endless() {
        return Turn::answer(format!("I stop here: this took more steps than it should ({STAND_IN})."));
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
    let said = |calls: &[ToolCall]| calls.iter().map(|call| tokens(&call.name) + tokens(&call.arguments)).sum::<u64>();
    let system: u64 = request.system.iter().map(|block| tokens(block)).sum();
    let messages: u64 =
        request.messages.iter().map(|message| tokens(&message.content) + said(&message.tool_calls) + 4).sum();
    let tools: u64 =
        request.tools.iter().map(|tool| tokens(&tool.description) + tokens(&tool.parameters.to_string())).sum();
    let usage = Usage {
        prompt_tokens: system + messages + tools,
        completion_tokens: tokens(&decided.text) + said(&tool_calls),
        estimated: true,
        ..Usage::default()
    };
    let finish_reason = if tool_calls.is_empty() { "stop" } else { "tool_calls" }.to_owned();
    Completion { text: decided.text, reasoning: None, tool_calls, usage: Some(usage), finish_reason }
}

/// Cuts a text into a few pieces, as a stream would bring it.
fn pieces(text: &str) -> Vec<&str> {
    let size = text.chars().count().div_ceil(MAX_PIECES).max(MIN_PIECE_CHARS);
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().nth(size).map_or(rest.len(), |(end, _)| end);
        let (piece, tail) = rest.split_at(end);
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

/// Puts text of unknown origin on one line, without backticks: those mark paths, and only paths.
fn plain_line(text: &str, max_chars: usize) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('`', "'");
    line.retain(|c| !c.is_control());
    if let Some((end, _)) = line.char_indices().nth(max_chars) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Writes `1 file`, `2 files`.
fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests;
