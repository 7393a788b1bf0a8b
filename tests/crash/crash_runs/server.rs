//! The model: a scripted server in the parent, so that it outlives every child.
//!
//! Its answer depends only on the conversation: which run asks, and how often it was answered. So a
//! repeated call gets the same answer. The server checks every conversation that it receives.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    effect::{EFFECT, NOTE},
    invariants::Violation,
    pairing,
    scene::{ANSWER, CHILDREN, DOCUMENT, task},
    scripted::{Reply, Request, ScriptedServer},
};

/// Conversations checked by the server.
#[derive(Debug, Default)]
pub(crate) struct HistoryChecks {
    pub(crate) histories: u64,
    pub(crate) wrong: Vec<Violation>,
}

/// The server and its results.
pub(crate) struct Server {
    server: ScriptedServer,
    judged: Arc<Mutex<HistoryChecks>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let judged = Arc::new(Mutex::new(HistoryChecks::default()));
        let seen = Arc::clone(&judged);
        let server = ScriptedServer::start(move |request| answer(request, &seen));
        Self { server, judged }
    }

    pub(crate) fn base_url(&self) -> String {
        self.server.base_url()
    }

    /// Returns the results so far and resets them.
    pub(crate) fn take(&self) -> HistoryChecks {
        std::mem::take(&mut *self.judged.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn answer(request: &Request, judged: &Mutex<HistoryChecks>) -> Reply {
    let messages: &[Value] = request.body["messages"]
        .as_array()
        .map_or(&[], Vec::as_slice);
    {
        let mut judged = judged.lock().unwrap_or_else(PoisonError::into_inner);
        judged.histories += 1;
        for (kind, verdict) in [
            ("history rejected by OpenAI", pairing::openai(messages)),
            (
                "history rejected by Anthropic",
                pairing::anthropic(messages),
            ),
        ] {
            if let Err(why) = verdict {
                let shown = serde_json::to_string(messages).unwrap_or_default();
                judged
                    .wrong
                    .push(Violation::new(kind, format!("{why}: {shown}")));
            }
        }
    }
    let has = |tool: &str| {
        request.body["tools"]
            .as_array()
            .is_some_and(|tools| tools.iter().any(|t| t["function"]["name"] == tool))
    };
    let answered = messages
        .iter()
        .filter(|message| message["role"] == "assistant")
        .count();
    let prompt = messages.iter().find(|message| message["role"] == "user");
    let prompt = prompt
        .and_then(|message| message["content"].as_str())
        .unwrap_or_default();
    let child = (1..=CHILDREN).find(|child| prompt.contains(&task(*child)));
    let reply = match child {
        Some(child) => explore(child, answered),
        None if has("agent") => orchestrate(answered),
        None => Reply::status(400, format!("unknown prompt {prompt:?}")),
    };
    // Answers are spread over a few milliseconds, by a deterministic delay.
    let length: usize = prompt.len() + answered * 7 + child.map_or(0, |child| child as usize * 3);
    reply.after(Duration::from_millis(length as u64 % 5))
}

fn orchestrate(answered: usize) -> Reply {
    match answered {
        0 => {
            let lines: String = (0..=CHILDREN)
                .map(|part| format!("part {part}: open\n"))
                .collect();
            calls(
                0,
                answered,
                &[
                    (
                        "create_artifact",
                        json!({"name": DOCUMENT, "content": lines}),
                    ),
                    (EFFECT, json!({"n": 0})),
                    ("goal", json!({"add": "explore everything"})),
                ],
            )
        }
        1 => calls(
            0,
            answered,
            &[(
                "agent",
                json!({"task": (1..=CHILDREN).map(task).collect::<Vec<_>>()}),
            )],
        ),
        2 => calls(
            0,
            answered,
            &[
                (EFFECT, json!({"n": 100})),
                edit(0),
                (NOTE, json!({"n": 100})),
            ],
        ),
        _ => Reply::answer(ANSWER),
    }
}

fn explore(child: u64, answered: usize) -> Reply {
    match answered {
        0 => calls(
            child,
            answered,
            &[(EFFECT, json!({"n": child})), (NOTE, json!({"n": child}))],
        ),
        1 => calls(child, answered, &[edit(child), ("list_files", json!({}))]),
        2 => calls(child, answered, &[(EFFECT, json!({"n": 10 + child}))]),
        _ => Reply::answer(&format!("part {child} is explored")),
    }
}

fn edit(part: u64) -> (&'static str, Value) {
    let old = format!("part {part}: open");
    let new = format!("part {part}: done");
    (
        "update_artifact",
        json!({"name": DOCUMENT, "old": old, "new": new}),
    )
}

/// Returns calls whose ids are unique across all conversations.
fn calls(who: u64, turn: usize, requested: &[(&str, Value)]) -> Reply {
    let requested: Vec<(String, &str, String)> = requested
        .iter()
        .enumerate()
        .map(|(index, (name, arguments))| {
            (
                format!("call_{who}_{turn}_{index}"),
                *name,
                arguments.to_string(),
            )
        })
        .collect();
    let requested: Vec<(&str, &str, &str)> = requested
        .iter()
        .map(|(id, name, a)| (id.as_str(), *name, a.as_str()))
        .collect();
    Reply::calls(&requested)
}
