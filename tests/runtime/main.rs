//! Black-box test suites over the public API, one module per behavior.

#![allow(unreachable_pub, reason = "what the suites share is public to them")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

#[path = "../support/mod.rs"]
mod support;

mod actor_tree;
mod artifact_crashes;
mod artifact_prompts;
mod artifact_scopes;
mod artifacts;
mod backup;
mod budgets;
mod callbacks;
mod calls;
mod cancelling;
mod clocks;
mod compaction;
mod conformance;
mod corruption;
mod debug_artifacts;
mod deletion;
mod documents;
mod driven;
mod embedding;
mod fallback;
mod file_changes;
mod fork;
mod gateway;
mod histories;
mod homes;
mod hooks;
mod hostile;
mod many_children;
mod mcp;
mod memory;
mod message_files;
mod naming;
mod orchestration;
mod passivation;
mod permission_modes;
mod permissions;
mod prompt_cache;
mod provider;
mod questions;
mod queued_children;
mod rebuilt_states;
mod recovery;
mod reflection_before_summary;
mod repeated_calls;
mod rewind;
mod secret_leaks;
mod server_facts;
mod session_tables;
mod sessions;
mod storage;
mod storage_faults;
mod streams;
mod stuck;
mod sub_agents;
mod sub_traces;
mod supervision;
mod task_journals;
mod text_calls;
mod tool_call_pairing;
mod tools_on_the_tree;
mod unclear_commits;
mod unexecuted_calls;
