//! One small call of the default model, as a run would make it, in a home of its own that goes again.

use std::time::{Duration, Instant};

use soong::{
    Config, ErrorCode, Runtime, Start,
    protocol::{RunStatus, Stats},
};

use super::Check;
use crate::{
    command::{Context, at_work},
    exit::{self, Exit, Failure},
    figure,
    interrupt::Interrupt,
    print, text,
};

/// How long the call may take.
const LIMIT: Duration = Duration::from_secs(20);
/// How long its end may take beyond that.
const GRACE: Duration = Duration::from_secs(5);
/// Most tries: one that fails by chance is no finding.
const TRIES: u32 = 2;

/// Calls the default model. `Err` = Ctrl-C.
pub(super) fn call(context: &Context<'_>, mut config: Config) -> Result<Check, Failure> {
    // What presets and servers of tools need is not what is asked about here.
    config.presets.clear();
    config.mcp.clear();
    config.model.retry.max_attempts = config.model.retry.max_attempts.min(TRIES);
    let name = config.model.name.clone();
    if !context.global.json {
        print::error_line(&format!("calling {}, at most {} s; Ctrl-C leaves", text::line(&name), LIMIT.as_secs()));
    }
    let begun = Instant::now();
    let asked = at_work(async {
        let interrupt = Interrupt::listen();
        tokio::select! {
            asked = tokio::time::timeout(LIMIT + GRACE, ask(context, config)) => Ok(asked),
            () = interrupt.first() => Err(Failure::new(Exit::Interrupted, "the call was cancelled", "")),
        }
    })?;
    let took = figure::span(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
    Ok(match asked {
        Ok(Ok(used)) => {
            let tokens = figure::count(used.total_tokens);
            Check::ok("call", format!("{name} answered after {took}, {tokens} tokens"))
        }
        Ok(Err((ErrorCode::Timeout, _))) | Err(_) => {
            Check::broken("call", format!("{name}: no answer within {took}"), advice(ErrorCode::Timeout))
        }
        Ok(Err((code, why))) => Check::broken("call", format!("{name}: {why}"), advice(code)),
    })
}

/// Asks for one word; returns what that used, or why there was no answer.
async fn ask(context: &Context<'_>, config: Config) -> Result<Stats, (ErrorCode, String)> {
    let broken = |error: soong::ErrorInfo| (error.code, error.message);
    let home = tempfile::tempdir()
        .map_err(|error| (ErrorCode::StorageError, format!("no temporary home can be made: {error}")))?;
    let project = tempfile::tempdir()
        .map_err(|error| (ErrorCode::StorageError, format!("no temporary folder can be made: {error}")))?;
    let runtime = Runtime::builder().home(home.path()).project_dir(project.path()).config(config);
    let runtime = runtime.environment(context.environment.clone()).build().await.map_err(broken)?;
    let start = Start {
        max_iterations: Some(1),
        tools: Some(Vec::new()),
        system_prompt: Some("You answer with one word.".to_owned()),
        timeout_ms: u64::try_from(LIMIT.as_millis()).ok(),
        ..Start::new("Reply with: ok")
    };
    let outcome = runtime.run_result(start, |_| {}).await;
    runtime.close().await;
    let outcome = outcome.map_err(broken)?;
    match (&outcome.status, &outcome.error) {
        (RunStatus::Completed, _) => Ok(outcome.stats.own),
        (_, Some(error)) => Err((error.code, error.message.clone())),
        (status, None) => Err((ErrorCode::InternalError, format!("the run ended {}", status.as_str()))),
    }
}

/// Says what to do about a call that failed.
fn advice(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Timeout | ErrorCode::ProviderTimeout => {
            "The service takes too long: try again, and check the address (`soong config show`) and the network."
        }
        code => match exit::advice(code) {
            "" => "Check address, model and key: `soong models list`.",
            advice => advice,
        },
    }
}
