//! `soong permissions`: lists the tool calls that wait for permission, decides them, and sets the
//! permission mode.

use soong::{
    ErrorCode, ErrorInfo,
    protocol::{
        Decision, Permission, PermissionMode, PermissionStatus,
        api::{
            DecisionBody, PermissionModeBody,
            operation::{DecidePermission, SetPermissionMode},
        },
    },
};
use soong_tui::{
    format,
    request::{permission_rows, wrap_rows},
    terminal::TextStyle,
    text,
};

use super::questions;
use crate::{
    context::Context,
    exit::{Exit, Failure},
    print, prompts, report,
    source::Source,
};

/// Lists permissions.
pub(super) async fn list(context: &Context<'_>, all: bool) -> Result<Exit, Failure> {
    if context.print_if_unused(&[(); 0])? {
        return Ok(Exit::Success);
    }
    let status = (!all).then_some(PermissionStatus::Pending);
    let source = context.source().await?;
    let permissions = source.permissions(status, None).await?;
    if context.global.json {
        print::json(&permissions)?;
        return Ok(Exit::Success);
    }
    if permissions.is_empty() {
        print::line(if all {
            "no permission requests"
        } else {
            "no open permission requests"
        })?;
        return Ok(Exit::Success);
    }
    for permission in &permissions {
        let run = source.run(&permission.run_id).await?;
        print(
            context,
            permission,
            run.settings.permissions.mode.unwrap_or_default(),
        )?;
    }
    Ok(Exit::Success)
}

/// Prints a permission request and its decision, if any. `mode`: the permission mode of the run.
fn print(
    context: &Context<'_>,
    permission: &Permission,
    mode: PermissionMode,
) -> Result<(), Failure> {
    let age = format::duration(soong_tui::screen::now().millis_since(permission.created_at));
    let id = &permission.permission_id;
    let status = permission.status.as_str();
    let session = &permission.session_id;
    let trace = &permission.trace_id;
    let mode = mode.as_str();
    let head = format!(
        "{id}  {status}, asked {age} ago by trace {trace} of session {session} in mode {mode}"
    );
    print::line(&context.terminal.stdout.paint(TextStyle::Bold, &head))?;
    for row in wrap_rows(permission_rows(permission, None), prompts::list_columns()) {
        print::line(&format!(
            "  {}",
            context.terminal.stdout.paint(row.style, &row.text)
        ))?;
    }
    if let (Some(decision), Some(by)) = (permission.decision, &permission.by) {
        let why = permission
            .reason
            .as_deref()
            .map(|reason| format!(": {}", text::safe_line(reason)))
            .unwrap_or_default();
        print::line(&format!(
            "  {} by {}{why}",
            decision.as_str(),
            text::safe_line(by)
        ))?;
    }
    Ok(())
}

/// Sets the permission mode of the active run of a session.
pub(super) async fn set_mode(
    context: &Context<'_>,
    mode: PermissionMode,
    session: &str,
) -> Result<Exit, Failure> {
    let source = context.source_to_change().await?;
    let id = source.exact_session(session).await?.session_id;
    match source {
        Source::Owner(client, _) => {
            client
                .call(SetPermissionMode {
                    session_id: id.clone(),
                    body: PermissionModeBody {
                        permission_mode: mode,
                    },
                })
                .await?;
        }
        Source::Disk(_) => {
            let message = format!(
                "session {id} has no active run: give the mode with its next run; one that is resumed keeps its mode"
            );
            return Err(ErrorInfo::new(ErrorCode::NothingRunning, message).into());
        }
    }
    if context.global.json {
        print::json(&PermissionModeBody {
            permission_mode: mode,
        })?;
    } else {
        print::line(&format!(
            "permission mode of session {id}: {}",
            mode.as_str()
        ))?;
    }
    Ok(Exit::Success)
}

/// Decides a permission. Its run resumes at the owner of the home or in a new background process.
pub(super) async fn decide(
    context: &Context<'_>,
    id: &str,
    decision: Decision,
    reason: Option<String>,
) -> Result<Exit, Failure> {
    // Check that the permission exists and is pending before starting an owner process.
    let permission = context.source_to_change().await?.permission(id).await?;
    if permission.status != PermissionStatus::Pending {
        return Err(permission.already_decided().into());
    }
    let taker = questions::connect(context, &permission.session_id).await?;
    let soong = report::command(
        context.global.home.as_deref(),
        context.global.url.as_deref(),
    );
    let decided = async {
        let permission = taker
            .client()
            .call(DecidePermission {
                permission_id: permission.permission_id.clone(),
                body: DecisionBody { decision, reason },
            })
            .await?;
        let more =
            questions::describe_open_requests(taker.client(), &permission.session_id, &soong)
                .await?;
        Ok::<_, Failure>((permission, more))
    };
    let decided = decided.await;
    let outlook = taker.resume_description();
    taker.close().await;
    let (permission, more) = decided?;
    if context.global.json {
        print::json(&permission)?;
        return Ok(Exit::Success);
    }
    let what = if decision.allows() {
        "allowed"
    } else {
        "denied"
    };
    print::line(&format!(
        "{what}; run {} of session {} {outlook}{more}",
        permission.run_id, permission.session_id
    ))?;
    print::line_or_stderr(
        context.terminal,
        TextStyle::Dim,
        &format!(
            "follow it: {soong} traces events {} --follow",
            permission.session_id
        ),
    )?;
    Ok(Exit::Success)
}
