//! Describes events in sentences.
//!
//! Pure, apart from the names and errors it remembers. Elsewhere: what a call did
//! (`soong_tui::transcript`), where the sentences are printed (`line_progress.rs`,
//! `command/traces/events.rs`).

use std::collections::HashMap;

use serde_json::Value;
use soong::protocol::{
    ArtifactEvent, BudgetDimension, BudgetEvent, ContextEvent, ErrorInfo, Event, EventRecord,
    ExperienceId, GoalEvent, HookEvent, MemoryEvent, MessageEvent, ModelEvent, PermissionEvent,
    RunEvent, RunId, SMALL_PRESET, SubAgentEvent, ToolEvent, TraceId,
};
use soong_tui::{format, spent::Spent, text};

/// Maximum width of untrusted text in a sentence, in columns.
const COLUMNS: usize = 100;

/// Describes the events of a run and its sub-agents.
#[derive(Debug, Default)]
pub(crate) struct EventSentences {
    /// Names of child runs: agent type and number.
    children: HashMap<RunId, String>,
    /// Last retry error of each run; a repeated error is not printed again.
    retries: HashMap<Option<RunId>, String>,
}

impl EventSentences {
    /// Describes any event.
    pub(crate) fn sentence(&mut self, record: &EventRecord) -> String {
        match &record.event {
            Event::Run(event @ RunEvent::Failed { .. }) => run(event).unwrap_or_default(),
            event => self
                .notable(record)
                .unwrap_or_else(|| other_sentence(event)),
        }
    }

    /// Returns the name of a child run.
    pub(crate) fn child(&self, run: &RunId) -> Option<&str> {
        self.children.get(run).map(String::as_str)
    }

    /// Describes an event that a user who watches the run wants to know of. Returns `None` for
    /// other events.
    pub(crate) fn notable(&mut self, record: &EventRecord) -> Option<String> {
        // The parent reports the start and end of a child, and the goals of a child are not shown.
        let is_child = record
            .run_id
            .as_ref()
            .is_some_and(|id| self.children.contains_key(id));
        Some(match &record.event {
            Event::Run(RunEvent::LoopStarted { .. } | RunEvent::Completed { .. })
            | Event::Goal(_)
                if is_child =>
            {
                return None;
            }
            // The command prints the full message at the end.
            Event::Run(RunEvent::Failed { error, .. }) if !is_child => {
                format!("failed: {}", error.code)
            }
            Event::Run(event) => run(event)?,
            Event::SubAgent(event) => self.sub_agent(event)?,
            Event::Permission(PermissionEvent::Requested {
                permission_id,
                tool,
                target,
                ..
            }) => {
                format!(
                    "requests permission: {} {} (permission {permission_id})",
                    text::safe_line(tool),
                    short(target)
                )
            }
            Event::Permission(PermissionEvent::Decided {
                permission_id,
                decision,
                by,
                ..
            }) => {
                format!(
                    "permission {permission_id}: {} by {}",
                    decision.as_str(),
                    text::safe_line(by)
                )
            }
            Event::Memory(event) => memory(event)?,
            Event::Hook(HookEvent::Denied { event, reason }) => {
                format!(
                    "a hook denied {}: {}",
                    text::safe_line(event),
                    short(reason)
                )
            }
            Event::Hook(HookEvent::Failed { event, error }) => {
                format!(
                    "a hook failed on {}: {}",
                    text::safe_line(event),
                    short(error)
                )
            }
            Event::Hook(HookEvent::CallbackFailed {
                callback,
                point,
                error,
                ..
            }) => {
                format!(
                    "callback {} failed at {point}: {}",
                    text::safe_line(callback),
                    short(&error.message)
                )
            }
            Event::Tool(event) => tool(event)?,
            Event::Budget(BudgetEvent::Warning {
                dimension,
                used,
                limit,
            }) => {
                format!(
                    "the budget is nearly used up: {used} of {limit} {}",
                    words(*dimension)
                )
            }
            Event::Budget(BudgetEvent::Exceeded {
                dimension,
                used,
                limit,
            }) => {
                format!(
                    "the budget is too small for the next step: {used} of {limit} {} used",
                    words(*dimension)
                )
            }
            Event::Model(event) => self.model(event, record.run_id.as_ref())?,
            Event::Goal(GoalEvent::Added { goal, .. }) => {
                format!("goal {} {}", goal.number, short(&goal.description))
            }
            Event::Message(MessageEvent::Rewind { head_sequence, .. }) => {
                format!("rewound to message {head_sequence}")
            }
            Event::Permission(PermissionEvent::ModeChanged { mode }) => {
                format!("permission mode: {}", mode.as_str())
            }
            Event::Context(event) => context(event)?,
            Event::Artifact(event) => artifact(event)?,
            Event::Hook(HookEvent::CallbackCompleted { .. })
            | Event::Goal(GoalEvent::Updated { .. } | GoalEvent::Focused { .. })
            | Event::Message(MessageEvent::Added { .. } | MessageEvent::HeadSwitched { .. })
            | Event::Unknown { .. } => return None,
        })
    }

    fn model(&mut self, event: &ModelEvent, run: Option<&RunId>) -> Option<String> {
        Some(match event {
            ModelEvent::Waiting { reason, .. } => {
                format!("waiting for a model call: {}", text::safe_line(reason))
            }
            ModelEvent::Retrying {
                attempt,
                error,
                wait_ms,
                ..
            } => {
                let wait = format::duration(*wait_ms);
                let error = error.to_string();
                let last = self.retries.insert(run.cloned(), error.clone());
                let why = if last.as_ref() == Some(&error) {
                    "the same error".to_owned()
                } else {
                    short(&error)
                };
                format!("model call failed (attempt {attempt}), retrying in {wait}: {why}")
            }
            ModelEvent::Fallback {
                from,
                to,
                reason,
                error,
                ..
            } => {
                let from = text::safe_line(from);
                let to = text::safe_line(to);
                let why = error.as_ref().map_or_else(String::new, |error| {
                    format!(": {}", short(&error.to_string()))
                });
                format!(
                    "model {to} answers instead of {from} ({}){why}",
                    reason.replace('_', " ")
                )
            }
            ModelEvent::NamingEnded {
                name: Some(name), ..
            } => {
                format!("named: {}", text::safe_line(name))
            }
            ModelEvent::FallbackEnded { model } => {
                format!("model {} answers again", text::safe_line(model))
            }
            ModelEvent::ContextBuilt { .. }
            | ModelEvent::Started { .. }
            | ModelEvent::UsageCorrected { .. }
            | ModelEvent::EffortAdjusted { .. }
            | ModelEvent::ProviderDataRejected { .. }
            | ModelEvent::CallsFoundInText { .. }
            | ModelEvent::NamingStarted { .. }
            | ModelEvent::NamingEnded { .. }
            | ModelEvent::Completed { .. }
            | ModelEvent::Failed { .. } => return None,
        })
    }

    fn sub_agent(&mut self, event: &SubAgentEvent) -> Option<String> {
        Some(match event {
            SubAgentEvent::Started {
                sub_trace_id,
                run_id,
                agent_type,
                task,
                ..
            } => {
                let name = child_name(agent_type, sub_trace_id);
                self.children.insert(run_id.clone(), name.clone());
                format!("started {name}: {}", short(task))
            }
            SubAgentEvent::Completed {
                run_id,
                status,
                summary,
                stats,
                ..
            } => {
                let name = self.children.get(run_id).map_or("a child", String::as_str);
                let how = status.as_str();
                let used = Spent::from(&stats.tree).tokens();
                // The reason of a failure was already printed.
                let summary_text = if summary.is_empty() {
                    String::new()
                } else {
                    format!(": {}", short(summary))
                };
                format!(
                    "{name} {how} after {}, {used} tokens{summary_text}",
                    format::duration(stats.tree.duration_ms)
                )
            }
            SubAgentEvent::QuestionAsked {
                question_id,
                question,
                to,
                ..
            } => {
                let whom = to
                    .as_deref()
                    .map(|to| format!(" {}", text::safe_line(to)))
                    .unwrap_or_default();
                format!("asks{whom}: {} (question {question_id})", short(question))
            }
            SubAgentEvent::QuestionAnswered { question_id } => {
                format!("question {question_id} answered")
            }
            SubAgentEvent::Delivered { .. } | SubAgentEvent::CollaboratorUpdated { .. } => {
                return None;
            }
        })
    }
}

fn memory(event: &MemoryEvent) -> Option<String> {
    Some(match event {
        MemoryEvent::Injected {
            error: Some(error), ..
        } => {
            format!(
                "experiences are not available: {}",
                short(&error.to_string())
            )
        }
        MemoryEvent::Injected { ids, .. } if ids.is_empty() => return None,
        MemoryEvent::Injected { ids, .. } => format!("uses experiences: {}", join_ids(ids)),
        MemoryEvent::ReflectionStarted {
            covered: (first, last),
            ..
        } => {
            format!("reflects on messages {first} to {last}")
        }
        MemoryEvent::ReflectionEnded { error, .. } => {
            format!(
                "the reflection failed: {}",
                short(&error.as_ref()?.to_string())
            )
        }
        MemoryEvent::Added { id, category } => {
            format!("recorded experience {id} ({})", text::safe_line(category))
        }
        MemoryEvent::Rated { helpful, harmful } => {
            let parts = [("helpful", helpful), ("harmful", harmful)];
            let parts = parts.into_iter().filter(|(_, ids)| !ids.is_empty());
            parts
                .map(|(how, ids)| format!("{how}: {}", join_ids(ids)))
                .collect::<Vec<_>>()
                .join("; ")
        }
    })
}

fn tool(event: &ToolEvent) -> Option<String> {
    Some(match event {
        ToolEvent::Denied { name, reason, .. } => {
            format!(
                "tool {} was denied: {}",
                text::safe_line(name),
                short(reason)
            )
        }
        ToolEvent::Failed { name, error, .. } => {
            format!(
                "tool {} failed: {}",
                text::safe_line(name),
                short(&error.to_string())
            )
        }
        ToolEvent::McpServerFailed { error, .. } => format!("warning: {}", mcp_warning(error)),
        ToolEvent::Started { .. } | ToolEvent::Completed { .. } => return None,
    })
}

/// Returns a sentence about an event of the context, if it is notable.
pub(crate) fn context(event: &ContextEvent) -> Option<String> {
    Some(match event {
        ContextEvent::CompactionCompleted {
            covered,
            tokens_before,
            tokens_after,
            ..
        } => format!(
            "messages {} to {} replaced by a summary: {} tokens instead of {}",
            covered.0,
            covered.1,
            format::count(*tokens_after),
            format::count(*tokens_before)
        ),
        ContextEvent::CompactionFailed { error, .. } => {
            format!(
                "the conversation could not be summarized: {}",
                short(&error.to_string())
            )
        }
        ContextEvent::OldestOmitted {
            covered: (first, last),
            tokens_before,
            tokens_after,
            ..
        } => format!(
            "messages {first} to {last} are left out without a summary: {} instead of {} tokens",
            format::count(*tokens_after),
            format::count(*tokens_before)
        ),
        ContextEvent::FilesOmitted {
            files, rejected, ..
        } if !rejected.is_empty() => {
            format!(
                "the service rejected these files, so the model reads descriptions only: {}",
                short(&files.join("; "))
            )
        }
        ContextEvent::FilesOmitted { model, files, .. } => {
            format!(
                "model {} reads descriptions only of: {}",
                text::safe_line(model),
                short(&files.join("; "))
            )
        }
        ContextEvent::CompactionStarted { .. } => return None,
    })
}

fn artifact(event: &ArtifactEvent) -> Option<String> {
    Some(match event {
        ArtifactEvent::Saved {
            name,
            artifact_id,
            version,
            size,
            ..
        } => {
            let label = name.as_deref().unwrap_or(artifact_id.as_str());
            format!(
                "artifact {} version {version} saved, {}",
                text::safe_line(label),
                format::bytes(*size)
            )
        }
        ArtifactEvent::Edited { snapshot, name, .. } => {
            let size = format::bytes(snapshot.size);
            format!(
                "artifact {} edited, revision {}, {size}",
                text::safe_line(name),
                snapshot.version
            )
        }
        ArtifactEvent::Withdrawn { name, .. } => {
            format!("artifact {} no longer exists", text::safe_line(name))
        }
        ArtifactEvent::Flushed { failed, .. } if !failed.is_empty() => {
            let names: Vec<&str> = failed.iter().map(|failed| failed.name.as_str()).collect();
            format!(
                "artifacts not saved as a version: {}",
                text::safe_line(&names.join(", "))
            )
        }
        ArtifactEvent::Flushed { .. } | ArtifactEvent::Deleted { .. } => return None,
    })
}

/// Describes an event that [`EventSentences::notable`] leaves out.
fn other_sentence(event: &Event) -> String {
    match event {
        Event::Message(MessageEvent::Added {
            sequence,
            role,
            preview,
            ..
        }) => {
            format!(
                "message {sequence} of {}: {}",
                role.as_str(),
                short(preview)
            )
        }
        Event::Model(ModelEvent::ContextBuilt {
            messages,
            tools,
            estimated_tokens,
            ..
        }) => format!(
            "built a prompt of {}, {}, about {} tokens",
            plural(*messages, "message", "messages"),
            plural(*tools, "tool", "tools"),
            format::count(*estimated_tokens)
        ),
        Event::Model(ModelEvent::Started { model, .. }) => {
            format!("calls model {}", text::safe_line(model))
        }
        Event::Model(ModelEvent::Completed {
            finish_reason,
            tool_calls,
            usage,
            ..
        }) => format!(
            "the model answered ({}): {}, {} tokens",
            text::safe_line(finish_reason),
            plural(*tool_calls, "tool call", "tool calls"),
            format::count(usage.total_tokens())
        ),
        Event::Tool(ToolEvent::Started { name, .. }) => {
            format!("tool {} started", text::safe_line(name))
        }
        Event::Tool(ToolEvent::Completed {
            name,
            duration_ms,
            preview,
            ..
        }) => {
            let duration = format::duration(*duration_ms);
            format!(
                "tool {} completed after {duration}: {}",
                text::safe_line(name),
                short(preview)
            )
        }
        other => short(&format!(
            "{}{}",
            other.kind().replace('_', " "),
            fields(&other.data_json())
        )),
    }
}

/// Lists the texts and numbers in the data of an event.
fn fields(data: &str) -> String {
    let Ok(Value::Object(data)) = serde_json::from_str(data) else {
        return String::new();
    };
    let mut found = Vec::new();
    let mut open: Vec<(String, Value)> = data.into_iter().rev().collect();
    while let Some((name, value)) = open.pop() {
        match value {
            Value::Object(parts) => open.extend(parts.into_iter().rev()),
            Value::String(text) => found.push(format!("{} {text}", name.replace('_', " "))),
            Value::Number(number) => found.push(format!("{} {number}", name.replace('_', " "))),
            Value::Null | Value::Bool(_) | Value::Array(_) => {}
        }
    }
    if found.is_empty() {
        String::new()
    } else {
        format!(": {}", found.join(", "))
    }
}

fn plural(n: u64, one: &str, many: &str) -> String {
    format::plural(usize::try_from(n).unwrap_or(usize::MAX), one, many)
}

/// Formats the warning that a run continues without an MCP server.
pub(crate) fn mcp_warning(error: &ErrorInfo) -> String {
    format!(
        "{}; the run continues without its tools",
        text::safe_line(&error.message)
    )
}

fn words(dimension: BudgetDimension) -> String {
    dimension.as_str().replace('_', " ")
}

fn run(event: &RunEvent) -> Option<String> {
    Some(match event {
        RunEvent::Queued { position } => format!("queued at position {position}"),
        RunEvent::LoopStarted {
            mode,
            agent_type,
            model,
        } => {
            let reason = if agent_type == SMALL_PRESET {
                " (for a small context window)"
            } else {
                ""
            };
            format!(
                "started as {}{reason} in mode {} with model {}",
                text::safe_line(agent_type),
                mode.as_str(),
                text::safe_line(model)
            )
        }
        RunEvent::Completed { stats, .. } => format!(
            "completed after {}",
            format::duration(stats.tree.duration_ms)
        ),
        RunEvent::Failed { error, .. } => format!("failed: {}", short(&error.to_string())),
        RunEvent::Cancelled { .. } => "cancelled".to_owned(),
        RunEvent::CancelRequested {} => "cancel requested".to_owned(),
        RunEvent::CancelTimeout { after_ms } => {
            format!(
                "has not ended {} after the cancel request; still waiting",
                format::duration(*after_ms)
            )
        }
        RunEvent::ActorRestarted {
            actor,
            count,
            error,
        } => {
            format!(
                "{} crashed and was restarted (restart {count}): {}",
                text::safe_line(actor),
                short(error)
            )
        }
        RunEvent::Recovered { healed_calls: 0 } => "resumed after its process ended".to_owned(),
        RunEvent::Recovered { healed_calls } => {
            format!("resumed after its process ended; {healed_calls} of its calls were interrupted")
        }
        RunEvent::SessionForked { source, at, .. } => {
            format!("copied from {source} up to message {at}")
        }
        RunEvent::Waiting { r#for } => {
            format!("waiting for an answer ({})", text::safe_line(r#for))
        }
        RunEvent::Resumed { .. } => "resumed".to_owned(),
        RunEvent::Stuck { since } => format!("stuck: no progress since {since}"),
        // `run_failed` follows with the same error.
        RunEvent::Ending { .. } | RunEvent::Dequeued { .. } => return None,
    })
}

/// Returns the name of a child: its agent type and the number that distinguishes it from its
/// siblings.
fn child_name(agent_type: &str, trace: &TraceId) -> String {
    let number = trace.last_segment().rsplit('-').next().unwrap_or_default();
    text::safe_line(&format!("{agent_type}-{number}"))
}

/// Cuts untrusted text to the length of a sentence.
pub(crate) fn short(foreign: &str) -> String {
    text::cut(&text::safe_line(foreign), COLUMNS, "...")
}

/// Lists the ids of experiences.
fn join_ids(ids: &[ExperienceId]) -> String {
    text::safe_line(
        &ids.iter()
            .map(ExperienceId::as_str)
            .collect::<Vec<_>>()
            .join(", "),
    )
}
