//! A model that chooses by a seed and by the conversation what a run does next: it reads, plans,
//! asks a person, starts sub-agents, writes artifacts, makes mistakes, and answers. The same
//! conversation always gets the same answer; the first attempt of some calls fails, once in each
//! process.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use soong::{
    model::{Completion, Failure, ModelRequest},
    protocol::{Message, Role, ToolCall, Usage},
    testing::{Step, cut, fail, text},
};

/// Answer to a request for a summary.
const SUMMARY: &str =
    "## Request and intent\nthe job\n## Artifacts\nnone\n## Current work\nx\n## Next step\ny";
/// Number of answers after which a run stops calling tools.
const MAX_TURNS: u64 = 6;

/// The choices of a family of runs.
pub struct Family {
    seed: u64,
    /// Conversations whose next call has failed once.
    failed: Mutex<HashSet<u64>>,
}

impl Family {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            seed,
            failed: Mutex::default(),
        })
    }

    /// Returns the next step of the run that makes this request.
    pub fn step(&self, request: &ModelRequest) -> Step {
        if request.tools.is_empty() {
            return text(SUMMARY).usage(reported_usage(request));
        }
        let key = self.key(request);
        let can_call = |name: &str| request.tools.iter().any(|tool| tool.name == name);
        let answers = request
            .messages
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .count() as u64;
        let limit = 1 + hash(&(self.seed, task_of(request))) % MAX_TURNS;
        if let Some(failure) = self.failure(key) {
            return failure;
        }
        let answer = || {
            text(format!(
                "answer {key:x} {}",
                "word ".repeat((key % 60) as usize)
            ))
        };
        let step = if answers >= limit {
            answer()
        } else {
            match key % 16 {
                0 | 1 => calls(
                    key,
                    &[
                        ("read", json!({ "path": "a.txt" })),
                        ("list_files", json!({})),
                    ],
                ),
                2 => calls(
                    key,
                    &[(
                        "goal",
                        json!({ "add": [format!("goal {}", key % 100)], "focus": "1" }),
                    )],
                ),
                3 => calls(key, &[("goal", json!({ "done": "it is done" }))]),
                4 | 5 if can_call("agent") => {
                    calls(key, &[("agent", json!({ "task": tasks(key, 2) }))])
                }
                6 if can_call("agent") => calls(
                    key,
                    &[("agent", json!({ "task": format!("delegate {}", key % 50) }))],
                ),
                7 if can_call("agent") => {
                    let tasks = json!({ "task": tasks(key, 3) });
                    calls(
                        key,
                        &[
                            ("agent", tasks),
                            ("read", json!({ "path": "a.txt" })),
                            edit(key),
                        ],
                    )
                }
                8 if can_call("evaluate") => calls(key, &[("evaluate", json!({}))]),
                9 if can_call("ask_human") => {
                    calls(key, &[("ask_human", json!({ "question": "which one?" }))])
                }
                10 | 11 => calls(
                    key,
                    &[
                        ("create_artifact", json!({ "name": "doc", "content": "0" })),
                        edit(key),
                    ],
                ),
                12 => calls(
                    key,
                    &[
                        (
                            "write",
                            json!({ "path": "b.txt", "content": key.to_string() }),
                        ),
                        edit(key),
                    ],
                ),
                13 => calls(
                    key,
                    &[("read", json!("no arguments")), ("no_such_tool", json!({}))],
                ),
                14 if can_call("effect") => calls(
                    key,
                    &[("effect", json!({ "n": 1 })), ("note", json!({ "n": 2 }))],
                ),
                14 => calls(key, &[("read", json!({ "path": "long.txt" }))]),
                _ => answer(),
            }
        };
        step.usage(reported_usage(request))
            .pause(Duration::from_micros(key % 3_000))
    }

    /// Returns a number that depends on the conversation.
    fn key(&self, request: &ModelRequest) -> u64 {
        let last = request
            .messages
            .last()
            .map_or("", |message| &*message.content);
        hash(&(self.seed, task_of(request), request.messages.len(), last))
    }

    /// Returns the failure with which the first attempt of some calls ends.
    fn failure(&self, key: u64) -> Option<Step> {
        let failure = match key / 16 % 12 {
            0 => fail(Failure::Unavailable, "the service is down"),
            1 => cut("half an ", Failure::InvalidResponse, "the stream ended"),
            2 => fail(Failure::PromptTooLong, "the prompt is too long"),
            3 => fail(Failure::AnswerTooLarge, "the answer is too large"),
            _ => return None,
        };
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.insert(key).then_some(failure)
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn task_of(request: &ModelRequest) -> &str {
    let is_task = |message: &&Arc<Message>| {
        message.role == Role::User && !message.content.starts_with("## Context\n")
    };
    request
        .messages
        .iter()
        .find(is_task)
        .map_or("", |message| &message.content)
}

fn tasks(key: u64, count: u64) -> Vec<String> {
    (0..count)
        .map(|number| format!("explore {}", (key / 7 + number) % 50))
        .collect()
}

fn edit(key: u64) -> (&'static str, Value) {
    (
        "rewrite_artifact",
        json!({ "name": "doc", "content": key.to_string() }),
    )
}

/// Returns calls with ids that no other conversation has.
fn calls(key: u64, requested: &[(&str, Value)]) -> Step {
    let calls = requested
        .iter()
        .enumerate()
        .map(|(index, (name, arguments))| ToolCall {
            id: format!("call_{key:x}_{index}"),
            name: (*name).to_owned(),
            arguments: arguments.to_string(),
        });
    Step::from(Completion::tool_calls(calls.collect()))
}

/// Returns the usage that the service reports: one token for two bytes of the prompt, and 100 for
/// the answer. The runtime estimates less for a call that is cut off.
pub fn reported_usage(request: &ModelRequest) -> Usage {
    let messages: usize = request
        .messages
        .iter()
        .map(|message| message.content.len() + 100)
        .sum();
    let calls = request
        .messages
        .iter()
        .flat_map(|message| &message.tool_calls);
    let calls: usize = calls
        .map(|call| call.arguments.len() + call.name.len() + 50)
        .sum();
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.description.len() + tool.parameters.to_string().len() + 50);
    let bytes = messages + calls + tools.sum::<usize>() + request.system_and_context().len();
    Usage {
        prompt_tokens: bytes as u64 / 2,
        completion_tokens: 100,
        ..Usage::default()
    }
}
