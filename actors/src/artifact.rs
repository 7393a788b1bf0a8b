//! Artifacts: the single interface for tools, programs and commands (ART-14).
//!
//! Products are stored immediately. Documents are edited in the working set of their session, and
//! become versions when the run that edited them ends.
//!
//! The implementation: `store.rs` (bytes and registry), `change.rs` and `working_set/` (edits),
//! `store/flush.rs` (turns edits into versions), `reader.rs` (reads a home without owning it).
//!
//! Elsewhere: the tools that models call (`builtin_tools/artifact.rs`), HTTP, the command line.

mod change;
mod cleanup;
mod document;
mod inventory;
mod reader;
mod service;
mod store;
mod supervisor;
mod working_set;

pub use reader::ArtifactReader;
pub(crate) use service::ArtifactHandle;
pub use soong_protocol::{BusySession, Candidate, Cleanup, CleanupFailure, CleanupReport};
pub(crate) use store::ArtifactStore;
pub(crate) use store::copy::registration_writes;
pub(crate) use store::restore::RestorePlan;
pub(crate) use supervisor::ArtifactStoreSupervisorActor;
pub(crate) use working_set::ArtifactStoreSupervisorMsg;

pub use soong_match as matcher;
use soong_protocol::{ErrorCode, ErrorInfo};
pub use soong_tool::artifact::{
    ArtifactOwner, ArtifactService, Change, ChangeCondition, Content, EditRequest, Edited,
    IfExists, Loaded, NamedArtifacts, Save, VersionSet, is_text,
};

/// Name of the plan that a model maintains for itself. The plan is shown in full in every turn
/// (ART-8).
pub const PLAN: &str = "task_plan";

/// Returns the error for a key without an artifact.
pub(crate) fn not_found(key: &str) -> ErrorInfo {
    let message =
        format!("there is no artifact {key:?}: list the artifacts to see the existing ones");
    ErrorInfo::new(ErrorCode::ArtifactNotFound, message)
}
