//! `soong demo`: an orchestrator run with the offline model on the files of a folder. Needs no key.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use soong::{
    Environment,
    offline::Offline,
    protocol::{RunMode, api::StartBody},
    task_journal::TaskPlace,
};
use soong_tui::{terminal::TextStyle, text};

use super::{
    host::builder,
    run::folder,
    runtime_session::{RunReport, RuntimeSession},
};
use crate::{
    cli, config,
    context::{Context, RunDisplay},
    exit::{Exit, Failure},
    monitor, offline_store, panic, print,
    report::{self, StoredArtifact},
};

/// Time that the offline model takes per answer when the monitor is shown.
const MONITOR_PACE: Duration = Duration::from_secs(1);
/// Number of sessions that the demo home in the user's cache folder keeps.
const MAX_SESSIONS: usize = 5;
/// Maximum number of lines of the report that are printed.
const REPORT_LINES: usize = 40;

pub(super) async fn demo(context: &Context<'_>, options: &cli::Demo) -> Result<Exit, Failure> {
    let shown = if options.monitor { RunDisplay::Monitored } else { RunDisplay::Once };
    if options.monitor {
        monitor::check(context.terminal)?;
    }
    let project = folder(Some(&options.path))?;
    let demo_home = DemoHome::choose(context)?;
    let home = demo_home.path().to_owned();
    panic::set_home(&home);
    let mut settings = config::read(&context.global, &home)?;
    // The demo calls only the offline model, so the user's presets and model profiles are dropped.
    settings.config.presets.clear();
    settings.config.model_profiles.clear();
    let request = start_request(options, project);
    let pace = options.pace.unwrap_or(if options.monitor { MONITOR_PACE } else { Duration::ZERO });
    let build = || {
        let builder = builder(context, &home, &settings).without_home_files().offline();
        // The project is only read, so the task journal is written to the home.
        builder.model("offline", Arc::new(Offline::with_answer_time(pace))).task_journals(TaskPlace::Home)
    };
    let ended = match RuntimeSession::exclusive(context, &home, build).await {
        Ok(mut place) => {
            let ended = place.run(request, shown).await;
            if matches!(demo_home, DemoHome::Cached(_)) {
                place.delete_old_sessions(MAX_SESSIONS).await;
            }
            place.close().await;
            ended
        }
        Err(failure) => Err(failure),
    };
    let RunReport { session, stored, exit, .. } = ended?;
    if context.global.json {
        return exit;
    }
    if exit.is_ok() {
        show_report(context, &stored)?;
    }
    match demo_home {
        DemoHome::Temporary(_) => print::line(
            "The demo home is in use or unavailable, so this demo ran in a temporary home, which is removed now. Use `--home DIR` to keep it.",
        )?,
        DemoHome::Cached(_) => {
            report::print_detail_commands(context, Some(&home), &session, &stored)?;
            let kept = format!("{} keeps the last {MAX_SESSIONS} demos.", home.display());
            print::line_or_stderr(context.terminal, TextStyle::Dim, &text::safe_line_keep_spaces(&kept))?;
        }
        DemoHome::Named(_) => report::print_detail_commands(context, Some(&home), &session, &stored)?,
    }
    exit
}

/// Builds the request body of the demo's run.
fn start_request(options: &cli::Demo, project: PathBuf) -> StartBody {
    let prompt = match options.children {
        None => "Explore this project and write a report about it.".to_owned(),
        Some(n) => {
            format!("Explore this project and write a report about it. Explore with exactly {n} children.")
        }
    };
    StartBody {
        prompt: Some(prompt),
        mode: Some(Some(RunMode::Orchestrator)),
        // Set for the run too, in case another process, with a different model, resumes it.
        model: Some(Some("offline".to_owned())),
        project_dir: Some(project),
        allow_home_project: options.here,
        // The demo only reads the project and needs no permission.
        unattended: true,
        ..StartBody::default()
    }
}

/// Home of a demo.
enum DemoHome {
    /// The home given with `--home`.
    Named(PathBuf),
    /// The demo home in the user's cache folder.
    Cached(PathBuf),
    /// A temporary home, used if another process owns the cached one or there is no cache folder.
    Temporary(tempfile::TempDir),
}

impl DemoHome {
    fn choose(context: &Context<'_>) -> Result<Self, Failure> {
        if let Some(home) = &context.global.home {
            return Ok(Self::Named(home.clone()));
        }
        match cached_home(&context.environment).filter(|home| offline_store::owner(home).is_none()) {
            Some(home) => Ok(Self::Cached(home)),
            None => {
                let made = tempfile::Builder::new().prefix("soong-demo-").tempdir();
                made.map(Self::Temporary).map_err(|error| {
                    let what = format!("cannot create a temporary home: {error}");
                    Failure::new(Exit::Failed, what, "Choose a home with --home DIR.")
                })
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Named(home) | Self::Cached(home) => home,
            Self::Temporary(home) => home.path(),
        }
    }
}

/// Returns the demo home in the user's cache folder (XDG), or `None` if there is no such folder.
fn cached_home(environment: &Environment) -> Option<PathBuf> {
    let absolute = |name: &str| environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("soong").join("demo"))
}

/// Prints the beginning of the report and its path.
fn show_report(context: &Context<'_>, stored: &[StoredArtifact]) -> Result<(), Failure> {
    let paint = context.terminal.stdout;
    let report = stored.iter().rev().find(|stored| stored.artifact.label().starts_with("report"));
    if let Some(path) = report.and_then(|report| report.path.as_ref()) {
        let report = std::fs::read_to_string(path).map_err(|error| {
            Failure::new(Exit::Failed, format!("the report {} cannot be read: {error}", path.display()), "")
        })?;
        print::line("")?;
        print::line(&paint.paint(TextStyle::Bold, "Beginning of the report:"))?;
        print::line("")?;
        let lines = report::render_indented(&report, context.terminal, 2);
        for line in lines.iter().take(REPORT_LINES) {
            print::line(&format!("  {line}"))?;
        }
        if lines.len() > REPORT_LINES {
            print::line(&paint.paint(TextStyle::Dim, &format!("  ({} more lines)", lines.len() - REPORT_LINES)))?;
        }
        print::line("")?;
        print::line(&format!("Report: {}", path.display()))
    } else {
        print::line("The run stored no report.")
    }
}
