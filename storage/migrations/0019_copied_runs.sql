-- The runs that wrote the messages of a copy, as they were when it was made (storage/src/sqlite/fork.rs).
CREATE TABLE copied_run (
    trace_key INTEGER NOT NULL,
    -- The first copied message of the run.
    first INTEGER NOT NULL,
    mode TEXT NOT NULL,
    task TEXT NOT NULL,
    settings TEXT NOT NULL,
    PRIMARY KEY (trace_key, first)
) STRICT, WITHOUT ROWID;
