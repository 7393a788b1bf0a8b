//! Finds the sessions and traces that `run` and `chat` continue.

use std::path::Path;

use serde_json::{Map, Value};
use soong::{
    ErrorCode, ErrorInfo,
    protocol::{
        Effort, Session, SessionId, Setting, TraceId,
        api::{
            StartBody,
            operation::{ReadSession, ReadTrace},
        },
    },
};
use soong_client::Client;

use crate::{
    cli::ConversationArgs,
    context::Context,
    exit::{Exit, Failure},
    offline_store, print,
    reference::{self, Match},
    source::Source,
};

/// Returns whether this process must migrate the records of the home before it can read them.
fn must_migrate(context: &Context<'_>) -> Result<bool, Failure> {
    Ok(context.remote.is_none() && offline_store::needs_migration(&context.home()?))
}

/// Opens the records of the home. Returns `None` if there are none yet, or if this process must
/// migrate them first.
async fn records(context: &Context<'_>) -> Result<Option<Source>, Failure> {
    if must_migrate(context)? {
        return Ok(None);
    }
    match context.source_to_change().await {
        Err(failure) if failure.exit == Exit::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Resolves the session that `--continue` names to its id, and stores the id in `session`. If this
/// process must migrate the records first, the name stays in `continued`, and [`fetch_continued`]
/// finds the session.
///
/// # Errors
/// No session, or more than one, matches.
pub(super) async fn existing(
    context: &Context<'_>,
    continued: &mut Option<Option<String>>,
    session: &mut Option<String>,
) -> Result<(), Failure> {
    if let Some(Some(reference)) = continued
        && !must_migrate(context)?
    {
        *session = Some(
            context
                .source_to_change()
                .await?
                .session(reference)
                .await?
                .session_id
                .to_string(),
        );
        *continued = None;
    }
    Ok(())
}

/// Returns the id of the session to continue. A name that no session has begins a session of that
/// name; a note says so if a session with a similar name exists.
///
/// # Errors
/// The reference is a position in the list of recent sessions, and there are fewer sessions.
pub(super) async fn session(context: &Context<'_>, reference: &str) -> Result<String, Failure> {
    let found = match records(context).await? {
        Some(source) => source.find_session(reference).await,
        None => reference::find(Vec::new(), reference),
    };
    let similar = match found {
        Ok((session, Match::Exact)) => return Ok(session.session_id.to_string()),
        Ok((session, Match::Partial)) => {
            format!("to continue {0}, use --session {0}", session.short_name())
        }
        Err(failure) if reference::recent_position(reference).is_some() => return Err(failure),
        // Several sessions match.
        Err(failure) if failure.exit == Exit::Usage => failure.what,
        Err(failure) if failure.exit == Exit::NotFound => {
            if reference::names_a_session(reference, &failure) {
                failure.what
            } else {
                return Ok(reference.to_owned());
            }
        }
        Err(failure) => return Err(failure),
    };
    if !context.global.json {
        print::note(&format!("this starts a new session {reference}; {similar}"));
    }
    Ok(reference.to_owned())
}

/// Replaces the references of a run by ids.
pub(super) async fn resolve(
    context: &Context<'_>,
    options: &mut ConversationArgs,
) -> Result<(), Failure> {
    if let Some(reference) = &mut options.session {
        *reference = session(context, reference).await?;
    }
    existing(context, &mut options.continued, &mut options.session).await?;
    if let Some(reference) = &mut options.trace
        && let Some(source) = records(context).await?
    {
        *reference = source
            .trace_to_change(reference)
            .await?
            .trace
            .trace_id
            .to_string();
    }
    Ok(())
}

/// Returns the most recently updated session of a project folder.
pub(super) fn last_session_of(sessions: Vec<Session>, project: &Path) -> Option<Session> {
    let project = project.display().to_string();
    let last = sessions
        .into_iter()
        .filter(|session| session.project_dir == project);
    last.max_by_key(|session| session.updated_at)
}

/// Fetches the session that `--continue` names. Without a name, this is the most recently updated
/// session of the project folder.
///
/// # Errors
/// No session, or more than one, matches; or there is neither a name nor a project folder.
pub(super) async fn fetch_continued(
    client: &Client,
    reference: Option<&str>,
    project: Option<&Path>,
) -> Result<Session, Failure> {
    if let Some(reference) = reference {
        // Lists do not contain single calls.
        if let Ok(exact) = client
            .call(ReadSession {
                session_id: SessionId::new(reference),
            })
            .await
        {
            return Ok(exact.session);
        }
        return Ok(reference::find(client.sessions(false).await?, reference)?.0);
    }
    let project = project.ok_or_else(|| {
        let advice =
            "Give the session with --session ID, or the project folder on the server's machine with --path DIR.";
        Failure::usage("cannot determine which session to continue on the server", advice)
    })?;
    last_session_of(client.sessions(false).await?, project).ok_or_else(|| {
        let what = format!(
            "the project {} has no session to continue",
            project.display()
        );
        Failure::new(
            Exit::NotFound,
            what,
            "Start one without --continue, or select one with --session ID.",
        )
    })
}

/// Returns the parameters of a run with this reasoning effort. The parameters of a run replace all
/// those of its trace, so those of the trace are included, unless the request sets or resets them.
///
/// # Errors
/// The trace cannot be read.
pub(super) async fn params_with_effort(
    client: &Client,
    request: &StartBody,
    effort: Effort,
) -> Result<Map<String, Value>, ErrorInfo> {
    let mut params = match &request.llm_params {
        Setting::Inherit => last_params(client, request).await?,
        Setting::Reset => Map::new(),
        Setting::Set(params) => params.clone(),
    };
    // These exclude the effort.
    params.retain(|name, _| name != "reasoning_effort" && name != "reasoning_budget_tokens");
    params.insert("effort".to_owned(), effort.as_str().into());
    Ok(params)
}

/// Returns the parameters of the last run of the trace that a request continues, without the
/// temperature, which is a field of its own in a request.
async fn last_params(
    client: &Client,
    request: &StartBody,
) -> Result<Map<String, Value>, ErrorInfo> {
    let root = || {
        request
            .session_id
            .as_deref()
            .map(|session| TraceId::root(&SessionId::new(session)))
    };
    let Some(trace) = request.trace_id.clone().or_else(root) else {
        return Ok(Map::new());
    };
    match client
        .call(ReadTrace {
            trace_id: trace.clone(),
        })
        .await
    {
        Ok(last) => {
            let mut params = last.trace.llm_params;
            params.remove("temperature");
            Ok(params)
        }
        Err(error) if error.code == ErrorCode::TraceNotFound => Ok(Map::new()),
        Err(error) => Err(error),
    }
}
