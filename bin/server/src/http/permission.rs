//! Permissions, and the decisions about them (PERM-1).

use soong::{
    ErrorCode, ErrorInfo, PermissionFilter,
    protocol::{
        Permission, PermissionStatus,
        api::{
            DecisionBody, PermissionQuery, Permissions,
            operation::{DecidePermission, ListPermissions},
        },
    },
};

use super::{
    caller::{Access, Caller, LOCAL},
    error::ApiError,
};

pub(super) async fn list(
    access: &Access,
    request: ListPermissions,
) -> Result<Permissions, ApiError> {
    let ListPermissions { query } = request;
    let PermissionQuery { status, session_id } = query;
    let filter = PermissionFilter {
        uid: access.caller.visible_uid(),
        status,
        session_id,
        run_id: None,
    };
    Ok(Permissions {
        permissions: access.runtime().permissions().list(filter).await?,
    })
}

pub(super) async fn decide(
    access: &Access,
    request: DecidePermission,
) -> Result<Permission, ApiError> {
    let DecidePermission {
        permission_id: id,
        body,
    } = request;
    let passing = access.begin_change()?;
    access.permission(&id).await?;
    let DecisionBody { decision, reason } = body;
    let runtime = access.runtime().clone();
    let by = approver_name(&access.caller, access.client_name());
    // Runs in a separate task: otherwise a client that disconnects could leave a decided run
    // waiting.
    let deciding = tokio::spawn(async move {
        let decided = runtime
            .permissions()
            .decide_as(&id, decision, reason, by)
            .await;
        if decided
            .as_ref()
            .is_err_and(|error| error.code != ErrorCode::AlreadyDecided)
        {
            return decided;
        }
        // An earlier decision may have been interrupted before it resumed the run.
        let permission = runtime.permissions().get(&id).await?;
        let is_decided = matches!(
            permission.status,
            PermissionStatus::Allowed | PermissionStatus::Denied
        );
        if is_decided && runtime.traces().handle(&permission.run_id).is_err() {
            runtime.sessions().resume(&permission.session_id).await?;
        }
        drop(passing);
        decided
    });
    let lost = |error| {
        ErrorInfo::new(
            ErrorCode::InternalError,
            format!("the decision did not finish: {error}"),
        )
    };
    Ok(deciding.await.map_err(lost)??)
}

/// Client names that can be recorded with a decision: the prompt of a run, `soong permissions`, the
/// monitor.
const CLIENTS: [&str; 3] = ["terminal", "cli", "monitor"];

/// Returns the name recorded with a decision: the operator's client, or the user of a token.
fn approver_name(caller: &Caller, client: Option<&str>) -> String {
    match caller {
        Caller::Operator => match client.filter(|client| CLIENTS.contains(client)) {
            Some(client) => client.to_owned(),
            None => format!("http:{LOCAL}"),
        },
        Caller::User(uid) => format!("http:{uid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decision_records_client_or_user() {
        for (caller, client, want) in [
            (Caller::Operator, Some("terminal"), "terminal"),
            (Caller::Operator, Some("cli"), "cli"),
            (Caller::Operator, Some("monitor"), "monitor"),
            (Caller::Operator, Some("rule"), "http:local"),
            (Caller::Operator, None, "http:local"),
            (Caller::User("bob".into()), Some("terminal"), "http:bob"),
        ] {
            assert_eq!(
                approver_name(&caller, client),
                want,
                "{caller:?} {client:?}"
            );
        }
    }
}
