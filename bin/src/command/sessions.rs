//! `soong sessions`: which sessions there are, and what is in one.

use serde_json::json;
use soong::{TraceFilter, protocol::ArtifactScope};
use soong_storage::store::Reader;

use super::{Context, traces};
use crate::{
    cli,
    exit::{Exit, Failure},
    figure, print, text,
};

pub(super) fn sessions(context: &Context<'_>, options: &cli::Sessions) -> Result<Exit, Failure> {
    match options {
        cli::Sessions::List => list(context),
        cli::Sessions::Show { id } => show(context, id),
    }
}

fn list(context: &Context<'_>) -> Result<Exit, Failure> {
    let sessions = context.records()?.sessions()?;
    if context.global.json {
        print::json(&sessions)?;
        return Ok(Exit::Done);
    }
    if sessions.is_empty() {
        print::line("no sessions")?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = sessions
        .iter()
        .map(|session| {
            vec![
                session.session_id.to_string(),
                figure::time(session.updated_at),
                if session.live_runs > 0 { format!("{} at work", session.live_runs) } else { "idle".to_owned() },
                text::cut(&text::line(session.name.as_deref().unwrap_or("")), 48, context.terminal.ellipsis()),
                session.project_dir.clone(),
            ]
        })
        .collect();
    print::table(&["SESSION", "LAST EVENT (UTC)", "RUNS", "NAME", "PROJECT"], &rows)?;
    Ok(Exit::Done)
}

fn show(context: &Context<'_>, id: &str) -> Result<Exit, Failure> {
    let records = context.records()?;
    let session = records.session(id)?;
    let filter = TraceFilter { session_id: Some(session.session_id.clone()), ..TraceFilter::default() };
    let mut all = records.traces(&filter)?;
    all.reverse();
    let artifacts = records.reader.artifacts(&ArtifactScope::Session { session_id: session.session_id.clone() })?;
    if context.global.json {
        print::json(&json!({ "session": session, "traces": all, "artifacts": artifacts }))?;
        return Ok(Exit::Done);
    }
    print::line(&format!("session   {}", session.session_id))?;
    print::line(&format!("name      {}", text::line(session.name.as_deref().unwrap_or(""))))?;
    print::line(&format!("project   {}", text::line(&session.project_dir)))?;
    print::line(&format!("created   {} UTC", figure::time(session.created_at)))?;
    print::line(&format!("updated   {} UTC", figure::time(session.updated_at)))?;
    print::line(&format!(
        "runs      {}",
        figure::plural(session.live_runs as usize, "has not ended", "have not ended")
    ))?;
    print::line("")?;
    traces::table(&all, context)?;
    if !artifacts.is_empty() {
        print::line("")?;
        let rows: Vec<Vec<String>> = artifacts
            .iter()
            .map(|artifact| {
                let file = records.file(&artifact.artifact_id, artifact.current_version);
                vec![
                    artifact.name.clone(),
                    artifact.current_version.to_string(),
                    figure::bytes(artifact.size),
                    file.map(|file| file.display().to_string()).unwrap_or_default(),
                ]
            })
            .collect();
        print::table(&["ARTIFACT", "VERSION", "SIZE", "FILE"], &rows)?;
    }
    Ok(Exit::Done)
}
