//! `soong doctor`: checks everything that a run needs, and gives advice.
//!
//! A check is ok, partly ok, a warning (works, but not well) or broken. The checks change nothing,
//! except that a small object is written to a bucket and deleted. Only the model call, which is
//! optional, may cost something.
//!
//! Modules: `artifacts` (the bucket), `home` (folder, owner, disk, database), `texts` (preset and
//! skill files), `servers` (MCP servers), `memory` (experiences), `model` (requirements for
//! reaching each model), `call` (a short run of the default model), `tool_environment`
//! (configuration, project, terminal).

mod artifacts;
mod call;
mod environment;
mod home;
mod memory;
mod model;
mod servers;
mod texts;

use std::path::Path;

use serde::Serialize;
use serde_json::json;
use soong::{Config, ErrorCode, preset::KnownPreset, protocol::api::Ready};
use soong_client::{Client, Discovery};
use soong_tui::{format, terminal::TextStyle, text};

pub(super) use self::call::call as call_model;
use super::block_on_current_thread;
use crate::{
    builtin_tools, cli,
    config::{self, HomeFiles, Settings},
    context::Context,
    exit::{Exit, Failure, advice},
    log::{self, LogTarget},
    panic, print,
};

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    /// Works, with the listed limitations.
    Partly,
    Warning,
    Broken,
}

impl Status {
    const fn word(self) -> (&'static str, TextStyle) {
        match self {
            Self::Ok => ("ok", TextStyle::Green),
            Self::Partly => ("partly", TextStyle::Cyan),
            Self::Warning => ("warning", TextStyle::Yellow),
            Self::Broken => ("broken", TextStyle::Red),
        }
    }
}

/// A check with its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    name: &'static str,
    status: Status,
    finding: String,
    /// Advice or details, possibly several lines. Absent if there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Ok,
            finding: finding.into(),
            advice: None,
        }
    }

    fn partly(name: &'static str, finding: impl Into<String>, details: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Partly,
            finding: finding.into(),
            advice: Some(details.into()),
        }
    }

    fn warning(name: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Warning,
            finding: finding.into(),
            advice: Some(advice.into()),
        }
    }

    fn broken(name: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            name,
            status: Status::Broken,
            finding: finding.into(),
            advice: Some(advice.into()),
        }
    }

    /// Returns the finding of a broken check.
    pub(super) fn failure(&self) -> Option<String> {
        (self.status == Status::Broken).then(|| self.finding.clone())
    }

    /// Prints the check, with its advice below it.
    pub(super) fn print(&self, context: &Context<'_>) -> Result<(), Failure> {
        let (word, style) = self.status.word();
        let word = text::pad(word, 7);
        let finding = format!("  {}: {}", self.name, text::safe_line(&self.finding));
        let lines = print::wrap_after(
            context.terminal.stdout,
            style,
            &word,
            &finding,
            context.terminal.has_stdout,
        );
        lines.iter().try_for_each(|line| print::line(line))?;
        let mut advice = self.advice.iter().flat_map(|advice| advice.lines());
        advice.try_for_each(|line| {
            print::line(&format!("         {}", text::safe_line_keep_spaces(line)))
        })
    }

    /// Returns a broken check for a failure that a command would exit with.
    fn refused(name: &'static str, failure: Failure) -> Self {
        Self::broken(name, failure.what, failure.advice)
    }
}

/// Results of the checks so far. Unless the output is JSON, each is printed immediately.
struct Report<'a> {
    context: &'a Context<'a>,
    checks: Vec<Check>,
    /// Exit code if only the model call failed.
    call_failure_exit: Exit,
}

impl Report<'_> {
    fn add(&mut self, checks: impl IntoIterator<Item = Check>) -> Result<(), Failure> {
        for check in checks {
            if !self.context.global.json {
                check.print(self.context)?;
            }
            self.checks.push(check);
        }
        Ok(())
    }

    fn count(&self, status: Status) -> usize {
        self.checks
            .iter()
            .filter(|check| check.status == status)
            .count()
    }

    /// Returns the exit code: errors in the configuration take precedence over errors of this
    /// machine.
    fn exit(&self) -> Exit {
        let is_broken = |name: &str| {
            self.checks
                .iter()
                .any(|check| check.name == name && check.status == Status::Broken)
        };
        match self.count(Status::Broken) {
            0 => Exit::Success,
            _ if is_broken("config") || is_broken(texts::NAME) => Exit::Usage,
            1 if is_broken("call") => self.call_failure_exit,
            _ => Exit::Failed,
        }
    }
}

pub(super) fn doctor(context: &Context<'_>, options: &cli::Doctor) -> Result<Exit, Failure> {
    log::start(context.global.verbose, LogTarget::StandardError);
    let mut findings = Report {
        context,
        checks: Vec::new(),
        call_failure_exit: Exit::Provider,
    };
    let home = config::home(&context.global, &context.environment);
    let settings = config::read(&context.global, home.as_deref().unwrap_or("".as_ref()));
    findings.add(environment::config(settings.as_ref()))?;
    let mut texts = None;
    match home {
        Ok(home) => {
            panic::set_home(&home);
            findings.add(home::checks(&home))?;
            findings.add(owner(context, &home)?)?;
            let config = settings
                .as_ref()
                .map_or_else(|_| Config::default(), |settings| settings.config.clone());
            let found = texts.insert(HomeFiles::look(&home, &config, &builtin_tools::builtins()?));
            findings.add(texts::checks(found))?;
            findings.add([
                environment::hooks(context, &home, &config),
                environment::secrets(context, &config),
            ])?;
            findings.add(memory::experiences(&home, &config, &context.environment))?;
            let bucket = async { Ok(artifacts::check(&home, &config, &context.environment).await) };
            findings.add(block_on_current_thread(bucket)?)?;
        }
        Err(failure) => findings.add([Check::refused("home", failure)])?,
    }
    findings.add([
        environment::project(),
        environment::confinement(),
        environment::terminal(context),
    ])?;
    match settings {
        Ok(settings) => {
            findings.add(servers::checks(context, &settings.config)?)?;
            let presets = texts.map(|texts| texts.presets).unwrap_or_default();
            models(&mut findings, settings, &presets, options.call)?;
        }
        Err(_) => findings.add([Check::warning(
            "model",
            "not checked",
            "Correct the configuration first.",
        )])?,
    }
    close(&findings)?;
    Ok(findings.exit())
}

/// Checks the state of the home's owner. Returns `None` if it works or there is no owner.
fn owner(context: &Context<'_>, home: &Path) -> Result<Option<Check>, Failure> {
    let ready =
        match block_on_current_thread(async { Ok(Client::find(&context.address(home)).await) })? {
            Discovery::Owner(_, ready) => ready,
            Discovery::Unresponsive => {
                let advice = "If it is suspended (Ctrl-Z), resume it (fg); otherwise terminate it.";
                return Ok(Some(Check::broken(
                    "owner",
                    "the owner process of the home does not respond",
                    advice,
                )));
            }
            Discovery::None | Discovery::Unreachable(_) => return Ok(None),
        };
    let Ready {
        pid,
        failure,
        failed_profiles,
        ..
    } = ready;
    Ok(match failure {
        Some(failure) => {
            let found = format!("process {pid} does not accept runs: {}", failure.message);
            Some(Check::broken("owner", found, advice(failure.code)))
        }
        None if !failed_profiles.is_empty() => {
            let found = format!(
                "process {pid} cannot use the model profiles {}",
                failed_profiles.join(", ")
            );
            Some(Check::broken(
                "owner",
                found,
                advice(ErrorCode::RuntimeFailed),
            ))
        }
        None => None,
    })
}

fn models(
    findings: &mut Report<'_>,
    settings: Settings,
    presets: &[KnownPreset],
    with_call: bool,
) -> Result<(), Failure> {
    let models = model::checks(&settings, presets, &findings.context.environment);
    let can_call = models
        .first()
        .is_some_and(|default| default.status != Status::Broken);
    findings.add(models)?;
    match (with_call, can_call) {
        (true, true) => {
            let called = call_model(findings.context, settings)?;
            findings.call_failure_exit = called.exit;
            findings.add(called.checks)
        }
        (true, false) => findings.add([Check::warning(
            "call",
            "no model was called",
            "Fix the broken checks first.",
        )]),
        (false, _) => Ok(()),
    }
}

fn close(findings: &Report<'_>) -> Result<(), Failure> {
    let warnings = findings.count(Status::Warning);
    let broken = findings.count(Status::Broken);
    if findings.context.global.json {
        return print::json(&json!({ "checks": findings.checks, "broken": broken }));
    }
    let warnings = match warnings {
        0 => String::new(),
        n => format!(", {}", format::plural(n, "warning", "warnings")),
    };
    let broken = match broken {
        0 => "no check failed".to_owned(),
        1 => "1 check failed".to_owned(),
        n => format!("{n} checks failed"),
    };
    print::line("")?;
    print::line(
        &findings
            .context
            .terminal
            .stdout
            .paint(TextStyle::Bold, &format!("{broken}{warnings}")),
    )
}
