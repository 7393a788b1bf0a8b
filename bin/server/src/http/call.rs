//! Single model calls (RT-5).

use std::time::Duration;

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use soong::{
    ErrorCode,
    protocol::{
        RunMode, Setting,
        api::{CallQuery, StartBody},
    },
};

use super::{
    caller::Access,
    error::{ApiError, validation_error},
    request::{self, Query},
    run::{run_view, start_run},
};

/// Maximum time for which a client can wait for the answer, in seconds.
const MAX_WAIT_S: u64 = 120;

/// Makes one model call without tools, in a session of its own.
///
/// With `wait_s`, the response is the record of the run if it has ended by then, whatever its
/// status is. A failure of the model's service, or an answer that it refuses, is an error response.
/// If the run has not ended, it continues.
#[cfg_attr(feature = "openapi", utoipa::path(post, path = "/api/calls", tag = "runs", params(CallQuery), request_body = StartBody,
    responses((status = OK, body = soong::protocol::api::RunWithOutcome), (status = ACCEPTED, body = soong::protocol::api::Accepted))))]
pub(super) async fn call(
    access: Access,
    Query(CallQuery { wait_s }): Query<CallQuery>,
    request::Json(mut body): request::Json<StartBody>,
) -> Result<Response, ApiError> {
    if wait_s.is_some_and(|wait_s| wait_s > MAX_WAIT_S) {
        return Err(validation_error(format!(
            "wait_s must be 0 to {MAX_WAIT_S}"
        )));
    }
    if body.session_id.is_some() || body.trace_id.is_some() {
        return Err(validation_error(
            "session_id, trace_id: not allowed here, because a call has a session of its own",
        ));
    }
    if !matches!(body.mode, Setting::Inherit | Setting::Set(RunMode::Call)) {
        return Err(validation_error(
            "mode: not allowed here, because it is always `call`",
        ));
    }
    body.mode = Setting::Set(RunMode::Call);
    let accepted = start_run(&access, body).await?;
    let status = StatusCode::ACCEPTED;
    let Some(wait_s) = wait_s else {
        return Ok((status, Json(accepted)).into_response());
    };
    let runtime = access.runtime();
    let Ok(outcome) =
        tokio::time::timeout(Duration::from_secs(wait_s), runtime.wait(&accepted.run_id)).await
    else {
        return Ok((status, Json(accepted)).into_response());
    };
    match outcome?.error.clone() {
        Some(error) if is_of_service(error.code) => {
            Err(ApiError::from(error).with_status(StatusCode::BAD_GATEWAY))
        }
        _ => Ok(Json(run_view(&access, &accepted.run_id).await?).into_response()),
    }
}

/// Returns whether the model's service failed or refused.
fn is_of_service(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::ContentRefused
            | ErrorCode::ProviderError
            | ErrorCode::ProviderAuthFailed
            | ErrorCode::ProviderTimeout
            | ErrorCode::ProviderRateLimited
            | ErrorCode::ModelAnswerTooLarge
    )
}
