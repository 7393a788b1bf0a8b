//! `soong backup`: copies the home to a new, usable home.
//!
//! Not in this module: the copying. The library does that, without owning the home.

use soong::BackupReport;
use soong_tui::{format, terminal::TextStyle, text};

use crate::{
    cli, config,
    context::Context,
    exit::{Exit, Failure},
    interrupt::Interrupt,
    offline_store::OfflineStore,
    print, report, staged_dir,
};

pub(super) async fn backup(context: &Context<'_>, options: &cli::Backup) -> Result<Exit, Failure> {
    let home = context.home()?;
    let settings = config::read(&context.global, &home)?;
    // Reports a missing home with the same message as other commands.
    drop(OfflineStore::open(&home)?);
    staged_dir::must_be_free(&options.dir)?;
    let interrupt = Interrupt::listen();
    let report = tokio::select! {
        report = soong::backup(&home, &options.dir, &settings.config.artifacts.store) => report?,
        () = interrupt.first() => {
            let what = format!("interrupted; the backup {} was not created", options.dir.display());
            return Err(Failure::new(Exit::Interrupted, what, "Try again."));
        }
    };
    if context.global.json {
        print::json(&report)?;
    } else {
        print_report(context, &report)?;
    }
    match report.missing.len() {
        0 => Ok(Exit::Success),
        missing => {
            let files = format::plural(missing, "artifact file is", "artifact files are");
            let what = format!("{files} missing from the backup; everything else was copied");
            let advice = "Files that were deleted during the backup cannot be copied. For other files, run `soong doctor` and try again.";
            Err(Failure::new(Exit::Failed, what, advice))
        }
    }
}

fn print_report(context: &Context<'_>, report: &BackupReport) -> Result<(), Failure> {
    let count = |n: u64, one: &str, many: &str| {
        format::plural(usize::try_from(n).unwrap_or(usize::MAX), one, many)
    };
    print::line(&text::safe_line_keep_spaces(&format!(
        "copied the home {} to {}",
        report.home.display(),
        report.dir.display()
    )))?;
    print::line(&format!(
        "{}, database {}",
        count(report.sessions, "session", "sessions"),
        format::bytes(report.database_bytes)
    ))?;
    print::line(&format!(
        "{}: {}, {}",
        count(report.artifacts, "artifact", "artifacts"),
        count(report.files, "file", "files"),
        format::bytes(report.bytes)
    ))?;
    if !report.also.is_empty() {
        print::line(&format!("also copied: {}", report.also.join(", ")))?;
    }
    if !report.left_out.is_empty() {
        let left_out = format!(
            "skipped (neither files nor folders): {}",
            report.left_out.join(", ")
        );
        print::line(&text::safe_line_keep_spaces(&left_out))?;
    }
    if report.store != "file" {
        let line = format!(
            "only the records of artifacts were copied; their content stays in {}",
            report.store
        );
        print::line(&text::safe_line_keep_spaces(&line))?;
    }
    for file in &report.missing {
        print::line(&text::safe_line_keep_spaces(&format!(
            "MISSING: {}: {}",
            file.path, file.reason
        )))?;
    }
    let hint = format!(
        "Use it: {} sessions list",
        report::command(Some(&report.dir), None)
    );
    print::line_or_stderr(
        context.terminal,
        TextStyle::Dim,
        &text::safe_line_keep_spaces(&hint),
    )
}
