//! `soong sessions`: lists, shows, copies, switches and deletes sessions.

mod branch;
mod cleanup;

use std::collections::HashSet;

use serde_json::json;
use soong::protocol::{
    Artifact, ArtifactScope, Session, SessionId, Trace,
    api::{
        ForkBody,
        operation::{DeleteSession, ListArtifacts},
    },
};
use soong_tui::{format, request::UserRequest, table::Column, terminal::TextStyle, text};

use super::{
    artifacts::{DIRTY_NOTE, version_label},
    host::builder,
    traces,
};
use crate::{
    cli, config,
    context::Context,
    exit::{Exit, Failure},
    input::{Input, InputLine},
    offline_store::OfflineStore,
    owner::HomeConnection,
    print, prompts,
    reference::{self, Match},
    report,
    source::Source,
};

pub(super) use branch::{describe_head, refused};

pub(super) async fn sessions(
    context: &Context<'_>,
    options: &cli::Sessions,
) -> Result<Exit, Failure> {
    if matches!(options, cli::Sessions::List { .. }) && context.print_if_unused(&[(); 0])? {
        return Ok(Exit::Success);
    }
    let source = match options {
        cli::Sessions::List { .. }
        | cli::Sessions::Show { .. }
        | cli::Sessions::Cleanup { yes: false, .. } => context.source().await?,
        cli::Sessions::Fork { .. }
        | cli::Sessions::Switch { .. }
        | cli::Sessions::Delete { .. }
        | cli::Sessions::Cleanup { yes: true, .. } => context.source_to_change().await?,
    };
    match options {
        cli::Sessions::List { all, columns } => {
            list(context, &source, *all, &columns.columns).await
        }
        cli::Sessions::Show { id } => show(context, &source, id).await,
        cli::Sessions::Fork {
            id,
            at,
            session_id,
            name,
        } => {
            let request = ForkBody {
                at_sequence: *at,
                session_id: session_id.clone(),
                name: name.clone(),
            };
            let id = source.session(id).await?.session_id;
            branch::fork(context, source, id.as_str(), request).await
        }
        cli::Sessions::Switch { id, sequence } => {
            let id = source.exact_session(id).await?.session_id;
            branch::switch(context, source, id.as_str(), *sequence).await
        }
        cli::Sessions::Delete { id } => delete(context, source, id).await,
        cli::Sessions::Cleanup { older_than, yes } => {
            cleanup::cleanup(context, source, *older_than, !yes).await
        }
    }
}

/// Deletes a session through the owner of the home, or as its owner, and reports what was deleted.
async fn delete(context: &Context<'_>, source: Source, id: &str) -> Result<Exit, Failure> {
    let home = context.home()?;
    let settings = config::read(&context.global, &home)?;
    // Reports a missing session before owning or creating anything.
    let (session, how) = source.find_session(id).await?;
    // Positions change with each run of another terminal.
    let is_sure = how == Match::Exact && reference::recent_position(id).is_none();
    if !is_sure && !confirm_deletion(context, &session, id).await? {
        print::line("nothing was deleted")?;
        return Ok(Exit::Success);
    }
    let traces = source
        .client()
        .traces(Some(&session.session_id), true)
        .await?;
    let is_its = |artifact: &Artifact| matches!(artifact.scope, ArtifactScope::Session { .. });
    let artifacts: Vec<Artifact> = source
        .client()
        .call(ListArtifacts {
            session_id: session.session_id.clone(),
        })
        .await?
        .artifacts
        .into_iter()
        .filter(is_its)
        .collect();
    drop(source);
    let reached = HomeConnection::connect_or_own(&context.address(&home), &|| {
        builder(context, &home, &settings)
    })
    .await?;
    let deleted = reached
        .client()
        .call(DeleteSession {
            session_id: session.session_id.clone(),
        })
        .await;
    if let Some(owner) = reached.into_owner() {
        owner.close().await;
    }
    deleted?;
    print_deleted(context, &session, &traces, &artifacts)
}

/// Asks whether the session that was found by a part of its name is to be deleted. Fails without a
/// terminal.
async fn confirm_deletion(
    context: &Context<'_>,
    session: &Session,
    reference: &str,
) -> Result<bool, Failure> {
    let found = format!(
        "{} is session {}",
        text::safe_line(reference),
        described(session)
    );
    if context.global.json || !prompts::is_interactive() {
        return Err(Failure::usage(
            found,
            "Give its whole id or slug to delete it.",
        ));
    }
    print::line(&found)?;
    let answer = Input::of_person()?.next("delete it? [y/N] ", "").await?;
    Ok(
        matches!(answer, InputLine::Line(answer) if ["y", "yes"].contains(&&*answer.trim().to_lowercase())),
    )
}

/// Returns the short name of a session and its name.
fn described(session: &Session) -> String {
    let name = session
        .name
        .as_deref()
        .map(|name| format!(" ({})", text::safe_line(name)));
    format!("{}{}", session.short_name(), name.unwrap_or_default())
}

fn print_deleted(
    context: &Context<'_>,
    session: &Session,
    traces: &[Trace],
    artifacts: &[Artifact],
) -> Result<Exit, Failure> {
    let messages: u64 = traces.iter().map(|trace| trace.total_messages).sum();
    if context.global.json {
        print::json(&json!({
            "session_id": session.session_id,
            "traces": traces.len(),
            "messages": messages,
            "artifacts": artifacts.len(),
        }))?;
        return Ok(Exit::Success);
    }
    print::line(&format!(
        "deleted session {}: {}, {}, {}",
        session.session_id,
        format::plural(traces.len(), "trace", "traces"),
        format::plural(
            usize::try_from(messages).unwrap_or(usize::MAX),
            "message",
            "messages"
        ),
        format::plural(artifacts.len(), "artifact", "artifacts"),
    ))?;
    Ok(Exit::Success)
}

async fn list(
    context: &Context<'_>,
    source: &Source,
    with_calls: bool,
    columns: &[String],
) -> Result<Exit, Failure> {
    let sessions = source.client().sessions(with_calls).await?;
    if context.global.json {
        print::json(&sessions)?;
        return Ok(Exit::Success);
    }
    if sessions.is_empty() {
        print::line("no sessions")?;
        return Ok(Exit::Success);
    }
    let open = source.open_requests(None).await?;
    let asks: HashSet<&SessionId> = open.iter().map(UserRequest::session_id).collect();
    let (last_event, time) = print::times(context.terminal, ["LAST EVENT", "LAST EVENT (UTC)"]);
    let rows: Vec<Vec<String>> = sessions
        .iter()
        .map(|session| {
            vec![
                session.short_name().to_owned(),
                time(session.updated_at),
                runs(source, session, asks.contains(&session.session_id)),
                text::cut(
                    &text::safe_line(session.name.as_deref().unwrap_or("")),
                    48,
                    context.terminal.ellipsis(),
                ),
                session.project_dir.clone(),
            ]
        })
        .collect();
    print::selected_table(
        context.terminal,
        &[
            Column::text("SESSION", 16),
            Column::whole(last_event),
            Column::text("RUNS", 6).drops(1),
            Column::text("NAME", 20),
            Column::text("PROJECT", 16).drops(2),
        ],
        &rows,
        columns,
    )?;
    Ok(Exit::Success)
}

/// Describes the unfinished runs of a session. Without an owner of the home, none of them is
/// active.
fn runs(source: &Source, session: &Session, asks: bool) -> String {
    match (session.live_runs, source, asks) {
        (0, ..) => "idle".to_owned(),
        (count, Source::Owner(..), false) => format!("{count} active"),
        (count, Source::Owner(..), true) => format!("{count} active, waiting for input"),
        (count, Source::Disk(records), false) if records.is_owned() => format!("{count} active"),
        (count, Source::Disk(records), true) if records.is_owned() => {
            format!("{count} active, waiting for input")
        }
        (count, Source::Disk(_), false) => format!("{count} interrupted"),
        (count, Source::Disk(_), true) => format!("{count} unfinished, waiting for input"),
    }
}

async fn show(context: &Context<'_>, source: &Source, id: &str) -> Result<Exit, Failure> {
    let session = source.session(id).await?;
    let mut all = source
        .client()
        .traces(Some(&session.session_id), true)
        .await?;
    all.reverse();
    let artifacts = source
        .client()
        .call(ListArtifacts {
            session_id: session.session_id.clone(),
        })
        .await?
        .artifacts;
    if context.global.json {
        print::json(&json!({ "session": session, "traces": all, "artifacts": artifacts }))?;
        return Ok(Exit::Success);
    }
    print::line(&format!("session   {}", session.session_id))?;
    if let Some(slug) = &session.slug {
        print::line(&format!("slug      {slug}"))?;
    }
    print::line(&format!(
        "name      {}",
        text::safe_line(session.name.as_deref().unwrap_or(""))
    ))?;
    print::line(&format!(
        "project   {}",
        text::safe_line(&session.project_dir)
    ))?;
    print::line(&format!(
        "created   {} UTC",
        format::time(session.created_at)
    ))?;
    print::line(&format!(
        "updated   {} UTC",
        format::time(session.updated_at)
    ))?;
    print::line(&format!(
        "runs      {}",
        format::plural(session.live_runs as usize, "unfinished", "unfinished")
    ))?;
    for ask in source.open_requests(Some(&session.session_id)).await? {
        print::line(&format!("waits for {}", ask.summary()))?;
    }
    print::line("")?;
    traces::tree_table(&all, std::slice::from_ref(&session), context, &[])?;
    if !artifacts.is_empty() {
        print::line("")?;
        let records = OfflineStore::open(&context.home()?)?;
        let rows: Vec<Vec<String>> = artifacts
            .iter()
            .map(|artifact| {
                let file = records.file(&artifact.artifact_id, artifact.stored_version);
                vec![
                    artifact.key(),
                    version_label(artifact),
                    format::bytes(artifact.size),
                    file.map(|file| file.display().to_string())
                        .unwrap_or_default(),
                ]
            })
            .collect();
        print::table(
            context.terminal,
            &[
                Column::whole("ARTIFACT"),
                Column::whole("VERSION"),
                Column::whole("SIZE").drops(1),
                Column::text("FILE", 16),
            ],
            &rows,
        )?;
        if artifacts.iter().any(|artifact| artifact.dirty) {
            print::line_or_stderr(context.terminal, TextStyle::Dim, DIRTY_NOTE)?;
        }
        let soong = report::command(
            context.global.home.as_deref(),
            context.global.url.as_deref(),
        );
        let hint = format!(
            "Details: {soong} artifacts show NAME --session {}",
            session.short_name()
        );
        print::line_or_stderr(context.terminal, TextStyle::Dim, &hint)?;
    }
    Ok(Exit::Success)
}
