-- Whether tool calls may run (PERM-1). Who decides first writes the decision; the run takes it from here, and the call
-- runs only while its fingerprint is the one that was decided upon.
CREATE TABLE permission (
    permission_key INTEGER PRIMARY KEY,
    permission_id TEXT NOT NULL UNIQUE,
    run_key INTEGER NOT NULL,
    session_key INTEGER NOT NULL,
    tool_call_id TEXT NOT NULL,
    tool TEXT NOT NULL,
    arguments TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    demand TEXT NOT NULL,
    chain TEXT NOT NULL,
    status TEXT NOT NULL,
    decision TEXT,
    decided_by TEXT,
    reason TEXT,
    created_at INTEGER NOT NULL,
    decided_at INTEGER
) STRICT;
CREATE INDEX permission_of_run ON permission (run_key);
CREATE INDEX permission_of_session ON permission (session_key);
CREATE INDEX permission_pending ON permission (permission_key) WHERE status = 'pending';
