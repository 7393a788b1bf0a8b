//! Soong: an actor-model multi-agent orchestrator.
//!
//! A caller starts a run in a session. The run plans goals, lets child runs explore, work and
//! evaluate, stores its results as artifacts, and reports every step on durable event streams.
//! Everything acknowledged is on disk; everything running is an actor under a supervisor.
//!
//! ```no_run
//! # async fn example() -> Result<(), soong::ErrorInfo> {
//! use soong::{RunRequest, Runtime};
//!
//! let runtime = Runtime::builder().home("/tmp/soong-home").project_dir(".").offline().build().await?;
//! let run = runtime.start(RunRequest::new("What is in this project?")).await?;
//! println!("{}", run.wait().await?.output);
//! runtime.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! Start with [`Runtime`]; the module [`embedding`] is a guide. [`tool::Tool`] and [`model::Model`]
//! are the traits to implement.
//!
//! # Features
//!
//! | Feature | Default | Adds |
//! |---|---|---|
//! | `openai` | yes | providers with the API of OpenAI, over HTTP |
//! | `sandbox` | yes | commands confined by Landlock, mounts and seccomp (Linux) |
//! | `tokenizer` | yes | exact token counts for models of OpenAI: 1 MB of vocabulary |
//! | `web-tools` | | the tools `webfetch` and `web_search` |
//! | `mcp` | | tools of MCP servers |
//! | `s3`, `gcs` | | artifacts in a bucket |
//! | `openapi` | | `utoipa` schemas of the types that clients see |
//! | `testing` | | a scripted model: `soong::testing` |
//!
//! A build without features compiles 193 crates, one with the default features 247. A program that
//! only starts a run and waits for it, without features, is a stripped binary of 25 MB (Cargo's
//! `release` profile).

mod actor_base;
mod actor_tree;
pub mod artifact;
mod backup;
mod budget;
pub mod builtin_tools;
pub mod callback;
mod clock;
mod context;
mod disk;
pub mod embedding;
mod events;
mod fair_queue;
mod fault;
mod front_matter;
mod gateway;
mod gateways;
mod home_file;
mod hook;
mod journal;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(not(feature = "mcp"))]
#[path = "mcp/disabled.rs"]
mod mcp;
pub mod memory;
mod message_files;
mod metrics;
pub mod model;
mod model_facts;
pub mod offline;
pub mod permission;
pub mod preset;
mod project_instructions;
mod run;
mod runtime;
mod session;
pub mod skill;
mod store_reader;
mod suggestion;
pub mod task_journal;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tool;

pub use actor_tree::{
    ActorKind, ActorRun, ActorView, BudgetShare, GatewayView, RunEnd, TreeEvent, TreeWatch,
};
pub use backup::{BackupReport, MissingFile, backup};
pub use events::{EventStream, LiveDelta, StreamItem, UnrecordedRun};
#[cfg(any(test, feature = "testing"))]
pub use fault::{DifferenceHook, FaultHook};
pub use home_file::HomeFileError;
pub use hook::{HookCount, count_hooks};
pub use metrics::{GatewayMetrics, Metrics, SubscriberMetrics};
pub use project_instructions::{git_branch, repository_notes};
pub use run::RunOutcome;
pub use runtime::{
    Artifacts, Child, Children, Fork, HeadSwitched, InterruptedRuns, Memory, Permissions,
    Questions, RecoveryPolicy, RunFilter, RunHandle, RunRequest, RunSetting, Runtime,
    RuntimeBuilder, RuntimeInfo, SessionSpec, Sessions, Setting, SettingUpdates, Traces, Tree,
};
pub use session::{SessionCleanup, SessionCleanupFailure, SessionCleanupReport};
pub use soong_protocol::{
    self as protocol, Budget, Config, ErrorCode, ErrorInfo, GivenMessage, RunOptions,
    RunPermissions,
};
pub use soong_sandbox::{is_tool_process, protect_owner};
pub use soong_storage::{
    fault::{FaultComponent, FaultPlan, FaultPoint},
    store::{
        MessagePath, Page, PermissionFilter, QuestionFilter, SessionFilter, TraceFilter,
        UsageFilter,
    },
    writer::BATCH_SIZE_BUCKETS,
};
pub use soong_text::{Environment, Redactor};
pub use soong_tool::ChildSpec;
pub use {futures::future::BoxFuture, schemars, serde_json};
