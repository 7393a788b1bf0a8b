//! Checks of the environment of a home: configuration, secrets, project folder, confinement, hooks, terminal.

use std::path::Path;

use soong::{Config, Redactor, process::Confinement};

use super::Check;
use crate::{builtin_tools, config::Settings, context::Context, exit::Failure};

/// Minimum columns and rows for a useful live display.
const COLUMNS: u16 = 60;
const ROWS: u16 = 12;

/// Checks the result of reading the configuration.
pub(super) fn config(settings: Result<&Settings, &Failure>) -> Vec<Check> {
    let settings = match settings {
        Ok(settings) => settings,
        Err(failure) => return vec![Check::broken("config", failure.what.clone(), failure.advice.clone())],
    };
    let found = match settings.file() {
        Some((path, _)) => format!("{} can be used", path.display()),
        None => "there is no file: everything has its default".to_owned(),
    };
    let mut checks = vec![Check::ok("config", found)];
    let known: Vec<String> = builtin_tools::builtins().unwrap_or_default().into_iter().map(|tool| tool.name).collect();
    checks.extend(
        soong::permission::unknown_tools(&settings.config, &known)
            .into_iter()
            .map(|finding| Check::broken("config", finding, "Correct it; a run is refused until then.")),
    );
    checks
}

/// Checks for secrets in the environment that are too short to be redacted from logs and answers (SAFE-1).
pub(super) fn secrets(context: &Context<'_>, config: &Config) -> Check {
    let short: Vec<&str> = Redactor::too_short_names(&context.environment, config).collect();
    if short.is_empty() {
        return Check::ok("secrets", "each is long enough to be kept out of what is stored and shown");
    }
    Check::warning(
        "secrets",
        format!("shorter than 8 bytes, and so not redacted: {}", short.join(", ")),
        "Use longer ones; they stay readable in events, artifacts and logs.",
    )
}

/// Checks the folder in which a run would work.
pub(super) fn project() -> Check {
    let advice = "Go to a folder that you may read, or name one: `soong run --path DIR`.";
    let looked = std::env::current_dir().and_then(|folder| std::fs::read_dir(&folder).map(|_| folder));
    match looked {
        Ok(folder) => Check::ok("project", format!("{} can be read", folder.display())),
        Err(error) => Check::broken("project", format!("the current folder cannot be read: {error}"), advice),
    }
}

/// Reports the confinement of agents' commands on this machine (TOOL-5). It is never complete, since the network
/// stays reachable.
pub(super) fn confinement() -> Check {
    let rows: Vec<String> = soong::process::protections().iter().map(|row| row.line()).collect();
    let table = rows.join("\n");
    match soong::process::confinement() {
        Confinement::Full => Check::partly("confinement", "commands of agents are confined like this:", table),
        Confinement::Partial { why } => Check::warning(
            "confinement",
            format!("commands of agents are confined in part: {why}"),
            format!(
                "{table}\nEach command asks, unless `bash:unconfined` is allowed. Full confinement takes Linux 6.12 with \
                 Landlock, and the right to mount: as root, or in a user namespace."
            ),
        ),
        Confinement::None { why } => Check::warning(
            "confinement",
            format!("commands of agents are refused, since nothing would confine them: {why}"),
            format!(
                "{table}\nWhere that is acceptable: `--allow bash:unconfined`. Confinement takes Linux with Landlock."
            ),
        ),
    }
}

/// Checks the hooks of a home (HOOK-1).
pub(super) fn hooks(context: &Context<'_>, home: &Path, config: &Config) -> Check {
    match soong::count_hooks(home, config, &context.environment) {
        Ok(0) if !config.hooks.enabled => Check::ok("hooks", "they are switched off (hooks.enabled)"),
        Ok(0) => Check::ok("hooks", "there are none"),
        Ok(count) => {
            Check::ok("hooks", crate::format::plural(count, "command hears", "commands hear") + " of what happens")
        }
        Err(error) => Check::broken("hooks", error.message, "Correct it, or switch hooks off: [hooks] enabled = false"),
    }
}

/// Checks the terminal for progress output. The worst result is a warning.
pub(super) fn terminal(context: &Context<'_>) -> Check {
    let terminal = context.terminal;
    if !terminal.can_redraw {
        return Check::ok("terminal", "standard error is no terminal that can redraw: progress comes as plain lines");
    }
    let size = crossterm::terminal::size().ok().filter(|(columns, rows)| *columns > 0 && *rows > 0);
    let colours = if terminal.stderr.on { "colours" } else { "no colours" };
    match size {
        _ if !terminal.unicode => Check::warning(
            "terminal",
            "the locale is not UTF-8: marks are shown as plain letters",
            "Set one: export LANG=C.UTF-8",
        ),
        Some((columns, rows)) if columns < COLUMNS || rows < ROWS => Check::warning(
            "terminal",
            format!("{columns} columns and {rows} rows are little for a picture of the agents"),
            format!("Make it larger: {COLUMNS} by {ROWS} at least."),
        ),
        Some((columns, rows)) => Check::ok("terminal", format!("UTF-8, {colours}, {columns} columns and {rows} rows")),
        None => Check::ok("terminal", format!("UTF-8, {colours}, of unknown size")),
    }
}

#[cfg(test)]
mod tests {
    use soong::protocol::builtin_presets;

    use super::*;

    #[test]
    fn built_in_presets_name_tools_that_exist() {
        let known: Vec<String> = builtin_tools::builtins().unwrap().into_iter().map(|tool| tool.name).collect();
        for preset in builtin_presets() {
            assert!(preset.allowed_tools.iter().flatten().all(|tool| known.contains(tool)), "{}", preset.name);
        }
    }
}
