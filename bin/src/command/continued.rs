//! The sessions and traces that `run` and `chat` continue, as users name them.

use crate::{
    cli::ConversationArgs,
    context::Context,
    exit::{Exit, Failure},
    print,
    reference::{self, Precision},
    source::Source,
};

/// Opens the records of the home. Returns `None` if there are none yet.
async fn records(context: &Context<'_>) -> Result<Option<Source>, Failure> {
    match context.source().await {
        Err(failure) if failure.exit == Exit::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Returns the id of the session to continue. A name that no session has begins a session of that name; a note says so if
/// a session with a similar name exists.
///
/// # Errors
/// The reference is a place among the recent sessions, and there are not so many.
pub(super) async fn session(context: &Context<'_>, reference: &str) -> Result<String, Failure> {
    let found = match records(context).await? {
        Some(source) => source.find_session(reference).await,
        None => reference::find(Vec::new(), reference),
    };
    let similar = match found {
        Ok((session, Precision::Whole)) => return Ok(session.session_id.to_string()),
        Err(failure) if reference::recent_place(reference).is_some() => return Err(failure),
        Ok((session, Precision::Part)) => Some(reference::short_name(&session).to_owned()),
        // Several sessions are similar.
        Err(failure) if failure.exit == Exit::Usage => return Err(failure),
        Err(failure) if failure.exit == Exit::NotFound => None,
        Err(failure) => return Err(failure),
    };
    if let Some(similar) = similar.filter(|_| !context.global.json) {
        print::error_line(&format!(
            "note: this begins the session {reference}; to continue {similar}, give its whole name"
        ));
    }
    Ok(reference.to_owned())
}

/// Replaces the references of a run by ids.
pub(super) async fn resolve(context: &Context<'_>, options: &mut ConversationArgs) -> Result<(), Failure> {
    if let Some(reference) = &mut options.session {
        *reference = session(context, reference).await?;
    }
    if let Some(reference) = &mut options.trace
        && let Some(source) = records(context).await?
    {
        *reference = source.trace(reference).await?.trace.trace_id.to_string();
    }
    Ok(())
}
