//! A model service with a prompt cache that follows the published rules of a provider.
//!
//! A cache entry is a beginning of a prompt. It can be read once the answer to the request that
//! wrote it has begun.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::scripted::{Reply, Request, ScriptedServer, delta};

/// Time from a request to the beginning of its answer.
pub const ANSWER_AFTER: Duration = Duration::from_millis(40);
/// Maximum number of blocks before a mark in which Anthropic looks for an entry.
const MAX_LOOKBACK: usize = 20;
/// Maximum number of marks of a request to Anthropic.
const MAX_MARKS: usize = 4;
/// Chat completions cache whole blocks of this many tokens.
const BLOCK_TOKENS: usize = 128;

/// The rules of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheRules {
    /// Anthropic: up to a block that is marked, at most four.
    Marks,
    /// OpenAI from GPT 5.6 on: up to a part that is marked, and up to the last part; apart for each
    /// key.
    Breakpoints,
    /// The same in chat completions.
    ChatBreakpoints,
    /// OpenAI's older models, in whole blocks of tokens.
    Blocks,
    /// Gemini: any beginning.
    Prefix,
}

/// Counts of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    pub key: Option<String>,
    pub prompt_tokens: usize,
    pub read_tokens: usize,
    pub written_tokens: usize,
    pub marks: usize,
    /// Texts of the blocks of the prompt.
    pub blocks: Vec<String>,
}

/// A beginning of a prompt, and from when on it can be read.
type Entry = (String, Instant);

/// The service.
pub struct CachingService {
    pub server: ScriptedServer,
    counted: Arc<Mutex<Vec<Counted>>>,
}

impl CachingService {
    /// Starts a service that answers every request with a short text. `min_tokens`: the shortest
    /// prompt that is cached. `answer_after`: the time until the answer, and until others can read
    /// what the request has written.
    pub fn start(rules: CacheRules, min_tokens: usize, answer_after: Duration) -> Self {
        let counted: Arc<Mutex<Vec<Counted>>> = Arc::default();
        let seen = Arc::clone(&counted);
        let entries: Mutex<BTreeMap<Option<String>, Vec<Entry>>> = Mutex::default();
        let server = ScriptedServer::start(move |request| {
            let mut entries = entries.lock().unwrap();
            let of_request = count(rules, min_tokens, answer_after, request, &mut entries);
            let reply = reply(rules, &of_request);
            seen.lock().unwrap().push(of_request);
            reply.after(answer_after)
        });
        Self { server, counted }
    }

    /// Returns what was counted so far, in the order of the requests.
    pub fn counted(&self) -> Vec<Counted> {
        self.counted.lock().unwrap().clone()
    }
}

fn count(
    rules: CacheRules,
    min_tokens: usize,
    answer_after: Duration,
    request: &Request,
    entries: &mut BTreeMap<Option<String>, Vec<Entry>>,
) -> Counted {
    let blocks = blocks(rules, &request.body);
    let key = request.body["prompt_cache_key"].as_str().map(str::to_owned);
    let entries = entries.entry(key.clone()).or_default();
    let prompt: String = blocks.iter().map(|(text, _)| text.as_str()).collect();
    // The ends of the beginnings that are written.
    let mut end = 0;
    let ends: Vec<(usize, bool)> = blocks
        .iter()
        .map(|(text, is_marked)| {
            end += text.len();
            (end, *is_marked)
        })
        .collect();
    let last = blocks.len() - 1;
    let written: Vec<usize> = match rules {
        CacheRules::Marks => ends
            .iter()
            .filter(|(_, is_marked)| *is_marked)
            .map(|(end, _)| *end)
            .collect(),
        CacheRules::Breakpoints | CacheRules::ChatBreakpoints => {
            let is_end =
                |(index, (_, is_marked)): &(usize, &(usize, bool))| *is_marked || *index == last;
            ends.iter()
                .enumerate()
                .filter(is_end)
                .map(|(_, (end, _))| *end)
                .collect()
        }
        CacheRules::Blocks | CacheRules::Prefix => vec![prompt.len()],
    };
    let now = Instant::now();
    let readable = entries.iter().filter(|(_, from)| *from <= now);
    let read = readable.map(|(entry, _)| match rules {
        CacheRules::Marks => {
            let is_near = |mark: usize| {
                let index = ends.iter().position(|(end, _)| *end == mark).unwrap();
                ends[index.saturating_sub(MAX_LOOKBACK)..=index]
                    .iter()
                    .any(|(end, _)| *end == entry.len())
            };
            if prompt.starts_with(entry.as_str()) && written.iter().any(|mark| is_near(*mark)) {
                entry.len()
            } else {
                0
            }
        }
        CacheRules::Breakpoints | CacheRules::ChatBreakpoints => {
            if prompt.starts_with(entry.as_str()) && written.contains(&entry.len()) {
                entry.len()
            } else {
                0
            }
        }
        CacheRules::Blocks => common_length(entry, &prompt) / 4 / BLOCK_TOKENS * BLOCK_TOKENS * 4,
        CacheRules::Prefix => common_length(entry, &prompt),
    });
    let is_long_enough = |bytes: usize| bytes / 4 >= min_tokens;
    let read = read
        .filter(|bytes| is_long_enough(*bytes))
        .max()
        .unwrap_or(0);
    let written: Vec<usize> = written
        .into_iter()
        .filter(|bytes| is_long_enough(*bytes))
        .collect();
    entries.extend(
        written
            .iter()
            .map(|end| (prompt[..*end].to_owned(), now + answer_after)),
    );
    Counted {
        key,
        prompt_tokens: prompt.len() / 4,
        read_tokens: read / 4,
        written_tokens: written
            .iter()
            .max()
            .map_or(0, |end| end.saturating_sub(read) / 4),
        marks: ends.iter().filter(|(_, is_marked)| *is_marked).count(),
        blocks: blocks.into_iter().map(|(text, _)| text).collect(),
    }
}

fn common_length(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

/// Returns the blocks of a prompt in the order in which the provider reads them, and whether each
/// carries a mark.
fn blocks(rules: CacheRules, body: &Value) -> Vec<(String, bool)> {
    let (mark, system, messages) = match rules {
        CacheRules::Marks => ("cache_control", &body["system"], &body["messages"]),
        CacheRules::Breakpoints => ("prompt_cache_breakpoint", &Value::Null, &body["input"]),
        CacheRules::ChatBreakpoints => ("prompt_cache_breakpoint", &Value::Null, &body["messages"]),
        CacheRules::Blocks => ("", &Value::Null, &body["messages"]),
        CacheRules::Prefix => ("", &body["systemInstruction"]["parts"], &body["contents"]),
    };
    let block = |block: &Value| {
        let mut block = block.clone();
        let is_marked = block
            .as_object_mut()
            .is_some_and(|block| block.remove(mark).is_some());
        (block.to_string(), is_marked)
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let content = |message: &Value| match message.get("content").or_else(|| message.get("parts")) {
        Some(Value::Array(parts)) => parts.clone(),
        Some(text) => vec![text.clone()],
        None => vec![message.clone()],
    };
    let all = list(&body["tools"]).into_iter().chain(list(system));
    let all: Vec<_> = all
        .chain(list(messages).iter().flat_map(content))
        .map(|part| block(&part))
        .collect();
    let marks = all.iter().filter(|(_, is_marked)| *is_marked).count();
    assert!(
        rules != CacheRules::Marks || marks <= MAX_MARKS,
        "{marks} marks: {body}"
    );
    all
}

fn reply(rules: CacheRules, counted: &Counted) -> Reply {
    let Counted {
        prompt_tokens,
        read_tokens,
        written_tokens,
        ..
    } = *counted;
    let events = |events: &[Value]| {
        let line = |event: &Value| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap_or("message")
            )
            .into_bytes()
        };
        Reply::stream(events.iter().map(line).collect::<Vec<_>>())
    };
    match rules {
        CacheRules::Marks => {
            let usage = json!({"input_tokens": prompt_tokens - read_tokens - written_tokens, "output_tokens": 1,
                "cache_read_input_tokens": read_tokens, "cache_creation_input_tokens": written_tokens});
            events(&[
                json!({"type": "message_start", "message": {"usage": usage}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "done"}}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
                json!({"type": "message_stop"}),
            ])
        }
        CacheRules::Breakpoints => {
            let content = json!([{"type": "output_text", "text": "done", "annotations": []}]);
            let item = json!({"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content});
            let usage = json!({"input_tokens": prompt_tokens, "output_tokens": 1, "total_tokens": prompt_tokens + 1,
                "input_tokens_details": {"cached_tokens": read_tokens, "cache_write_tokens": written_tokens}});
            events(&[
                json!({"type": "response.output_item.added", "output_index": 0,
                    "item": {"type": "message", "id": "m", "role": "assistant", "content": []}}),
                json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "done"}),
                json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
                json!({"type": "response.completed",
                    "response": {"status": "completed", "output": [item], "usage": usage}}),
            ])
        }
        CacheRules::Blocks | CacheRules::ChatBreakpoints => {
            let usage = json!({"prompt_tokens": prompt_tokens, "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": read_tokens}});
            Reply::sse([
                delta(json!({"content": "done"}), Value::Null),
                delta(json!({}), "stop".into()),
                json!({"choices": [], "usage": usage}),
            ])
        }
        CacheRules::Prefix => {
            let usage = json!({"promptTokenCount": prompt_tokens, "cachedContentTokenCount": read_tokens,
                "candidatesTokenCount": 1});
            let content = json!({"role": "model", "parts": [{"text": "done"}]});
            events(&[
                json!({"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage}),
            ])
        }
    }
}
