//! `soong demo`: the main job without a key, on the files of a folder.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use soong::{
    model::offline::Offline,
    protocol::{RunMode, SessionId},
    task_journal::TaskPlace,
};

use super::{
    Context, Shown,
    run::{builder, folder},
    work::{Done, Workplace},
};
use crate::{
    cli, config,
    exit::{Exit, Failure},
    http::StartBody,
    monitor, panic, print,
    report::{self, Stored},
    terminal::Hue,
};

/// How long the stand-in takes for an answer where somebody watches.
const MONITOR_PACE: Duration = Duration::from_secs(1);
/// How much of the report is shown.
const REPORT_LINES: usize = 40;

pub(super) async fn demo(context: &Context<'_>, options: &cli::Demo) -> Result<Exit, Failure> {
    let shown = if options.monitor { Shown::Monitored } else { Shown::Once };
    if options.monitor {
        monitor::check(context.terminal)?;
    }
    let project = folder(Some(&options.path))?;
    let home = match &context.global.home {
        Some(home) => home.clone(),
        None => temporary_home()?,
    };
    panic::report_to(&home);
    let mut settings = config::read(&context.global, &home)?;
    // Nothing but the offline model may be asked, whatever agent types of one's own would like.
    settings.config.presets.clear();
    settings.config.model_profiles.clear();
    let prompt = match options.children {
        None => "Explore this project and write a report about it.".to_owned(),
        Some(n) => {
            format!("Explore this project and write a report about it. Explore with exactly {n} children.")
        }
    };
    let wish = StartBody {
        prompt: Some(prompt),
        mode: Some(Some(RunMode::Orchestrator)),
        // Also where another process, with a model of its own, goes on with it.
        model: Some(Some("offline".to_owned())),
        project_dir: Some(project),
        allow_home_project: options.here,
        // It looks at the project, and needs no leave for anything.
        unattended: true,
        ..StartBody::default()
    };
    // The folder is looked at, not written to: the plan's file lies in the home.
    let pace = options.pace.unwrap_or(if options.monitor { MONITOR_PACE } else { Duration::ZERO });
    let build = || {
        let builder = builder(context, &home, &settings).without_home_files().offline();
        builder.register_provider("offline", Arc::new(Offline::at_pace(pace))).task_journals(TaskPlace::Home)
    };
    let ended = match Workplace::own(context, &home, build).await {
        Ok(mut place) => {
            let ended = place.run(wish, shown).await;
            place.leave().await;
            ended
        }
        Err(failure) => Err(failure),
    };
    let Done { session, stored, exit, .. } = match ended {
        Ok(done) => done,
        Err(failure) => {
            remove_if_unused(context, &home);
            return Err(failure);
        }
    };
    if !context.global.json && exit.is_ok() {
        close(context, &home, &session, &stored)?;
    } else if !context.global.json {
        report::look_closer(context, Some(&home), &session, &stored)?;
    }
    exit
}

/// Makes a home that stays: the report lies in it.
fn temporary_home() -> Result<PathBuf, Failure> {
    let made = tempfile::Builder::new().prefix("soong-demo-").tempdir();
    made.map(tempfile::TempDir::keep).map_err(|error| {
        Failure::new(Exit::Failed, format!("no temporary home can be made: {error}"), "Give one with --home DIR.")
    })
}

/// Removes a temporary home in which nothing was recorded.
fn remove_if_unused(context: &Context<'_>, home: &Path) {
    if context.global.home.is_none() && !home.join("sessions.sqlite").exists() {
        let _ = std::fs::remove_dir_all(home);
    }
}

/// Shows the beginning of the report, where it lies, and how to look again.
fn close(context: &Context<'_>, home: &Path, session: &SessionId, stored: &[Stored]) -> Result<(), Failure> {
    let paint = context.terminal.stdout;
    let report = stored.iter().rev().find(|stored| stored.artifact.label().starts_with("report"));
    if let Some(path) = report.and_then(|report| report.path.as_ref()) {
        let report = std::fs::read_to_string(path).map_err(|error| {
            Failure::new(Exit::Failed, format!("the report {} cannot be read: {error}", path.display()), "")
        })?;
        print::line("")?;
        print::line(&paint.paint(Hue::Bold, "The report begins:"))?;
        print::line("")?;
        let lines = report::drawn(&report, context.terminal);
        for line in lines.iter().take(REPORT_LINES) {
            print::line(&format!("  {line}"))?;
        }
        if lines.len() > REPORT_LINES {
            print::line(&paint.paint(Hue::Dim, &format!("  ({} more lines)", lines.len() - REPORT_LINES)))?;
        }
        print::line("")?;
        print::line(&format!("The report lies in {}", path.display()))?;
    } else {
        print::line("The run stored no report.")?;
    }
    report::look_closer(context, Some(home), session, stored)
}
