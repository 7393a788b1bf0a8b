//! Shell completion of argument values: ids of the home and names from the configuration.
//!
//! Completion never fails: if something cannot be read, it offers no values.

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use clap_complete::{ArgValueCandidates, CompleteEnv, CompletionCandidate};
use soong::{
    Environment, PermissionFilter, QuestionFilter,
    protocol::{ArtifactScope, PermissionStatus, QuestionStatus, Session},
};
use soong_storage::store::{Reader, SessionFilter, TraceFilter};

use crate::{
    builtin_tools,
    cli::{Cli, Global},
    config::{self, HomeFiles},
    offline_store::OfflineStore,
    reference,
};

/// Environment variable with which a completion script names its shell.
pub(crate) const VARIABLE: &str = "SOONG_COMPLETE";
/// Maximum number of ids offered, newest first.
const MAX_IDS: usize = 100;

/// Answers a completion script and ends the process. Returns if the process was not started by one.
pub(crate) fn answer() {
    CompleteEnv::with_factory(|| with_candidates(Cli::command(), ""))
        .var(VARIABLE)
        .completer("soong")
        .complete();
}

/// Adds candidates to the arguments of a command and of all its subcommands.
fn with_candidates(command: clap::Command, group: &'static str) -> clap::Command {
    let command = command.mut_args(|arg| match candidates(group, arg.get_id().as_str()) {
        Some(list) => arg.add(ArgValueCandidates::new(list)),
        None => arg,
    });
    command.mut_subcommands(|below| {
        const GROUPS: [&str; 7] = [
            "artifacts",
            "permissions",
            "questions",
            "sessions",
            "traces",
            "run",
            "chat",
        ];
        let name = GROUPS
            .into_iter()
            .find(|name| group.is_empty() && *name == below.get_name());
        with_candidates(below, name.unwrap_or(group))
    })
}

/// Returns the function that lists the values of an argument, for a command group.
fn candidates(group: &str, argument: &str) -> Option<fn() -> Vec<CompletionCandidate>> {
    Some(match (group, argument) {
        ("sessions", "id") | ("run" | "chat" | "artifacts" | "permissions", "session") => sessions,
        ("run" | "chat", "continued") => sessions,
        ("traces", "id") | ("run", "trace") => traces,
        ("artifacts", "name") => artifacts,
        ("permissions", "id") => permissions,
        ("questions", "id") => questions,
        ("run" | "chat", "preset") => presets,
        ("run" | "chat", "model") => models,
        ("run", "allow" | "deny" | "tools") => tools,
        _ => return None,
    })
}

/// Parses the global options from the line that is being typed, ignoring errors.
fn global() -> Option<(Global, ArgMatches)> {
    // The typed line follows `--` and starts with the name of the program.
    let line = std::env::args_os().skip_while(|word| word != "--").skip(1);
    let matches = Cli::command()
        .ignore_errors(true)
        .try_get_matches_from(line)
        .ok()?;
    Some((Global::from_arg_matches(&matches).ok()?, matches))
}

fn records() -> Option<OfflineStore> {
    let (global, _) = global()?;
    if global.url.is_some() {
        return None;
    }
    OfflineStore::open(&config::home(&global, &Environment::from_process()).ok()?).ok()
}

fn settings() -> Option<(config::Settings, std::path::PathBuf)> {
    let (global, _) = global()?;
    let home = config::home(&global, &Environment::from_process()).ok()?;
    Some((config::read(&global, &home).ok()?, home))
}

fn described(id: &str, description: &str) -> CompletionCandidate {
    CompletionCandidate::new(id).help(Some(
        soong_tui::text::safe_line(description).to_string().into(),
    ))
}

fn sessions() -> Vec<CompletionCandidate> {
    let found = records().and_then(|records| {
        records
            .reader
            .sessions(&SessionFilter::default(), MAX_IDS, None)
            .ok()
    });
    let found = found.into_iter().flat_map(|page| page.items);
    found
        .map(|session| {
            described(
                session.short_name(),
                session.name.as_deref().unwrap_or_default(),
            )
        })
        .collect()
}

fn traces() -> Vec<CompletionCandidate> {
    let found = records().and_then(|records| {
        records
            .reader
            .traces(&TraceFilter::default(), MAX_IDS, None)
            .ok()
    });
    let found = found.into_iter().flat_map(|page| page.items);
    found
        .map(|trace| described(trace.trace_id.as_str(), &trace.name))
        .collect()
}

fn artifacts() -> Vec<CompletionCandidate> {
    let session = global().and_then(|(_, matches)| {
        let (_, below) = matches.subcommand()?.1.subcommand()?;
        below
            .try_get_one::<String>("session")
            .ok()
            .flatten()
            .cloned()
    });
    let Some(records) = records() else {
        return Vec::new();
    };
    let sessions = records
        .reader
        .sessions(&SessionFilter::default(), MAX_IDS, None);
    let mut sessions: Vec<Session> = sessions.into_iter().flat_map(|page| page.items).collect();
    if let Some(session) = session {
        sessions = reference::find(sessions, &session)
            .map(|(found, _)| found)
            .into_iter()
            .collect();
    }
    let scopes = sessions.into_iter().map(|found| found.session_id);
    let found = scopes
        .filter_map(|id| {
            records
                .reader
                .artifacts(&ArtifactScope::Session { session_id: id })
                .ok()
        })
        .flatten();
    let found = found.take(MAX_IDS);
    found
        .map(|artifact| {
            described(
                artifact
                    .name
                    .as_deref()
                    .unwrap_or(artifact.artifact_id.as_str()),
                &artifact.title,
            )
        })
        .collect()
}

fn permissions() -> Vec<CompletionCandidate> {
    let pending = PermissionFilter {
        status: Some(PermissionStatus::Pending),
        ..PermissionFilter::default()
    };
    let found = records().and_then(|records| records.reader.permissions(&pending).ok());
    found
        .into_iter()
        .flatten()
        .map(|permission| described(permission.permission_id.as_str(), &permission.tool))
        .collect()
}

fn questions() -> Vec<CompletionCandidate> {
    let pending = QuestionFilter {
        status: Some(QuestionStatus::Pending),
        ..QuestionFilter::default()
    };
    let found = records().and_then(|records| records.reader.questions(&pending).ok());
    found
        .into_iter()
        .flatten()
        .map(|question| described(question.question_id.as_str(), &question.question))
        .collect()
}

fn presets() -> Vec<CompletionCandidate> {
    let Some((settings, home)) = settings() else {
        return Vec::new();
    };
    let Ok(tools) = builtin_tools::builtins() else {
        return Vec::new();
    };
    let presets = HomeFiles::look(&home, &settings.config, &tools).presets;
    presets
        .iter()
        .map(|known| described(&known.preset.name, &known.preset.description))
        .collect()
}

fn models() -> Vec<CompletionCandidate> {
    let Some((settings, _)) = settings() else {
        return Vec::new();
    };
    let profiles = settings.config.model_profiles.iter();
    let profiles = profiles
        .map(|(name, profile)| described(name, profile.name.as_deref().unwrap_or_default()));
    [described("default", settings.config.model.model_name())]
        .into_iter()
        .chain(profiles)
        .collect()
}

fn tools() -> Vec<CompletionCandidate> {
    let tools = builtin_tools::builtins().unwrap_or_default();
    tools
        .iter()
        .map(|tool| {
            described(
                &tool.name,
                tool.description.lines().next().unwrap_or_default(),
            )
        })
        .collect()
}
