//! Data types of Soong that the runtime, its store and its clients share.
//!
//! Architecture invariant: this crate contains data only. It uses no async runtime, no actors and
//! no SQL, does not read the clock or the environment, and does no I/O. All decisions in it (ids,
//! goal changes, status transitions) depend only on their arguments.

mod agent;
pub mod api;
mod artifact;
mod budget;
mod child_mode;
mod cleanup;
mod collaborator;
mod config;
mod content;
mod effort;
mod error;
mod event;
mod event_macro;
mod experience;
mod file_change;
mod goal;
mod id;
mod keyed_request;
mod level;
mod message;
#[cfg(feature = "openapi")]
mod openapi;
mod permission;
mod prompt_changes;
mod provider_data;
mod question;
mod run;
mod session;
mod stream;
mod sub_agent;
mod time;
mod tool;
mod trace;
pub mod tree;
mod usage;
mod write;

pub use agent::{Preset, SMALL_PRESET, SMALL_WINDOW_TOKENS, builtin_presets};
pub use artifact::{
    Artifact, ArtifactName, ArtifactNameError, ArtifactRef, ArtifactScope, ArtifactSnapshot,
    ArtifactSource, ArtifactVersion, DocumentEdit, EffectId, FlushFailure, FlushReport, MatchLayer,
    Provenance, RefKind, Splice, USER_PREFIX, UpdateType,
};
pub use budget::{Budget, BudgetDimension};
pub use child_mode::ChildMode;
pub use cleanup::{BusySession, Candidate, Cleanup, CleanupFailure, CleanupReport};
pub use collaborator::{Collaborator, CollaboratorKind, CollaboratorStatus};
pub use config::{
    AgentsConfig, ArtifactsConfig, BashConfig, ConditionalFallback, Config, ConfigError,
    ConfigSetting, ContextConfig, Durability, FallbackConfig, FallbackReason, HooksConfig,
    McpConfig, MemoryConfig, ModelConfig, ModelOverride, NetworkPolicy, PackageCache,
    PermissionsConfig, PresetConfig, PriceConfig, Provider, RecoveryMode, RememberPolicy,
    RetryConfig, RuntimeConfig, SearchProvider, ServerConfig, StorageConfig, ToolsConfig,
    WebSearchConfig,
};
pub use content::{ContentPart, InlineFile, InputKind, MessageContent, PartFile, media_type};
pub use effort::Effort;
pub use error::{ErrorCode, ErrorInfo};
pub use event::{
    AnswerCheck, ArtifactEvent, BudgetEvent, ContextEvent, Delta, EndedModelCall, Event,
    EventDraft, EventRecord, HookEvent, MemoryEvent, MessageEvent, ModelEvent, PermissionEvent,
    RunEvent, SubAgentEvent, ToolEvent,
};
pub use experience::{Experience, Metrics, Tags};
pub use file_change::{FileChange, PreviousContent};
pub use goal::{
    AffectedGoal, AgentCallMode, Goal, GoalChanges, GoalError, GoalEvent, GoalKind, GoalStatus,
    GoalTree, SubTraceMetadata,
};
pub use id::{
    ArtifactId, ExperienceId, GoalId, IdError, PermissionId, QuestionId, RunId, SessionId, TraceId,
};
pub use keyed_request::{KeyedRequest, RequestAnswer, RequestKey, RequestSubject};
pub use level::Level;
pub use message::{Covers, Message, MessageOrigin, Role, ToolCall};
pub use permission::{
    AccessRequest, ChainLink, Decision, Permission, PermissionDecision, PermissionMode,
    PermissionStatus, Scope,
};
pub use prompt_changes::{OmittedGoal, PromptChanges, PromptRebuild};
pub use provider_data::{ModelSource, ProviderData, ProviderItem};
pub use question::{Question, QuestionStatus};
pub use run::{
    EndReason, GivenMessage, Reflection, Run, RunMode, RunOptions, RunPermissions, RunSetting,
    RunSettings, RunStatus, Setting, SettingUpdates, milliseconds,
};
pub use session::{Session, SessionKind};
pub use stream::{LiveDelta, StreamItem, UnrecordedRun};
pub use sub_agent::ChildResult;
pub use time::Timestamp;
pub use tool::{NETWORK_TAG, ToolEffect, ToolSpec};
pub use trace::{Trace, TraceContext, TraceMode, TraceStatus};
pub use usage::{
    LongPrices, ModelCallKind, OpenModelCall, Prices, Stats, StatsPair, Usage, UsageBy, UsageOf,
    UsageReport, UsageRow, UsageSum, Usd,
};

pub use write::{
    ArtifactWrite, BlobWrite, ConversationPoint, NewArtifactCopy, NewDocumentVersion, NewEdit,
    NewFork, NewSession, NewTrace, NewVersion, PermissionWrite, RequestWrite, RunWrite,
    SessionWrite, TraceWrite, Write,
};

/// Returns whether serde should skip a counter.
fn is_zero(count: &u64) -> bool {
    *count == 0
}
