//! Black-box test suites over the public API, one module per behavior.

#![allow(unreachable_pub, reason = "what the suites share is public to them")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

#[path = "suite/observatory.rs"]
mod actor_tree;
#[path = "suite/artifact_crashes.rs"]
mod artifact_crashes;
#[path = "suite/artifact_prompts.rs"]
mod artifact_prompts;
#[path = "suite/artifact_scopes.rs"]
mod artifact_scopes;
#[path = "suite/artifacts.rs"]
mod artifacts;
#[path = "suite/backup.rs"]
mod backup;
#[path = "suite/budgets.rs"]
mod budgets;
#[path = "suite/canaries.rs"]
mod canaries;
#[path = "suite/cancelling.rs"]
mod cancelling;
#[path = "suite/clocks.rs"]
mod clocks;
#[path = "suite/compaction.rs"]
mod compaction;
#[path = "suite/damage.rs"]
mod damage;
#[path = "suite/deletion.rs"]
mod deletion;
#[path = "suite/documents.rs"]
mod documents;
#[path = "suite/driven.rs"]
mod driven;
#[path = "suite/embedding.rs"]
mod embedding;
#[path = "suite/fork.rs"]
mod fork;
#[path = "suite/gateway.rs"]
mod gateway;
#[path = "suite/handed_out.rs"]
mod handed_out;
#[path = "suite/histories.rs"]
mod histories;
#[path = "suite/homes.rs"]
mod homes;
#[path = "suite/hooks.rs"]
mod hooks;
#[path = "suite/hostile.rs"]
mod hostile;
#[path = "suite/many_children.rs"]
mod many_children;
#[path = "suite/mcp.rs"]
mod mcp;
#[path = "suite/memory.rs"]
mod memory;
#[path = "suite/orchestration.rs"]
mod orchestration;
#[path = "suite/pairing.rs"]
mod pairing;
#[path = "suite/passivation.rs"]
mod passivation;
#[path = "suite/people.rs"]
mod people;
#[path = "suite/permissions.rs"]
mod permissions;
#[path = "suite/provider.rs"]
mod provider;
#[path = "suite/recovery.rs"]
mod recovery;
#[path = "suite/rewind.rs"]
mod rewind;
#[path = "suite/session_tables.rs"]
mod session_tables;
#[path = "suite/sessions.rs"]
mod sessions;
#[path = "suite/storage.rs"]
mod storage;
#[path = "suite/storage_faults.rs"]
mod storage_faults;
#[path = "suite/streams.rs"]
mod streams;
#[path = "suite/stuck.rs"]
mod stuck;
#[path = "suite/sub_agents.rs"]
mod sub_agents;
#[path = "suite/supervision.rs"]
mod supervision;
#[path = "suite/task_journals.rs"]
mod task_journals;
#[path = "suite/unclear_commits.rs"]
mod unclear_commits;
