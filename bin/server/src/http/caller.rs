//! The caller of a request, and access to the caller's own records.
//!
//! Every handler takes an [`Access`] and finds records through it; records of other users are
//! reported as missing. Architecture invariant: handlers read records by id only through this
//! module. The table in `soong::protocol::api::operation` declares who may use an endpoint at all.
//! Elsewhere: authentication (`server/guard.rs`); on the control socket, the caller is the owner of
//! the home.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::{FromRequestParts, MatchedPath},
    http::request::Parts,
};
use soong::{
    ErrorCode, ErrorInfo, Runtime,
    artifact::ArtifactOwner,
    protocol::{
        Permission, PermissionId, Question, QuestionId, RequestKey, Run, RunId, Session, SessionId,
        Trace, TraceId,
        api::{
            CLIENT_HEADER,
            operation::{AllowedCaller, EndpointEntry},
        },
    },
};
use tokio::sync::watch;

use super::{Api, GateGuard, error::ApiError};

/// User id of callers that name no user.
pub const LOCAL: &str = "local";

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// A client that may open the home's files: it may see and stop everything in the home. Its own
    /// runs belong to `local`.
    Operator,
    /// A user identified by a token; sees only their own records.
    User(Arc<str>),
}

impl Caller {
    /// Returns the user id for runs that the caller starts.
    pub fn uid(&self) -> &str {
        match self {
            Self::Operator => LOCAL,
            Self::User(uid) => uid,
        }
    }

    /// Returns the user whose records the caller may see; `None` if the caller may see all.
    pub fn visible_uid(&self) -> Option<String> {
        match self {
            Self::Operator => None,
            Self::User(uid) => Some(uid.to_string()),
        }
    }

    fn sees(&self, uid: &str) -> bool {
        match self {
            Self::Operator => true,
            Self::User(own) => **own == *uid,
        }
    }
}

/// Access of a handler to the runtime, limited to the records that the caller may see.
pub(crate) struct Access {
    api: Api,
    pub(super) caller: Caller,
    /// Name of the client, if the request has a [`CLIENT_HEADER`].
    client_name: Option<String>,
    /// The keyed request, if the request has an `Idempotency-Key`.
    request_key: Option<RequestKey>,
}

impl FromRequestParts<Api> for Access {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        // A request without a caller is rejected: the server must set it.
        let unknown = || ErrorInfo::new(ErrorCode::Unauthorized, "the request has no caller");
        let caller = parts
            .extensions
            .get::<Caller>()
            .cloned()
            .ok_or_else(unknown)?;
        let client_name = parts
            .headers
            .get(CLIENT_HEADER)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let request_key = parts.extensions.get::<RequestKey>().cloned();
        let access = Self {
            api: api.clone(),
            caller,
            client_name,
            request_key,
        };
        access.require_allowed_caller(parts)?;
        Ok(access)
    }
}

impl Access {
    /// Returns the access of a client in this process. It sees and may do everything.
    pub(super) fn of_operator(api: Api, client_name: Option<&str>) -> Self {
        Self {
            api,
            caller: Caller::Operator,
            client_name: client_name.map(str::to_owned),
            request_key: None,
        }
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.api.runtime
    }

    pub(super) fn api(&self) -> &Api {
        &self.api
    }

    /// Returns the name of the client, if it sent one.
    pub(super) fn client_name(&self) -> Option<&str> {
        self.client_name.as_deref()
    }

    /// Returns the keyed request, if the request has an `Idempotency-Key`.
    pub(super) fn request_key(&self) -> Option<&RequestKey> {
        self.request_key.as_ref()
    }

    /// Begins a request that changes something. The owner does not exit before the returned guard
    /// is dropped.
    pub(super) fn begin_change(&self) -> Result<GateGuard, ApiError> {
        self.api.begin_change()
    }

    /// Rejects a caller who may not use the endpoint of a request.
    fn require_allowed_caller(&self, parts: &Parts) -> Result<(), ApiError> {
        let path = parts
            .extensions
            .get::<MatchedPath>()
            .map(MatchedPath::as_str);
        let endpoint = path.and_then(|path| EndpointEntry::find(parts.method.as_str(), path));
        // Without a row in the table, nobody has decided who may call it.
        let allowed = endpoint.map_or(AllowedCaller::Operator, |endpoint| endpoint.caller);
        match allowed {
            AllowedCaller::Anyone | AllowedCaller::User => Ok(()),
            AllowedCaller::Operator => {
                self.require_operator(&format!("{} {}", parts.method, parts.uri.path()))
            }
        }
    }

    /// Rejects operations on the whole home, unless the caller is the user of the home.
    pub(super) fn require_operator(&self, what: &str) -> Result<(), ApiError> {
        match self.caller.uid() {
            LOCAL => Ok(()),
            uid => {
                let message = format!(
                    "{what}: this requires the token of user {LOCAL:?}, and the token belongs to {uid:?}"
                );
                Err(ErrorInfo::new(ErrorCode::Forbidden, message).into())
            }
        }
    }

    /// Rejects a body that names another user; returns the caller's user id.
    pub(super) fn uid(&self, given: Option<&str>) -> Result<String, ApiError> {
        match given {
            Some(other) if other != self.caller.uid() => {
                let message =
                    format!("uid: {other:?} is another user; omit it, or use that user's token");
                Err(ErrorInfo::new(ErrorCode::Forbidden, message).into())
            }
            _ => Ok(self.caller.uid().to_owned()),
        }
    }

    pub(super) async fn session(&self, id: &SessionId) -> Result<Session, ErrorInfo> {
        let found = self.runtime().sessions().get(id).await?;
        self.visible(
            found,
            |session| &session.uid,
            ErrorCode::SessionNotFound,
            "session",
            id.as_str(),
        )
    }

    pub(super) async fn trace(&self, id: &TraceId) -> Result<Trace, ErrorInfo> {
        let found = self.runtime().traces().get(id).await?;
        self.visible(
            found,
            |trace| &trace.uid,
            ErrorCode::TraceNotFound,
            "trace",
            id.as_str(),
        )
    }

    pub(super) async fn run(&self, id: &RunId) -> Result<Run, ErrorInfo> {
        let found = self.runtime().traces().run(id).await?;
        self.visible(
            found,
            |run| &run.uid,
            ErrorCode::RunNotFound,
            "run",
            id.as_str(),
        )
    }

    pub(super) async fn permission(&self, id: &PermissionId) -> Result<Permission, ErrorInfo> {
        let found = self.runtime().permissions().get(id).await?;
        self.in_session(
            &found.session_id,
            ErrorCode::PermissionNotFound,
            "permission",
            id.as_str(),
        )
        .await?;
        Ok(found)
    }

    pub(super) async fn question(&self, id: &QuestionId) -> Result<Question, ErrorInfo> {
        let found = self.runtime().questions().get(id).await?;
        self.in_session(
            &found.session_id,
            ErrorCode::QuestionNotFound,
            "question",
            id.as_str(),
        )
        .await?;
        Ok(found)
    }

    /// Returns the owner of artifact names: a session, or only the caller for `-`, which requires
    /// no session.
    pub(super) async fn artifact_owner(
        &self,
        session: &SessionId,
    ) -> Result<ArtifactOwner, ErrorInfo> {
        match session.as_str() {
            ArtifactOwner::NO_SESSION => Ok(ArtifactOwner::of_user(self.caller.uid())),
            _ => {
                let Session {
                    session_id, uid, ..
                } = self.session(session).await?;
                Ok(ArtifactOwner { session_id, uid })
            }
        }
    }

    async fn in_session(
        &self,
        session: &SessionId,
        code: ErrorCode,
        what: &str,
        id: &str,
    ) -> Result<(), ErrorInfo> {
        match self.session(session).await {
            Err(error) if error.code == ErrorCode::SessionNotFound => {
                Err(not_found(code, what, id))
            }
            other => other.map(drop),
        }
    }

    /// Returns a record that the caller may see; otherwise reports it as missing.
    fn visible<T>(
        &self,
        record: T,
        uid: impl FnOnce(&T) -> &str,
        code: ErrorCode,
        what: &str,
        id: &str,
    ) -> Result<T, ErrorInfo> {
        if self.caller.sees(uid(&record)) {
            Ok(record)
        } else {
            Err(not_found(code, what, id))
        }
    }
}

/// Returns the same error as the library does for a missing record.
fn not_found(code: ErrorCode, what: &str, id: &str) -> ErrorInfo {
    ErrorInfo::new(code, format!("there is no {what} {id}"))
}

/// Reports when a token is revoked while its reader has a stream open.
#[derive(Clone)]
pub struct TokenWatch(pub Option<watch::Receiver<bool>>);

impl TokenWatch {
    /// Waits until the token is revoked; never returns if it is not.
    pub(super) async fn revoked(&mut self) {
        if let Some(holds) = &mut self.0
            && holds.wait_for(|holds| !holds).await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl FromRequestParts<Api> for TokenWatch {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Infallible> {
        Ok(parts
            .extensions
            .get::<Self>()
            .cloned()
            .unwrap_or(Self(None)))
    }
}
