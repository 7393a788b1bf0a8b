//! A short run of the default model: a small prompt with one tool, a tool call and its result.
//!
//! Detects a context window that is too small, a missing tool template or a rejected parameter
//! before the first real run does. A slow server is no error: the run continues as long as data
//! arrives. The home and the project of the run are temporary.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use soong::{
    Config, ErrorCode, ErrorInfo, RunOutcome, RunRequest, Runtime, StreamItem,
    model::{ServerFacts, server_facts},
    protocol::{
        Event, ModelEvent, Provider, RunStatus, SMALL_PRESET, SMALL_WINDOW_TOKENS, Stats, ToolEvent,
    },
};
use soong_tui::{format, text};

use super::Check;
use crate::{
    command::{block_on_current_thread, block_on_multi_thread},
    config::Settings,
    context::Context,
    exit::{self, Exit, Failure},
    interrupt::Interrupt,
    print,
};

/// Maximum duration of the run. A server without data is given up earlier, by the limits of the
/// profile.
const RUN_TIMEOUT: Duration = Duration::from_secs(1_800);
/// Maximum time for the run to end after its limit.
const END_GRACE: Duration = Duration::from_secs(5);
/// Duration of the run above which the server counts as slow.
const SLOW_AFTER: Duration = Duration::from_secs(120);
/// Maximum tokens of an answer.
const MAX_OUTPUT_TOKENS: u64 = 4_096;
/// Tokens of the prompts of the presets `default` and `small`, without the conversation
/// (`examples/bench/budget.toml`).
const DEFAULT_PROMPT_TOKENS: u64 = 2_500;
const SMALL_PROMPT_TOKENS: u64 = 900;
/// Tokens that a conversation and the answers of a run need at least.
const MIN_ROOM_TOKENS: u64 = 4_096;
/// System prompt of the run.
const PROMPT: &str = "Use the tool as you are asked. Answer briefly.";
/// Maximum attempts per model call, so that one transient failure is not reported.
const MAX_ATTEMPTS: u32 = 2;
/// Maximum number of model calls; some models call a tool more than once.
const MAX_TURNS: u32 = 4;
/// Tool that the model is asked to call.
const TOOL: &str = "list_files";
/// File that the tool lists.
const FILE: &str = "soong-check.txt";
/// Divisor for detecting truncated prompts: if the service counts less than 1/3 of the estimated
/// tokens, it has cut the prompt.
const TRUNCATION_FACTOR: u64 = 3;

/// Observations from the model calls of the run.
#[derive(Debug, Clone, Copy, Default)]
struct CallObservations {
    /// Number of deltas (text and reasoning).
    deltas: u64,
    /// Number of answers.
    answers: u64,
    /// Number of answers without usage data.
    without_usage: u64,
    /// Size of the largest prompt in tokens, as estimated.
    estimated_tokens: u64,
    /// Size of the largest prompt in tokens, as the service counts it.
    counted_tokens: u64,
    /// Number of tool calls that the model requested.
    tool_calls: u64,
    /// Whether the requested tool was called and returned its result.
    used_tool: bool,
}

impl CallObservations {
    fn observe(&mut self, item: &StreamItem) {
        let record = match item {
            StreamItem::Event(record) => record,
            StreamItem::Delta(_) => {
                self.deltas += 1;
                return;
            }
            _ => return,
        };
        match &record.event {
            Event::Model(ModelEvent::ContextBuilt {
                estimated_tokens, ..
            }) => {
                self.estimated_tokens = self.estimated_tokens.max(*estimated_tokens);
            }
            Event::Model(ModelEvent::Completed {
                usage, tool_calls, ..
            }) => {
                self.answers += 1;
                self.tool_calls += tool_calls;
                if usage.estimated {
                    self.without_usage += 1;
                } else {
                    self.counted_tokens = self.counted_tokens.max(usage.prompt_tokens);
                }
            }
            Event::Tool(ToolEvent::Completed { name, .. }) => self.used_tool |= name == TOOL,
            _ => {}
        }
    }

    /// Returns one check for each ability of the service.
    fn checks(&self, context_window: u64, facts: &ServerFacts) -> Vec<Check> {
        let tools = match (self.used_tool, self.tool_calls) {
            (true, _) => Check::ok(
                "call tools",
                format!("the model called `{TOOL}` and received its result"),
            ),
            (false, 0) if facts.takes_tools == Some(false) => Check::warning(
                "call tools",
                "the server's prompt template for the model drops tools, so the model does not know of them",
                "Use another model, or start the server with a template that has tools (llama.cpp: --jinja, \
                 --chat-template-file).",
            ),
            (false, 0) => Check::warning(
                "call tools",
                "the model called no tool, although the prompt asked for it",
                "Use a model that supports tool calls, and a server with its tool template (llama.cpp: --jinja; vLLM: \
                 --enable-auto-tool-choice).",
            ),
            (false, _) => Check::warning(
                "call tools",
                format!("the model called tools, but not `{TOOL}` with valid arguments"),
                "Use a model with better support for tool calls.",
            ),
        };
        let streaming = if self.deltas > self.answers {
            Check::ok(
                "call streaming",
                format!("answers are streamed, in {} chunks", self.deltas),
            )
        } else {
            Check::partly(
                "call streaming",
                "answers are not streamed",
                "Progress is shown only when an answer is complete.",
            )
        };
        let usage = match self.without_usage {
            0 => Check::ok("call usage", "the service reports the tokens of each call"),
            _ => Check::partly(
                "call usage",
                "the service does not report tokens",
                "Token counts are estimated, so budgets are approximate.",
            ),
        };
        let counted = format::count(self.counted_tokens);
        let estimated = format::count(self.estimated_tokens);
        let is_cut = self.counted_tokens > 0
            && self.counted_tokens.saturating_mul(TRUNCATION_FACTOR) < self.estimated_tokens;
        let window = if is_cut {
            Check::warning(
                "call window",
                format!(
                    "the service counted {counted} tokens of a prompt of about {estimated}: it truncates prompts"
                ),
                "Raise the context window of the server (Ollama: num_ctx), and set model.context_window to the same value.",
            )
        } else {
            window_check(context_window)
        };
        vec![tools, streaming, usage, window]
    }
}

/// Checks what a window leaves for the conversation and the answers, after the prompt of the preset
/// that runs get.
fn window_check(context_window: u64) -> Check {
    let is_small = context_window < SMALL_WINDOW_TOKENS;
    let preset = if is_small { SMALL_PRESET } else { "default" };
    let prompt_tokens = if is_small {
        SMALL_PROMPT_TOKENS
    } else {
        DEFAULT_PROMPT_TOKENS
    };
    let left = context_window.saturating_sub(prompt_tokens);
    let finding = format!(
        "the context window of {context_window} tokens leaves {left} for the work, after the prompt of the preset `{preset}`"
    );
    if left >= MIN_ROOM_TOKENS {
        return Check::ok("call window", finding);
    }
    let advice = "Start the server with a larger window (llama.cpp: `-c`, which its slots share; Ollama: `num_ctx`), and \
                  set model.context_window if the server does not state it.";
    Check::warning("call window", finding, advice)
}

/// Checks from the model call, and the exit code if it failed.
pub(in crate::command) struct CallResult {
    pub(in crate::command) checks: Vec<Check>,
    pub(in crate::command) exit: Exit,
}

/// Calls the default model. Fails only on Ctrl-C.
pub(in crate::command) fn call(
    context: &Context<'_>,
    settings: Settings,
) -> Result<CallResult, Failure> {
    // The default model as runs use it.
    let models = settings.models(&context.environment);
    let model = models.config.model.clone();
    let name = model.model_name().to_owned();
    let is_offline = model.provider() == Provider::Offline;
    let limits = models.catalog.limits(&model, &name);
    let mut config = settings.config;
    // Presets and MCP servers have separate checks.
    config.presets.clear();
    config.mcp.clear();
    config.model.retry.max_attempts = config.model.retry.max_attempts.min(MAX_ATTEMPTS);
    config.model.max_output_tokens = Some(
        model
            .max_output_tokens
            .unwrap_or(MAX_OUTPUT_TOKENS)
            .min(MAX_OUTPUT_TOKENS),
    );
    if !context.global.json {
        let name = text::safe_line(&name);
        print::error_line(&format!(
            "calling {name} with a task and a tool; press Ctrl-C to cancel"
        ));
    }
    let begun = Instant::now();
    let mut seen = CallObservations::default();
    let called = block_on_multi_thread(async {
        let interrupt = Interrupt::listen();
        tokio::select! {
            called = tokio::time::timeout(RUN_TIMEOUT + END_GRACE, ask(context, config, &mut seen)) => Ok(called),
            () = interrupt.first() => Err(Failure::new(Exit::Interrupted, "the call was cancelled", "")),
        }
    })?;
    let elapsed = begun.elapsed();
    // Ollama states the window of a model only after it was loaded.
    let facts = block_on_current_thread(async {
        Ok(server_facts(&model, &context.environment, &name).await)
    })?;
    let context_window = limits.at_server(&model, &facts).context_window;
    let took = format::duration(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
    let failed = |error: &ErrorInfo, finding: String, advice: &str| CallResult {
        checks: vec![Check::broken("call", finding, advice)],
        exit: Exit::of_error(error),
    };
    Ok(match called {
        Ok(Ok(used)) => {
            let calls = format::plural(
                usize::try_from(seen.answers).unwrap_or(usize::MAX),
                "call",
                "calls",
            );
            let tokens = format::count(used.total_tokens);
            let finding = format!("{name} answered after {took}, {calls}, {tokens} tokens");
            let answered = if elapsed > SLOW_AFTER {
                slow(finding)
            } else {
                Check::ok("call", finding)
            };
            // The offline model has no context window and does not stream.
            let more = if is_offline {
                Vec::new()
            } else {
                seen.checks(context_window, &facts)
            };
            CallResult {
                checks: std::iter::once(answered).chain(more).collect(),
                exit: Exit::Success,
            }
        }
        // It works, and reasons for longer than this check.
        Ok(Err(error)) if error.code == ErrorCode::MaxOutputTokens => {
            let finding = format!("{name} answers, but not within {MAX_OUTPUT_TOKENS} tokens");
            let advice = "The model may reason for long: lower `effort`, or use another model.";
            CallResult {
                checks: vec![Check::warning("call", finding, advice)],
                exit: Exit::Success,
            }
        }
        Ok(Err(error)) if error.code != ErrorCode::Timeout => failed(
            &error,
            format!("{name}: {}", error.message),
            exit::advice(error.code),
        ),
        // It works, and only takes long.
        Ok(Err(_)) | Err(_) if seen.deltas > 0 => {
            let finding = format!("{name} began to answer, and was not finished after {took}");
            CallResult {
                checks: vec![slow(finding)],
                exit: Exit::Success,
            }
        }
        Ok(Err(_)) | Err(_) => {
            let error = ErrorInfo::new(ErrorCode::ProviderTimeout, "");
            let advice = "The service is too slow: try again, and check the URL (`soong config show`) and the \
                          network.";
            failed(&error, format!("{name}: no answer within {took}"), advice)
        }
    })
}

/// Returns the check of a model that answers slowly.
fn slow(finding: String) -> Check {
    Check::warning(
        "call",
        finding,
        "Runs will take long: use a smaller model, or a faster machine.",
    )
}

/// Runs the task. Returns the usage, or the error if there was no answer.
async fn ask(
    context: &Context<'_>,
    config: Config,
    seen: &mut CallObservations,
) -> Result<Stats, ErrorInfo> {
    let no_folder = |error: std::io::Error| {
        ErrorInfo::new(
            ErrorCode::StorageError,
            format!("cannot create a temporary folder: {error}"),
        )
    };
    let home = tempfile::tempdir().map_err(no_folder)?;
    let project = tempfile::tempdir().map_err(no_folder)?;
    std::fs::write(project.path().join(FILE), "").map_err(no_folder)?;
    let runtime = Runtime::builder()
        .home(home.path())
        .project_dir(project.path())
        .config(config);
    let runtime = runtime
        .environment(context.environment.clone())
        .build()
        .await?;
    let task = format!(
        "Call the tool `{TOOL}` once, for the folder \".\". Then answer with the name of the file in it."
    );
    let start = RunRequest::new(task)
        .max_turns(MAX_TURNS)
        .timeout(RUN_TIMEOUT)
        .system_prompt(PROMPT)
        .tools([TOOL]);
    let outcome = observe(&runtime, start, seen).await;
    runtime.close().await;
    let outcome = outcome?;
    match (&outcome.status, &outcome.error) {
        (RunStatus::Completed, _) => Ok(outcome.stats.own),
        (_, Some(error)) => Err(error.clone()),
        (status, None) => Err(ErrorInfo::new(
            ErrorCode::InternalError,
            format!("the run ended with status {}", status.as_str()),
        )),
    }
}

/// Starts a run, passes each item of its stream to `seen`, and returns its outcome.
async fn observe(
    runtime: &Runtime,
    request: RunRequest,
    seen: &mut CallObservations,
) -> Result<Arc<RunOutcome>, ErrorInfo> {
    let run = runtime.start(request).await?;
    let mut events = run.events()?;
    while let Some(item) = events.next().await {
        seen.observe(&item?);
    }
    run.wait().await
}

#[cfg(test)]
mod tests {
    use super::{super::Status, *};

    #[test]
    fn missing_service_features_are_reported() {
        let good = CallObservations {
            deltas: 9,
            answers: 2,
            without_usage: 0,
            estimated_tokens: 4_000,
            counted_tokens: 3_800,
            tool_calls: 1,
            used_tool: true,
        };
        let found = |seen: CallObservations| -> Vec<&'static str> {
            let checks = seen.checks(128_000, &ServerFacts::default());
            checks
                .iter()
                .filter(|check| check.status != Status::Ok)
                .map(|check| check.name)
                .collect()
        };
        assert_eq!(found(CallObservations { ..good }), [""; 0]);
        assert_eq!(
            found(CallObservations {
                used_tool: false,
                tool_calls: 0,
                ..good
            }),
            ["call tools"]
        );
        assert_eq!(
            found(CallObservations {
                used_tool: false,
                ..good
            }),
            ["call tools"]
        );
        assert_eq!(
            found(CallObservations { deltas: 1, ..good }),
            ["call streaming"]
        );
        assert_eq!(
            found(CallObservations {
                without_usage: 2,
                counted_tokens: 0,
                ..good
            }),
            ["call usage"]
        );
        assert_eq!(
            found(CallObservations {
                counted_tokens: 1_024,
                ..good
            }),
            ["call window"]
        );
        let no_tools = CallObservations {
            used_tool: false,
            tool_calls: 0,
            ..good
        };
        let facts = ServerFacts {
            takes_tools: Some(false),
            ..ServerFacts::default()
        };
        assert!(
            no_tools.checks(128_000, &facts)[0]
                .finding
                .contains("template")
        );
        let small = CallObservations { ..good }.checks(4_096, &ServerFacts::default());
        assert!(
            small[3].status == Status::Warning && small[3].finding.contains("leaves 3196"),
            "{small:?}"
        );
    }
}
