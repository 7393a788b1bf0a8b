//! Rules of the providers for tool calls and their results, checked on messages in OpenAI's format.
//!
//! Pure, for tests only: a provider rejects every request that its function rejects. [`openai`]
//! checks the messages directly; [`anthropic`] first converts them to that provider's blocks
//! (MOD-2). System messages are skipped there, since Anthropic passes them separately.
//!
//! Not in this module: whether a tool exists and its arguments are valid.

use std::collections::BTreeSet;

use serde_json::Value;

/// Checks messages against OpenAI's rules for chat completions.
///
/// - An assistant message with calls is followed immediately by one tool message per call, in any
///   order.
/// - A tool message occurs nowhere else.
/// - The call ids of one message are distinct.
/// - An assistant message has content or calls.
pub fn openai(messages: &[Value]) -> Result<(), String> {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for (index, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if !open.remove(id) {
                return Err(format!(
                    "messages.{index}: a tool message for {id:?}, which is no open call right before"
                ));
            }
            if !message["content"].is_string() && !message["content"].is_array() {
                return Err(format!("messages.{index}: a tool message without content"));
            }
            continue;
        }
        if !open.is_empty() {
            return Err(format!(
                "messages.{index}: calls {open:?} have no tool message before it"
            ));
        }
        match role {
            "assistant" => {
                let ids = call_ids(message);
                let number = ids.len();
                open = ids.into_iter().collect();
                if open.len() != number || open.contains("") {
                    return Err(format!(
                        "messages.{index}: ids of calls are missing or come twice"
                    ));
                }
                if number == 0 && texts(message).is_empty() {
                    return Err(format!(
                        "messages.{index}: an assistant message with neither content nor calls"
                    ));
                }
            }
            "user" | "system" | "developer" => {}
            other => return Err(format!("messages.{index}: there is no role {other:?}")),
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(format!("the end: calls {open:?} have no tool message"))
    }
}

/// Checks messages against Anthropic's rules for its Messages API.
///
/// - The first message exists and has the role user.
/// - Roles alternate, after adjacent messages of the same role are merged.
/// - Every `tool_use` is answered exactly once in the directly following user message.
/// - The `tool_result` blocks come first in that message, and answer nothing else.
/// - No content is empty.
pub fn anthropic(messages: &[Value]) -> Result<(), String> {
    let turns = turns(messages)?;
    if turns.first().is_none_or(|turn| turn.role != "user") {
        return Err("the first message is not from the user".to_owned());
    }
    let mut pending: Vec<&str> = Vec::new();
    for (index, turn) in turns.iter().enumerate() {
        if index > 0 && turns[index - 1].role == turn.role {
            return Err(format!("turn {index}: roles do not alternate"));
        }
        let results = turn.blocks.iter().filter_map(|block| match block {
            Block::ToolResult(id) => Some(*id),
            _ => None,
        });
        let mut answered: Vec<&str> = results.collect();
        let first = turn.blocks.iter().take(answered.len());
        if !first
            .into_iter()
            .all(|block| matches!(block, Block::ToolResult(_)))
        {
            return Err(format!(
                "turn {index}: tool_result blocks do not come first"
            ));
        }
        answered.sort_unstable();
        pending.sort_unstable();
        if answered != pending {
            return Err(format!(
                "turn {index}: tool_use {pending:?} right before, tool_result {answered:?} here"
            ));
        }
        let uses = turn.blocks.iter().filter_map(|block| match block {
            Block::ToolUse(id) => Some(*id),
            _ => None,
        });
        pending = uses.collect();
        let different: BTreeSet<&str> = pending.iter().copied().collect();
        if different.len() != pending.len() || different.contains("") {
            return Err(format!(
                "turn {index}: ids of tool_use blocks are missing or come twice"
            ));
        }
    }
    if pending.is_empty() {
        Ok(())
    } else {
        Err(format!("the end: tool_use {pending:?} without tool_result"))
    }
}

/// A message in Anthropic's format.
struct Turn<'a> {
    role: &'static str,
    blocks: Vec<Block<'a>>,
}

enum Block<'a> {
    Text,
    ToolUse(&'a str),
    ToolResult(&'a str),
}

/// Converts messages to turns: tool results belong to the user, and adjacent messages of one role
/// are merged.
fn turns(messages: &[Value]) -> Result<Vec<Turn<'_>>, String> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let text = texts(message).into_iter().map(|_| Block::Text);
        let (role, blocks): (_, Vec<Block<'_>>) = match message["role"].as_str().unwrap_or_default()
        {
            "system" | "developer" => continue,
            "user" => ("user", text.collect()),
            "tool" => (
                "user",
                vec![Block::ToolResult(
                    message["tool_call_id"].as_str().unwrap_or_default(),
                )],
            ),
            "assistant" => (
                "assistant",
                text.chain(call_ids(message).into_iter().map(Block::ToolUse))
                    .collect(),
            ),
            other => return Err(format!("messages.{index}: there is no role {other:?}")),
        };
        if blocks.is_empty() {
            return Err(format!("messages.{index}: its content is empty"));
        }
        match turns.last_mut().filter(|last| last.role == role) {
            Some(last) => last.blocks.extend(blocks),
            None => turns.push(Turn { role, blocks }),
        }
    }
    Ok(turns)
}

fn call_ids(message: &Value) -> Vec<&str> {
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    calls
        .map(|call| call["id"].as_str().unwrap_or_default())
        .collect()
}

/// Returns the texts that are not blank; blank ones make no block.
fn texts(message: &Value) -> Vec<&str> {
    let texts: Vec<&str> = match &message["content"] {
        Value::String(text) => vec![text],
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => Vec::new(),
    };
    texts
        .into_iter()
        .filter(|text| !text.trim().is_empty())
        .collect()
}
