//! Task journals: the plan of each orchestrator run as a file in its project (TASK-1, TASK-2).
//!
//! Every user's orchestrator run that a model drives has one, from its start to its end:
//! `<project>/.soong-agent/tasks/<session_id>/<name>.wal.jsonl`, with one JSON object per line. It
//! is a projection of the database, written after each commit, and sufficient to rebuild the goal
//! tree ([`goal_tree`]).
//!
//! No other code writes these files. A row in the database marks a run whose file is not known to
//! be complete. The row is written with the event that starts the run, and is deleted when the
//! complete file is durable. So after any crash the next owner of the home knows which files to
//! complete, and does not restore files that were deleted.
//!
//! - `line` and `projection` are pure.
//! - `place` and `file` access the disk.
//! - `writer` runs one task per run.
//! - `source` lists and deletes journals, without an owner of the home.

mod file;
mod line;
mod list;
mod location;
mod projection;
mod writer;

pub use line::{TaskCreated, TaskEvent, TaskLine, TaskStatus};
pub use list::{
    ProjectTask, TaskCandidate, TaskCleanup, TaskCleanupFailure, TaskCleanupReport, clean_up_tasks,
    project_tasks,
};
pub use location::TaskPlace;
pub use projection::goal_tree;
pub(crate) use writer::TaskJournals;
