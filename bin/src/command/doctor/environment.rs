//! Checks of the environment of a home: configuration, secrets, project folder, confinement, hooks,
//! terminal.

use std::path::Path;

use soong::{Config, Redactor};
use soong_sandbox::Confinement;

use super::Check;
use crate::{builtin_tools, config::Settings, context::Context, exit::Failure};

/// Minimum columns and rows for a useful live display.
const COLUMNS: u16 = 60;
const ROWS: u16 = 12;

/// Checks the result of reading the configuration.
pub(super) fn config(settings: Result<&Settings, &Failure>) -> Vec<Check> {
    let settings = match settings {
        Ok(settings) => settings,
        Err(failure) => {
            return vec![Check::broken(
                "config",
                failure.what.clone(),
                failure.advice.clone(),
            )];
        }
    };
    let found = match settings.file() {
        Some((path, _)) => format!("{} is valid", path.display()),
        None => "no file; all settings have their defaults".to_owned(),
    };
    let mut checks = vec![Check::ok("config", found)];
    let known: Vec<String> = builtin_tools::builtins()
        .unwrap_or_default()
        .into_iter()
        .map(|tool| tool.name)
        .collect();
    checks.extend(
        soong::permission::unknown_tools(&settings.config, &known)
            .into_iter()
            .map(|finding| {
                Check::broken(
                    "config",
                    finding,
                    "Correct it; until then every run is rejected.",
                )
            }),
    );
    checks
}

/// Checks for secrets in the environment that are too short to be redacted from logs and answers
/// (SAFE-1).
pub(super) fn secrets(context: &Context<'_>, config: &Config) -> Check {
    let short: Vec<&str> = Redactor::too_short_names(&context.environment, config).collect();
    if short.is_empty() {
        return Check::ok("secrets", "all are long enough to be redacted");
    }
    Check::warning(
        "secrets",
        format!(
            "shorter than 8 bytes and therefore not redacted: {}",
            short.join(", ")
        ),
        "Use longer secrets; these stay readable in events, artifacts and logs.",
    )
}

/// Checks the folder in which a run would work.
pub(super) fn project() -> Check {
    let advice = "Change to a readable folder, or give one: `soong run --path DIR`.";
    let looked =
        std::env::current_dir().and_then(|folder| std::fs::read_dir(&folder).map(|_| folder));
    match looked {
        Ok(folder) => Check::ok("project", format!("{} is readable", folder.display())),
        Err(error) => Check::broken(
            "project",
            format!("the current folder cannot be read: {error}"),
            advice,
        ),
    }
}

/// Reports the confinement of agents' commands on this machine (TOOL-5). It is never complete,
/// since the network stays reachable.
pub(super) fn confinement() -> Check {
    let rows: Vec<String> = soong_sandbox::protections()
        .iter()
        .map(|row| row.line())
        .collect();
    let table = rows.join("\n");
    match soong_sandbox::confinement() {
        Confinement::Full => Check::partly(
            "confinement",
            "agent commands are confined as follows:",
            table,
        ),
        Confinement::Partial { why } => Check::warning(
            "confinement",
            format!("agent commands are only partly confined: {why}"),
            format!(
                "{table}\nEach command requires permission unless `bash:unconfined` is allowed. Full confinement requires Linux 6.12 \
                 with Landlock and the right to mount: as root, or in a user namespace."
            ),
        ),
        Confinement::None { why } => Check::warning(
            "confinement",
            format!("agent commands are denied, since they cannot be confined: {why}"),
            format!(
                "{table}\nTo run them without confinement: `--allow bash:unconfined`. Confinement requires Linux with Landlock."
            ),
        ),
    }
}

/// Checks the hooks of a home (HOOK-1).
pub(super) fn hooks(context: &Context<'_>, home: &Path, config: &Config) -> Check {
    match soong::count_hooks(home, config, &context.environment) {
        Ok(_) if !config.hooks.enabled => Check::ok("hooks", "disabled (hooks.enabled)"),
        Ok(soong::HookCount { hooks: 0, .. }) => Check::ok("hooks", "none"),
        Ok(soong::HookCount {
            hooks,
            exit_code_denies,
        }) => {
            let count =
                soong_tui::format::plural(hooks, "command is notified", "commands are notified");
            let about_code = if exit_code_denies {
                "exit code 2 denies"
            } else {
                "exit code 2 is a failure and denies nothing: set \"version\": 2 in hooks.json if it shall deny"
            };
            Check::ok("hooks", format!("{count} of events; {about_code}"))
        }
        Err(error) => Check::broken(
            "hooks",
            error.message,
            "Correct it, or disable hooks: [hooks] enabled = false",
        ),
    }
}

/// Checks the terminal for progress output. The worst result is a warning.
pub(super) fn terminal(context: &Context<'_>) -> Check {
    let terminal = context.terminal;
    if !terminal.can_redraw {
        return Check::ok(
            "terminal",
            "standard error is not a terminal that can redraw: progress is printed as plain lines",
        );
    }
    let size = crossterm::terminal::size()
        .ok()
        .filter(|(columns, rows)| *columns > 0 && *rows > 0);
    let colours = if terminal.stderr.on {
        "colors"
    } else {
        "no colors"
    };
    match size {
        _ if !terminal.unicode => Check::warning(
            "terminal",
            "the locale is not UTF-8: symbols are replaced by ASCII characters",
            "Use a UTF-8 locale: export LANG=C.UTF-8",
        ),
        Some((columns, rows)) if columns < COLUMNS || rows < ROWS => Check::warning(
            "terminal",
            format!(
                "the terminal is too small for the live display: {columns} columns and {rows} rows"
            ),
            format!("Enlarge the terminal to at least {COLUMNS} by {ROWS}."),
        ),
        Some((columns, rows)) => Check::ok(
            "terminal",
            format!("UTF-8, {colours}, {columns} columns and {rows} rows"),
        ),
        None => Check::ok("terminal", format!("UTF-8, {colours}, unknown size")),
    }
}

#[cfg(test)]
mod tests {
    use soong::protocol::builtin_presets;

    use super::*;

    #[test]
    fn built_in_presets_name_tools_that_exist() {
        let known: Vec<String> = builtin_tools::builtins()
            .unwrap()
            .into_iter()
            .map(|tool| tool.name)
            .collect();
        for preset in builtin_presets() {
            assert!(
                preset
                    .allowed_tools
                    .iter()
                    .flatten()
                    .all(|tool| known.contains(tool)),
                "{}",
                preset.name
            );
        }
    }
}
