//! Requests with an `Idempotency-Key`: a repeated request gets the answer of the first one and has
//! no effect.

use crate::{RunId, SessionId, Timestamp};

/// Identifies a keyed request: a user's key, and what was requested with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestKey {
    /// User that sent the request.
    pub uid: String,
    /// Hash of the key, in hexadecimal digits.
    pub key_hash: String,
    /// Hash of the method, the path and the body, in hexadecimal digits. Another request with the
    /// same key has another one.
    pub fingerprint: String,
}

/// The run or session that a keyed request has created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestSubject {
    /// A run was started.
    Run(RunId),
    /// A session was created.
    Session(SessionId),
}

/// The answer to a keyed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestAnswer {
    /// HTTP status.
    pub status: u16,
    /// JSON body.
    pub body: String,
}

/// A keyed request as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedRequest {
    /// See [`RequestKey::fingerprint`].
    pub fingerprint: String,
    /// The run or session that the request has created. It is stored together with the request.
    pub subject: Option<RequestSubject>,
    /// The answer. `None` if the process ended before it was stored, or if the session that it
    /// concerns was deleted.
    pub answer: Option<RequestAnswer>,
    /// Time of the request, or of its answer.
    pub at: Timestamp,
}

impl KeyedRequest {
    /// Time for which a keyed request is stored, in milliseconds: 24 hours.
    pub const LIFETIME_MS: u64 = 24 * 60 * 60 * 1_000;
}
