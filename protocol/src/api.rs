//! Bodies, queries and headers of the HTTP interface, as server and clients share them.

mod artifact;
mod cleanup;
mod error;
mod health;
mod home;
pub mod operation;
mod permission;
mod question;
mod run;
mod session;
mod settings;
mod trace;
mod tree;
mod usage;

pub use self::{
    artifact::{
        ArtifactView, Artifacts, EditBody, EditView, ExportQuery, Format, Stored, UPLOAD_NAME,
        Uploaded, VersionQuery, Versions,
    },
    cleanup::{Age, ArtifactCleanupBody, TaskCleanupBody},
    error::{ErrorBody, ErrorDetail},
    health::{Live, Ready},
    home::{Experiences, PresetList, PresetView, SkillList, SkillView},
    permission::{CLIENT_HEADER, DecisionBody, PermissionQuery, Permissions},
    question::{AnswerBody, QuestionQuery, Questions},
    run::{
        Accepted, CallQuery, ChildrenBody, ChildrenView, IfBusy, ReflectBody, RunWithOutcome,
        StartBody,
    },
    session::{
        ForkBody, HeadBody, HeadView, NewSessionBody, PageQuery, PermissionModeBody, SessionPage,
        SessionQuery, SessionView,
    },
    settings::SettingsDigests,
    trace::{
        ERROR_FRAME, EventPage, EventQuery, KEEP_ALIVE_INTERVAL, MessageQuery, Messages, PathName,
        TracePage, TraceQuery, TraceView,
    },
    tree::Killed,
    usage::UsageQuery,
};

/// Header with the key of a request that has an effect. A request that is repeated with the same
/// key has no second one.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
