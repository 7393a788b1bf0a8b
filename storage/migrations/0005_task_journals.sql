-- Runs whose task journal, a file in the project, is not known to be complete (TASK-1).
--
-- The row comes with the event that begins the run, and goes when the file has its last line and is on disk.

CREATE TABLE task_journal (
    run_key INTEGER PRIMARY KEY,
    -- The event that began the run, on its trace's timeline: what the file tells begins there.
    event_id INTEGER NOT NULL,
    -- The goal tree as it stood then: a session that goes on brings older goals.
    goals TEXT NOT NULL
) STRICT;
