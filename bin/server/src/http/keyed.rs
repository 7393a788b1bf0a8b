//! Executes a POST request with an `Idempotency-Key` at most once. A client that has lost the
//! answer can repeat the request, and gets the first answer.
//!
//! A key belongs to a user. With another method, path or body it is an error. Only successful
//! answers are stored, so a request that failed can be repeated. A request that is repeated while
//! the first one is in progress waits for it.
//!
//! If the process ends before the answer is stored, a repeated request finds the run or session
//! that it has created. Requests that add children or upload files are recorded first, and are not
//! executed again. All other requests have the same effect when they are executed twice.
//!
//! Elsewhere: storing requests and answers (`soong::Runtime::keyed_request`).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use axum::{
    Json,
    body::{Body, Bytes, to_bytes},
    extract::{FromRequestParts, MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use memchr::memmem;
use serde_json::Value;
use sha2::{Digest, Sha256};
use soong::{
    ErrorCode, ErrorInfo,
    protocol::{
        KeyedRequest, RequestAnswer, RequestKey, RequestSubject, RunStatus, SessionId,
        api::{
            IDEMPOTENCY_KEY, SessionView,
            operation::{Endpoint, EndpointEntry, StartRun},
        },
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
pub(crate) const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Maximum length of a key, in bytes.
pub(super) const MAX_KEY_BYTES: usize = 255;
/// Upper bound of the length of a keyed body, in bytes: the body is held in memory. The limit of
/// JSON bodies applies if it is larger.
const MAX_BODY_BYTES: usize = 64 * 1_048_576;
/// Maximum length of an answer that is stored, in bytes.
const MAX_ANSWER_BYTES: usize = 4 * 1_048_576;

/// Mutex that the requests with one key take one after the other.
type KeyMutex = tokio::sync::Mutex<()>;

/// The keyed requests in progress: their mutexes, by user and hash of the key.
#[derive(Default)]
pub struct RequestsInProgress(Mutex<HashMap<(String, String), Weak<KeyMutex>>>);

impl RequestsInProgress {
    fn mutex_for(&self, key: &RequestKey) -> Arc<KeyMutex> {
        let mut mutexes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mutexes.retain(|_, mutex| mutex.strong_count() > 0);
        let mutex = mutexes
            .entry((key.uid.clone(), key.key_hash.clone()))
            .or_default();
        mutex.upgrade().unwrap_or_else(|| {
            let new = Arc::new(KeyMutex::new(()));
            *mutex = Arc::downgrade(&new);
            new
        })
    }
}

/// Executes a POST request with an `Idempotency-Key` at most once. Other requests are passed on.
pub(super) async fn execute_once(State(api): State<Api>, request: Request, next: Next) -> Response {
    let key = request.headers().get(IDEMPOTENCY_KEY).cloned();
    let caller = request.extensions().get::<Caller>().cloned();
    let (Some(key), Some(caller)) = (key, caller) else {
        return next.run(request).await;
    };
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    match read_keyed_request(&api, &key, &caller, request).await {
        // In a separate task: if the client disconnects, the answer is stored for its next attempt.
        // The owner does not exit before that.
        Ok((key, request)) => {
            let guard = match api.begin_change() {
                Ok(guard) => guard,
                Err(error) => return error.into_response(),
            };
            let executing = tokio::spawn(async move {
                let response = execute(&api, key, request, next).await;
                drop(guard);
                response
            });
            let failed = |error| {
                ErrorInfo::new(
                    ErrorCode::InternalError,
                    format!("the request did not finish: {error}"),
                )
            };
            executing
                .await
                .map_err(|error| ApiError::from(failed(error)))
                .into_response()
        }
        Err(error) => error.into_response(),
    }
}

/// Validates the key, and buffers the body.
async fn read_keyed_request(
    api: &Api,
    key: &HeaderValue,
    caller: &Caller,
    request: Request,
) -> Result<(RequestKey, Request), ApiError> {
    let key = key.as_bytes();
    if key.is_empty() || key.len() > MAX_KEY_BYTES || !key.iter().all(u8::is_ascii_graphic) {
        let message = format!(
            "Idempotency-Key: use 1 to {MAX_KEY_BYTES} visible ASCII characters, such as a UUID"
        );
        return Err(validation_error(message));
    }
    let (parts, body) = request.into_parts();
    let limit = api
        .limits
        .upload_bytes
        .min(MAX_BODY_BYTES)
        .max(api.limits.body_bytes);
    let body = read_body(body, limit).await?;
    let request_key = RequestKey {
        uid: caller.uid().to_owned(),
        key_hash: hash(&[key]),
        fingerprint: fingerprint(&parts, &body),
    };
    Ok((request_key, Request::from_parts(parts, Body::from(body))))
}

/// Returns the hash of what makes two requests the same.
fn fingerprint(parts: &Parts, body: &Bytes) -> String {
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let mut texts = vec![parts.method.as_str().as_bytes(), path.as_bytes()];
    match multipart_boundary(&parts.headers) {
        // Clients choose another boundary for each attempt.
        Some(boundary) => {
            let mut rest = &body[..];
            for position in memmem::find_iter(body, &boundary) {
                let start = body.len() - rest.len();
                texts.push(&body[start..position]);
                rest = &body[position + boundary.len()..];
            }
            texts.push(rest);
        }
        None => texts.push(body),
    }
    hash(&texts)
}

/// Returns the line that separates the parts of a `multipart/form-data` body.
fn multipart_boundary(headers: &HeaderMap) -> Option<Vec<u8>> {
    let content_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let boundary = multer::parse_boundary(content_type).ok()?;
    Some(format!("--{boundary}").into_bytes())
}

/// Returns the hash of these texts, in hexadecimal digits.
fn hash(texts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

async fn execute(
    api: &Api,
    key: RequestKey,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let mutex = api.requests_in_progress.mutex_for(&key);
    let _guard = mutex.lock().await;
    let stored = api.runtime.keyed_request(&key).await?;
    let Some(stored) = stored else {
        let is_recorded_first = is_recorded_first(&request);
        if is_recorded_first {
            api.runtime.begin_keyed_request(key.clone()).await?;
        }
        request.extensions_mut().insert(key.clone());
        let response = next.run(request).await;
        if is_recorded_first && !response.status().is_success() {
            // After an internal error it is unknown whether the request had its effect.
            if response.status() != StatusCode::INTERNAL_SERVER_ERROR
                && let Err(error) = api.runtime.withdraw_keyed_request(key).await
            {
                tracing::warn!(%error, "a keyed request that failed cannot be repeated");
            }
            return Ok(response);
        }
        return store_response(api, key, response).await;
    };
    if stored.fingerprint != key.fingerprint {
        let message =
            "Idempotency-Key: it was used for another request in the last 24 hours: use a new key";
        return Err(ErrorInfo::new(ErrorCode::IdempotencyConflict, message).into());
    }
    let mut response = replay(api, stored, request).await?;
    response
        .headers_mut()
        .insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

/// Returns whether a request is recorded before it is executed
/// ([`EndpointEntry::is_recorded_first`]).
fn is_recorded_first(request: &Request) -> bool {
    let Some(path) = request.extensions().get::<MatchedPath>() else {
        return false;
    };
    EndpointEntry::find(request.method().as_str(), path.as_str())
        .is_some_and(|endpoint| endpoint.is_recorded_first)
}

/// Returns the answer to a request that was executed before.
async fn replay(api: &Api, stored: KeyedRequest, request: Request) -> Result<Response, ApiError> {
    let (mut parts, _) = request.into_parts();
    let access = Access::from_request_parts(&mut parts, api).await?;
    let streams = parts.uri.path() == StartRun::PATH && wants_stream(&parts.headers);
    match (stored.subject, stored.answer) {
        (Some(RequestSubject::Run(id)), answer) if streams || answer.is_none() => {
            let run = access.run(&id).await?;
            let status = if run.status == RunStatus::Queued {
                "queued"
            } else {
                "started"
            };
            let accepted = accepted_record(&run, status);
            if !streams {
                return Ok((StatusCode::ACCEPTED, Json(accepted)).into_response());
            }
            let stream = access.runtime().sessions().events_from_run(&run).await?;
            // If the session was deleted before the stream was opened, its id may belong to another
            // user by now.
            access.run(&id).await?;
            // Infallible.
            let Ok(token_watch) = TokenWatch::from_request_parts(&mut parts, api).await;
            Ok((
                StatusCode::ACCEPTED,
                stream_after_start(&access, token_watch, stream, &accepted),
            )
                .into_response())
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
            let message = "Idempotency-Key: the answer to its request is not stored: its session was deleted, or the \
                           process ended before the answer was stored. Look at what the request changes, then use a \
                           new key if it had no effect";
            Err(ErrorInfo::new(ErrorCode::IdempotencyConflict, message).into())
        }
    }
}

/// Stores a successful JSON answer.
async fn store_response(
    api: &Api,
    key: RequestKey,
    response: Response,
) -> Result<Response, ApiError> {
    if !response.status().is_success() || !is_json(response.headers()) {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let failed = |error| {
        ErrorInfo::new(
            ErrorCode::InternalError,
            format!("the answer cannot be stored: {error}"),
        )
    };
    let body = to_bytes(body, usize::MAX).await.map_err(failed)?;
    if body.len() > MAX_ANSWER_BYTES {
        tracing::warn!(
            bytes = body.len(),
            "the answer to a keyed request is too large to be stored"
        );
    } else {
        let text = String::from_utf8_lossy(&body).into_owned();
        let session_id = session_of(&text);
        let answer = RequestAnswer {
            status: parts.status.as_u16(),
            body: text,
        };
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
    let id = answer
        .get("session_id")
        .or_else(|| answer.pointer("/session/session_id"))?;
    SessionId::parse(id.as_str()?).ok()
}
