//! Task journals: the plan of each orchestrator run as a file in its project (TASK-1, TASK-2).
//!
//! Every user's orchestrator run that a model leads has one, from its beginning to its end:
//! `<project>/.soong-agent/tasks/<session_id>/<name>.wal.jsonl`, a JSON object a line. It is a projection of the
//! database, written after the commit, and complete enough to rebuild the goal tree alone ([`goal_tree`]).
//!
//! Owns the files: nobody else writes them. A row in the database says of which runs the file is not known to be
//! complete; it comes with the event that begins the run, and goes when the file is on disk. So whatever dies,
//! the home's next owner knows what is left to do, and deleted files are not brought back.
//!
//! `line` and `projection` decide, free of I/O; `place` and `file` know the disk; `writer` is the task beside each
//! run; `shelf` lists and cleans up, without a home's owner.

mod file;
mod line;
mod place;
mod projection;
mod shelf;
mod writer;

pub use line::{TaskCreated, TaskEvent, TaskLine, TaskStatus};
pub use place::TaskPlace;
pub use projection::goal_tree;
pub use shelf::{
    ProjectTask, TaskCandidate, TaskCleanup, TaskCleanupFailure, TaskCleanupReport, clean_up_tasks, project_tasks,
};
pub(crate) use writer::TaskJournals;
