//! `soong sessions cleanup`: deletes sessions that have been inactive for a given time.
//!
//! The library selects the sessions. The owner of the home, this process or another, deletes each
//! of them.

use std::time::Duration;

use soong::{
    ErrorCode, ErrorInfo, SessionCleanup, SessionCleanupFailure, SessionCleanupReport,
    protocol::{
        Session, SessionId,
        api::operation::{DeleteSession, ReadSession},
    },
};
use soong_client::Client;
use soong_tui::{format, screen::now, table::Column, text};

use super::{Context, builder};
use crate::{
    command::cleanup,
    config,
    exit::{Exit, Failure},
    interrupt::Interrupt,
    owner::HomeConnection,
    print,
    source::Source,
};

pub(super) async fn cleanup(
    context: &Context<'_>,
    source: Source,
    older_than: Duration,
    dry_run: bool,
) -> Result<Exit, Failure> {
    // The candidates are listed without owning the home.
    let mut report = SessionCleanup {
        older_than,
        dry_run,
    }
    .choose(source.client().sessions(true).await?, now());
    drop(source);
    let ended = if dry_run || report.candidates.is_empty() {
        Ok(())
    } else {
        delete_all(context, &mut report).await
    };
    if context.global.json {
        print::json(&report)?
    } else {
        print_report(context, &report)?
    }
    ended?;
    match report.failed.len() {
        0 => Ok(Exit::Success),
        failed => {
            let what = format!(
                "{} could not be deleted",
                format::plural(failed, "session", "sessions")
            );
            Err(Failure::new(
                Exit::Failed,
                what,
                "The list shows the reasons. Try again.",
            ))
        }
    }
}

/// Deletes the candidates one after the other. Fails if it stops before the last one.
async fn delete_all(
    context: &Context<'_>,
    report: &mut SessionCleanupReport,
) -> Result<(), Failure> {
    let home = context.home()?;
    let settings = config::read(&context.global, &home)?;
    let interrupt = Interrupt::listen();
    let find = || async {
        HomeConnection::connect_or_own(&context.address(&home), &|| {
            builder(context, &home, &settings)
        })
        .await
    };
    let mut reached = find().await?;
    let mut ended = Ok(());
    for candidate in &report.candidates {
        let id = candidate.session_id.clone();
        let mut deleted = tokio::select! {
            deleted = delete(reached.client(), candidate) => deleted,
            () = interrupt.first() => {
                let what = format!("interrupted; session {id} may or may not have been deleted, later ones are kept");
                ended = Err(Failure::new(Exit::Interrupted, what, "Check the state and try again."));
                break;
            }
        };
        // The owner shut down before it accepted the request: retry once with the next owner.
        if deleted
            .as_ref()
            .is_err_and(|error| error.code == ErrorCode::Closing && error.retryable)
        {
            reached = match find().await {
                Ok(reached) => reached,
                Err(error) => {
                    ended = Err(error.into());
                    break;
                }
            };
            deleted = delete(reached.client(), candidate).await;
        }
        match deleted {
            Ok(true) => report.deleted.push(id),
            Ok(false) => {}
            Err(error) if error.code == ErrorCode::SessionActive => report.busy.push(id),
            Err(error) => report.failed.push(SessionCleanupFailure {
                session_id: id,
                error,
            }),
        }
    }
    if let Some(owner) = reached.into_owner() {
        owner.close().await;
    }
    ended
}

/// Deletes a session, unless it is gone or has new events. Returns whether it was deleted.
async fn delete(client: &Client, session: &Session) -> Result<bool, ErrorInfo> {
    match client
        .call(ReadSession {
            session_id: session.session_id.clone(),
        })
        .await
    {
        Ok(now) if now.session.last_session_seq == session.last_session_seq => {}
        Ok(_) => return Ok(false),
        Err(error) if error.code == ErrorCode::SessionNotFound => return Ok(false),
        Err(error) => return Err(error),
    }
    client
        .call(DeleteSession {
            session_id: session.session_id.clone(),
        })
        .await
        .map(|()| true)
}

fn print_report(context: &Context<'_>, report: &SessionCleanupReport) -> Result<(), Failure> {
    let ellipsis = context.terminal.ellipsis();
    let row = |session: &Session| {
        vec![
            session.session_id.to_string(),
            format::time(session.updated_at),
            outcome(report, &session.session_id),
            text::cut(
                &text::safe_line(session.name.as_deref().unwrap_or("")),
                48,
                ellipsis,
            ),
            session.project_dir.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = report.candidates.iter().map(row).collect();
    let is_any = cleanup::print_candidates(
        context,
        &[
            Column::text("SESSION", 16),
            Column::whole("LAST EVENT (UTC)"),
            Column::text("RESULT", 12),
            Column::text("NAME", 10).drops(1),
            Column::text("PROJECT", 10).drops(2),
        ],
        &rows,
    )?;
    if !report.busy.is_empty() {
        let busy: Vec<&str> = report.busy.iter().map(SessionId::as_str).collect();
        print::line(&text::safe_line(&format!(
            "kept, because they have runs that have not ended: {}",
            busy.join(", ")
        )))?;
    }
    if !is_any {
        return Ok(());
    }
    let all = format::plural(report.candidates.len(), "session", "sessions");
    cleanup::close(
        context,
        &all,
        None,
        (!report.dry_run).then_some(report.deleted.len()),
    )
}

/// Returns the outcome for a candidate.
fn outcome(report: &SessionCleanupReport, id: &SessionId) -> String {
    let failed = report.failed.iter().find(|failed| failed.session_id == *id);
    match failed {
        Some(failed) => cleanup::reason("", Some(&failed.error)),
        None if report.dry_run => "can be deleted".to_owned(),
        None if report.deleted.contains(id) => "deleted".to_owned(),
        None => "kept".to_owned(),
    }
}
