//! `soong demo`: an orchestrator run with the offline model on the files of a folder. Needs no key.
//!
//! Modules: `kill` (kills the process of a demo and resumes the run), `executions` (what was
//! executed, for `kill`).

mod executions;
mod kill;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use soong::{
    Environment, RuntimeBuilder,
    offline::Offline,
    protocol::{RunMode, RunStatus, Setting, StatsPair, api::StartBody},
    task_journal::TaskPlace,
};
use soong_tui::{format, terminal::TextStyle, text};

use super::{host::builder, run::folder, runtime_session::RuntimeSession};
use crate::{
    cli,
    config::{self, Settings},
    context::{Context, RunDisplay},
    exit::{Exit, Failure},
    monitor, offline_store, panic, print,
    report::{self, FollowedRun, StoredArtifact},
};

/// Time that the offline model takes per answer when the monitor is shown.
const MONITOR_PACE: Duration = Duration::from_secs(1);
/// Time that it takes per answer on a terminal, so that the run can be watched.
const TERMINAL_PACE: Duration = Duration::from_millis(400);
/// Number of sessions that the demo home in the user's cache folder keeps.
const MAX_SESSIONS: usize = 5;
/// Commands to try after the demo.
const NEXT: [&str; 4] = [
    "`soong demo --monitor`",
    "`soong demo --kill`",
    "`soong init`",
    "`soong`",
];

pub(super) async fn demo(context: &Context<'_>, options: &cli::Demo) -> Result<Exit, Failure> {
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
    let log = options.log_executions.as_deref();
    let keeps_last_sessions = matches!(demo_home, DemoHome::Cached(_));
    let demo = Demo {
        context,
        options,
        home: &home,
        keeps_last_sessions,
        project: &project,
        settings: &settings,
        log,
    };
    if options.kill {
        return kill::kill(&demo).await;
    }
    let finished = demo.run().await?;
    let exit = report::exit(context, &finished.run);
    if context.global.json {
        report::print_result(context, &home, &finished.run, &finished.stored)?;
        return exit;
    }
    demo.print_end(&finished, &demo_home)?;
    exit
}

/// A demo: its options, its home and the folder that it explores.
#[derive(Clone, Copy)]
struct Demo<'a> {
    context: &'a Context<'a>,
    options: &'a cli::Demo,
    home: &'a Path,
    /// Whether earlier sessions of the home are deleted.
    keeps_last_sessions: bool,
    project: &'a Path,
    settings: &'a Settings,
    /// File to which each executed model call and tool call is added.
    log: Option<&'a Path>,
}

/// A demo that has ended.
struct Finished {
    run: FollowedRun,
    stored: Vec<StoredArtifact>,
    /// Short name of the session.
    session: String,
}

impl Demo<'_> {
    /// Runs the demo.
    async fn run(&self) -> Result<Finished, Failure> {
        let display = if self.options.monitor {
            RunDisplay::Monitored
        } else {
            RunDisplay::Once
        };
        let mut runtime_session =
            RuntimeSession::exclusive(self.context, self.home, || self.builder()).await?;
        let finished_run = match runtime_session.follow(self.request(), display).await {
            Ok((run, stored)) => {
                let session = runtime_session.session_name(&run.run.run.session_id).await;
                Ok(Finished {
                    run,
                    stored,
                    session,
                })
            }
            Err(failure) => Err(failure),
        };
        if self.keeps_last_sessions {
            runtime_session.delete_old_sessions(MAX_SESSIONS).await;
        }
        runtime_session.close().await;
        finished_run
    }

    /// Returns the builder of a runtime with the offline model.
    fn builder(&self) -> RuntimeBuilder {
        let is_watched = self.context.terminal.can_redraw && !self.context.global.json;
        let pace = self
            .options
            .pace
            .unwrap_or(match (self.options.monitor, is_watched) {
                (true, _) => MONITOR_PACE,
                (false, true) => TERMINAL_PACE,
                (false, false) => Duration::ZERO,
            });
        // The project is only read, so the task journal is written to the home.
        let builder = builder(self.context, self.home, self.settings)
            .without_home_files()
            .offline()
            .model("offline", Arc::new(Offline::with_answer_time(pace)))
            .task_journals(TaskPlace::Home);
        match self.log {
            Some(log) => builder.callback(executions::log_to(log)),
            None => builder,
        }
    }

    /// Builds the request body of the demo's run.
    fn request(&self) -> StartBody {
        let task = "Explore this project and write a report about it.";
        let prompt = match self.options.children {
            None => task.to_owned(),
            Some(n) => format!("{task} Explore with exactly {n} children."),
        };
        StartBody {
            prompt: Some(prompt),
            mode: Setting::Set(RunMode::Orchestrator),
            // Set for the run too, in case another process, with a different model, resumes it.
            model: Setting::Set("offline".to_owned()),
            project_dir: Some(self.project.to_owned()),
            allow_home_project: self.options.here,
            // The demo only reads the project and needs no permission.
            unattended: true,
            ..StartBody::default()
        }
    }

    /// Prints what the run did, where its records are, and what to try next.
    fn print_end(&self, finished: &Finished, home: &DemoHome) -> Result<(), Failure> {
        let Finished {
            run,
            stored,
            session,
        } = finished;
        let terminal = self.context.terminal;
        let print = |style, line: &str| {
            print::line_or_stderr(terminal, style, &text::safe_line_keep_spaces(line))
        };
        if let Some(StatsPair { tree, .. }) = &run.run.stats {
            let calls = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            let figures = format!(
                "{} in {}: {}, {}, {}",
                run.run.run.status.as_str(),
                format::duration(tree.duration_ms),
                format::plural(calls(tree.model_calls), "model call", "model calls"),
                format::plural(calls(tree.tool_calls), "tool call", "tool calls"),
                format::plural(stored.len(), "artifact", "artifacts"),
            );
            print(TextStyle::Plain, &figures)?;
        }
        if run.run.run.status != RunStatus::Completed {
            return report::print_detail_commands(self.context, Some(self.home), session, stored);
        }
        print(
            TextStyle::Plain,
            "No language model was used: the offline model follows rules.",
        )?;
        let report = stored
            .iter()
            .rev()
            .find(|stored| stored.artifact.label().starts_with("report"));
        match report.and_then(|report| report.path.as_ref()) {
            Some(path) => print::line(&format!(
                "Report: {}",
                text::safe_line_keep_spaces(&path.display().to_string())
            ))?,
            None => print::line("The run stored no report.")?,
        }
        let details =
            || report::print_detail_commands(self.context, Some(self.home), session, stored);
        match home {
            DemoHome::Temporary(_) => {
                let reason = "The demo home is in use or unavailable, so this demo ran in a temporary home, which is removed now.";
                print(
                    TextStyle::Dim,
                    &format!("{reason} Use `--home DIR` to keep it."),
                )?;
            }
            DemoHome::Cached(home) => {
                details()?;
                print(
                    TextStyle::Dim,
                    &format!("{} keeps the last {MAX_SESSIONS} demos.", home.display()),
                )?;
            }
            DemoHome::Named(_) => details()?,
        }
        print(
            TextStyle::Bold,
            &format!(
                "Next: {}",
                NEXT.join(if terminal.unicode { " · " } else { ", " })
            ),
        )
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
        match cached_home(&context.environment).filter(|home| offline_store::owner(home).is_none())
        {
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
    let absolute = |name: &str| {
        environment
            .get(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("soong").join("demo"))
}
