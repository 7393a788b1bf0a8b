//! `soong tasks`: lists and deletes the task journals of a project.
//!
//! The commands read and delete files only. They need no owner of the home and do not disturb one:
//! the journal of a run that is still writing has no final status, and is never deleted.

use soong::task_journal::{
    ProjectTask, TaskCleanup, TaskCleanupReport, TaskPlace, TaskStatus, clean_up_tasks,
    project_tasks,
};
use soong_tui::{format, table::Column, terminal::TextStyle, text};

use super::{cleanup, run::folder};
use crate::{
    cli,
    context::Context,
    exit::{Exit, Failure},
    print,
};

/// Maximum width of the mission in a list, in columns.
const MISSION_COLUMNS: usize = 48;

pub(super) async fn tasks(context: &Context<'_>, options: &cli::Tasks) -> Result<Exit, Failure> {
    // Without a home, only the journals in the project are used.
    let home = context.home().ok();
    match options {
        cli::Tasks::List { of } => {
            let project = folder(Some(&of.path))?;
            list(context, &project_tasks(home.as_deref(), &project)?)?;
        }
        cli::Tasks::Cleanup {
            yes,
            failed,
            cancelled,
            older_than,
            of,
        } => {
            let request = TaskCleanup {
                project_dir: folder(Some(&of.path))?,
                dry_run: !yes,
                include_failed: *failed,
                include_cancelled: *cancelled,
                older_than_ms: older_than
                    .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            };
            let report = clean_up_tasks(home.as_deref(), &request)?;
            cleaned(context, &report)?;
            if !report.failed.is_empty() {
                let what = format!(
                    "task journals that could not be deleted: {}",
                    report.failed.len()
                );
                return Err(Failure::new(
                    Exit::Failed,
                    what,
                    "The list shows the reasons. Try again.",
                ));
            }
        }
    }
    Ok(Exit::Success)
}

fn list(context: &Context<'_>, tasks: &[ProjectTask]) -> Result<(), Failure> {
    if context.global.json {
        return print::json(&tasks);
    }
    if tasks.is_empty() {
        return print::line("no task journals");
    }
    let (written, time) = print::times(context.terminal, ["WRITTEN", "WRITTEN (UTC)"]);
    let row = |task: &ProjectTask| {
        vec![
            task.session_id.to_string(),
            task.status.as_str().to_owned(),
            task.lines.to_string(),
            time(task.modified_at),
            text::cut(
                &text::safe_line(&task.mission),
                MISSION_COLUMNS,
                context.terminal.ellipsis(),
            ),
            task.path.display().to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = tasks.iter().map(row).collect();
    print::table(
        context.terminal,
        &[
            Column::text("SESSION", 12),
            Column::whole("STATUS"),
            Column::whole("LINES").drops(2),
            Column::whole(written),
            Column::text("MISSION", 12).drops(1),
            Column::text("FILE", 16).drops(3),
        ],
        &rows,
    )?;
    if tasks
        .iter()
        .any(|task| task.status == TaskStatus::Unfinished)
    {
        print::line_or_stderr(
            context.terminal,
            TextStyle::Dim,
            "unfinished: the run is active or was interrupted",
        )?;
    }
    if tasks.iter().any(|task| task.kept_in == TaskPlace::Home) {
        print::line_or_stderr(
            context.terminal,
            TextStyle::Dim,
            "some journals are in the home: the project was not modified",
        )?;
    }
    Ok(())
}

fn cleaned(context: &Context<'_>, report: &TaskCleanupReport) -> Result<(), Failure> {
    if context.global.json {
        return print::json(report);
    }
    let rows: Vec<Vec<String>> = report
        .candidates
        .iter()
        .map(|candidate| {
            let failed = report
                .failed
                .iter()
                .find(|failed| failed.path == candidate.path);
            let reason = cleanup::reason(&candidate.reason, failed.map(|failed| &failed.error));
            vec![
                format::time(candidate.modified_at),
                reason,
                candidate.path.display().to_string(),
            ]
        })
        .collect();
    if !cleanup::print_candidates(
        context,
        &[
            Column::whole("WRITTEN (UTC)"),
            Column::text("REASON", 12),
            Column::text("FILE", 16),
        ],
        &rows,
    )? {
        return Ok(());
    }
    let all = format::plural(report.candidates.len(), "task journal", "task journals");
    let deleted = report
        .candidates
        .iter()
        .filter(|candidate| candidate.deleted)
        .count();
    cleanup::close(context, &all, None, (!report.dry_run).then_some(deleted))
}
