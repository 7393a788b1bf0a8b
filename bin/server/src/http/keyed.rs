//! Requests with an `Idempotency-Key`: a request that is repeated, because its answer was lost, has no second effect and
//! gets the first answer.
//!
//! The key belongs to the caller and to one request: its method, path and body. Only successful answers are stored,
//! because a request that fails changes nothing. A request that is repeated while the first one is in progress waits for
//! it.
//!
//! Elsewhere: storing requests and answers (`soong::Runtime::keyed_request`).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use axum::{
    Json,
    body::{Body, Bytes, to_bytes},
    extract::{FromRequestParts, Request, State},
    http::{HeaderName, HeaderValue, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use soong::{
    ErrorCode, ErrorInfo,
    protocol::{
        KeyedRequest, RequestAnswer, RequestKey, RequestSubject, RunStatus, SessionId,
        api::{IDEMPOTENCY_KEY, SessionView},
    },
};

use super::{
    Api,
    accepted::accepted_record,
    caller::{Access, Caller, TokenWatch},
    error::{ApiError, validation_error},
    request::{is_json, read_body},
    stream::{stream_after_start, wants_stream},
};

/// Header of a stored answer.
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Maximum length of a key, in bytes.
pub(super) const MAX_KEY_BYTES: usize = 255;
/// Maximum length of the body of a keyed request, in bytes, if its route allows more: the body is held in memory.
const MAX_BODY_BYTES: usize = 64 * 1_048_576;
/// Maximum length of an answer that is stored, in bytes.
const MAX_ANSWER_BYTES: usize = 4 * 1_048_576;

/// Lock that the requests with one key take one after the other.
type KeyLock = tokio::sync::Mutex<()>;

/// The keyed requests in progress: their locks, by user and hash of the key.
#[derive(Default)]
pub struct RequestsInProgress(Mutex<HashMap<(String, String), Weak<KeyLock>>>);

impl RequestsInProgress {
    fn lock_of(&self, key: &RequestKey) -> Arc<KeyLock> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = locks.entry((key.uid.clone(), key.key_hash.clone())).or_default();
        lock.upgrade().unwrap_or_else(|| {
            let new = Arc::new(KeyLock::new(()));
            *lock = Arc::downgrade(&new);
            new
        })
    }
}

/// Executes a POST request with an `Idempotency-Key` once. Other requests are passed on.
pub(super) async fn execute_once(State(api): State<Api>, request: Request, next: Next) -> Response {
    let key = request.headers().get(IDEMPOTENCY_KEY).cloned();
    let caller = request.extensions().get::<Caller>().cloned();
    let (Some(key), Some(caller)) = (key, caller) else { return next.run(request).await };
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    match keyed(&api, &key, &caller, request).await {
        // In a separate task: if the client disconnects, the answer is stored for its next attempt.
        Ok((key, request)) => {
            let executing = tokio::spawn(async move { execute(&api, key, request, next).await });
            let failed =
                |error| ErrorInfo::new(ErrorCode::InternalError, format!("the request did not finish: {error}"));
            executing.await.map_err(|error| ApiError::from(failed(error))).into_response()
        }
        Err(error) => error.into_response(),
    }
}

/// Reads the body of a request, and returns its key and the request.
async fn keyed(
    api: &Api,
    key: &HeaderValue,
    caller: &Caller,
    request: Request,
) -> Result<(RequestKey, Request), ApiError> {
    let key = key.as_bytes();
    if key.is_empty() || key.len() > MAX_KEY_BYTES || !key.iter().all(u8::is_ascii_graphic) {
        let message = format!("Idempotency-Key: use 1 to {MAX_KEY_BYTES} visible ASCII characters, such as a UUID");
        return Err(validation_error(message));
    }
    let (parts, body) = request.into_parts();
    let limit = api.limits.upload_bytes.min(MAX_BODY_BYTES).max(api.limits.body_bytes);
    let body = read_body(body, limit).await?;
    let request_key =
        RequestKey { uid: caller.uid().to_owned(), key_hash: hash([key]), fingerprint: fingerprint(&parts, &body) };
    Ok((request_key, Request::from_parts(parts, Body::from(body))))
}

fn fingerprint(parts: &Parts, body: &Bytes) -> String {
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    hash([parts.method.as_str().as_bytes(), path.as_bytes(), body])
}

/// Returns the hash of these texts, in hexadecimal digits.
fn hash<const N: usize>(texts: [&[u8]; N]) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn execute(api: &Api, key: RequestKey, mut request: Request, next: Next) -> Result<Response, ApiError> {
    let lock = api.requests_in_progress.lock_of(&key);
    let _in_progress = lock.lock().await;
    let earlier = api.runtime.keyed_request(&key).await?;
    let Some(earlier) = earlier else {
        request.extensions_mut().insert(key.clone());
        let response = next.run(request).await;
        return record(api, key, response).await;
    };
    if earlier.fingerprint != key.fingerprint {
        let message = "Idempotency-Key: it was used for another request in the last 24 hours: use a new key";
        return Err(ErrorInfo::new(ErrorCode::IdempotencyConflict, message).into());
    }
    let mut response = repeat(api, earlier, request).await?;
    response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

/// Returns the answer to a request that was executed before.
async fn repeat(api: &Api, earlier: KeyedRequest, request: Request) -> Result<Response, ApiError> {
    let (mut parts, _) = request.into_parts();
    let access = Access::from_request_parts(&mut parts, api).await?;
    let streams = wants_stream(&parts.headers);
    match (earlier.subject, earlier.answer) {
        (Some(RequestSubject::Run(id)), answer) if streams || answer.is_none() => {
            let run = access.run(&id).await?;
            let status = if run.status == RunStatus::Queued { "queued" } else { "started" };
            let accepted = accepted_record(&run, status);
            if !streams {
                return Ok((StatusCode::ACCEPTED, Json(accepted)).into_response());
            }
            let stream = access.runtime().sessions().events_from_run(&run).await?;
            // If the session was deleted before the stream was opened, its id may belong to another user by now.
            access.run(&id).await?;
            let Ok(token_watch) = TokenWatch::from_request_parts(&mut parts, api).await;
            Ok((StatusCode::ACCEPTED, stream_after_start(&access, token_watch, stream, &accepted)).into_response())
        }
        (_, Some(RequestAnswer { status, body })) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
            Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
        }
        (Some(RequestSubject::Session(id)), None) => {
            let session = access.session(&id).await?;
            Ok((StatusCode::CREATED, Json(SessionView { session })).into_response())
        }
        (_, None) => {
            let message = "Idempotency-Key: the answer to its request was deleted together with its session";
            Err(ErrorInfo::new(ErrorCode::IdempotencyConflict, message).into())
        }
    }
}

/// Stores a successful JSON answer.
async fn record(api: &Api, key: RequestKey, response: Response) -> Result<Response, ApiError> {
    if !response.status().is_success() || !is_json(response.headers()) {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let failed = |error| ErrorInfo::new(ErrorCode::InternalError, format!("the answer cannot be stored: {error}"));
    let body = to_bytes(body, usize::MAX).await.map_err(failed)?;
    if body.len() <= MAX_ANSWER_BYTES {
        let text = String::from_utf8_lossy(&body).into_owned();
        let session_id = session_of(&text);
        let answer = RequestAnswer { status: parts.status.as_u16(), body: text };
        // The request has had its effect, so its answer is sent even if it cannot be stored.
        if let Err(error) = api.runtime.record_answer(key, answer, session_id).await {
            tracing::warn!(%error, "the answer to a keyed request is not stored");
        }
    }
    Ok(Response::from_parts(parts, Body::from(body)))
}

/// Returns the session that an answer names.
fn session_of(body: &str) -> Option<SessionId> {
    let answer: Value = serde_json::from_str(body).ok()?;
    let id = answer.get("session_id").or_else(|| answer.pointer("/session/session_id"))?;
    SessionId::parse(id.as_str()?).ok()
}
