//! `soong sessions fork` and `switch`: continue from another message, in a copy or in the session
//! itself.

use soong::{
    ErrorCode,
    protocol::{
        SessionId,
        api::{
            ForkBody, HeadBody, HeadView,
            operation::{ForkSession, SwitchHead},
        },
    },
};
use soong_client::Client;
use soong_tui::{format, terminal::TextStyle, text};

use super::{Context, builder};
use crate::{
    config,
    exit::{Exit, Failure},
    owner::HomeConnection,
    print, report,
    source::Source,
};

/// Copies a session to a new one; prints the id of the copy and how to continue it.
pub(super) async fn fork(
    context: &Context<'_>,
    source: Source,
    id: &str,
    options: ForkBody,
) -> Result<Exit, Failure> {
    let request = ForkSession {
        session_id: SessionId::new(id),
        body: options,
    };
    let made = with_owner(context, source, id, async |client| {
        client.call(request.clone()).await
    })
    .await?
    .session;
    if context.global.json {
        print::json(&made)?;
        return Ok(Exit::Success);
    }
    print::line(made.session_id.as_str())?;
    let soong = report::command(
        context.global.home.as_deref(),
        context.global.url.as_deref(),
    );
    let hint = format!(
        "Continue it: {soong} run --session {} \"…\"",
        made.session_id
    );
    print::line_or_stderr(context.terminal, TextStyle::Dim, &hint)?;
    Ok(Exit::Success)
}

/// Moves the head of a conversation to another message and prints the result.
pub(super) async fn switch(
    context: &Context<'_>,
    source: Source,
    id: &str,
    sequence: u64,
) -> Result<Exit, Failure> {
    let request = SwitchHead {
        session_id: SessionId::new(id),
        body: HeadBody { sequence },
    };
    let head = with_owner(context, source, id, async |client| {
        client.call(request.clone()).await
    })
    .await?;
    if context.global.json {
        print::json(&head)?;
        return Ok(Exit::Success);
    }
    describe_head(&format!("session {id}"), &head)
        .iter()
        .try_for_each(|line| print::line(line))?;
    Ok(Exit::Success)
}

/// Describes the result of a switch of the conversation `what`, one fact per line.
pub(in crate::command) fn describe_head(what: &str, head: &HeadView) -> Vec<String> {
    let HeadView {
        sequence,
        from_sequence,
        restored,
        left,
    } = head;
    let stands = if sequence == from_sequence {
        format!("the head of {what} is still at message {sequence}")
    } else {
        format!("moved the head of {what} from message {from_sequence} to {sequence}")
    };
    let of = |what: &str, names: &[String], why: &str| {
        (!names.is_empty()).then(|| {
            let count = format::plural(names.len(), "document", "documents");
            text::safe_line(&format!("{what} {count}: {}{why}", names.join(", ")))
        })
    };
    let restored = of("restored", restored, "");
    let left = of("kept", left, " (changed by another writer since)");
    [stands].into_iter().chain(restored).chain(left).collect()
}

/// Sends a request to the owner of the home, or becomes the owner. The caller has checked that the
/// session exists.
async fn with_owner<T>(
    context: &Context<'_>,
    source: Source,
    id: &str,
    ask: impl AsyncFnOnce(&Client) -> Result<T, soong::ErrorInfo>,
) -> Result<T, Failure> {
    let home = context.home()?;
    let settings = config::read(&context.global, &home)?;
    drop(source);
    let reached = HomeConnection::connect_or_own(&context.address(&home), &|| {
        builder(context, &home, &settings)
    })
    .await?;
    let outcome = ask(reached.client()).await;
    if let Some(owner) = reached.into_owner() {
        owner.close().await;
    }
    outcome.map_err(|error| refused(id, error))
}

/// Adds advice to the error if the conversation cannot continue from the given message.
pub(in crate::command) fn refused(id: &str, error: soong::ErrorInfo) -> Failure {
    let is_of_a_message = error.code == ErrorCode::ValidationError
        && error.message.starts_with("cannot continue after message ");
    let mut failure = Failure::from(error);
    if is_of_a_message {
        failure.advice = format!("List the messages: soong traces messages {id} --all");
    }
    failure
}
