//! Bodies, queries and headers of the HTTP interface, as server and clients share them.

mod artifact;
mod error;
mod health;
mod permission;
mod question;
mod run;
mod session;
mod settings;
mod trace;

pub use self::{
    artifact::{ArtifactView, Artifacts, EditBody, EditView, Stored, Uploaded, Versions},
    error::{ErrorBody, ErrorDetail},
    health::Ready,
    permission::{CLIENT_HEADER, DecisionBody, PermissionQuery, Permissions},
    question::{AnswerBody, QuestionQuery, Questions},
    run::{Accepted, IfBusy, RunWithOutcome, SettingUpdate, StartBody},
    session::{
        ForkBody, HeadBody, HeadView, NewSessionBody, PermissionModeBody, SessionPage, SessionView,
    },
    settings::SettingsDigests,
    trace::{ERROR_FRAME, EventPage, KEEP_ALIVE_INTERVAL, Messages, TracePage, TraceView},
};

/// Header with the key of a request that has an effect. A request that is repeated with the same
/// key has no second one.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
