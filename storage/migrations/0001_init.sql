-- Integer keys inside; text ids stand only in the rows of sessions, traces and runs (DUR-2b).
-- Whatever changes with every batch lies apart from long texts, so that a commit rewrites small
-- rows on few pages: run / run_state, trace / trace_state. A cost of NULL is unknown.

CREATE TABLE session (
    session_key INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    name TEXT,
    uid TEXT NOT NULL,
    project_dir TEXT NOT NULL,
    last_session_seq INTEGER NOT NULL,
    -- Where its events lie among all: bounds the search for them.
    first_lsn INTEGER NOT NULL,
    last_lsn INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE trace (
    trace_key INTEGER PRIMARY KEY,
    trace_id TEXT NOT NULL UNIQUE,
    session_key INTEGER NOT NULL,
    parent_trace_key INTEGER,
    parent_goal_id TEXT,
    run_mode TEXT NOT NULL,
    agent_type TEXT NOT NULL,
    model TEXT NOT NULL,
    name TEXT NOT NULL,
    uid TEXT NOT NULL,
    task TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX trace_of_session ON trace (session_key);
CREATE INDEX trace_of_parent ON trace (parent_trace_key) WHERE parent_trace_key IS NOT NULL;

CREATE TABLE trace_state (
    trace_key INTEGER PRIMARY KEY,
    status TEXT NOT NULL,
    end_reason TEXT,
    live_runs INTEGER NOT NULL,
    last_sequence INTEGER NOT NULL,
    head_sequence INTEGER NOT NULL,
    last_event_id INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    cost_nanos INTEGER,
    duration_ms INTEGER NOT NULL,
    completed_at INTEGER,
    result_summary TEXT,
    error_message TEXT
) STRICT;

CREATE TABLE run (
    run_key INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    trace_key INTEGER NOT NULL,
    session_key INTEGER NOT NULL,
    parent_run_key INTEGER,
    parent_goal_id TEXT,
    depth INTEGER NOT NULL,
    mode TEXT NOT NULL,
    uid TEXT NOT NULL,
    task TEXT NOT NULL,
    settings TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX run_of_trace ON run (trace_key);
CREATE INDEX run_of_parent ON run (parent_run_key) WHERE parent_run_key IS NOT NULL;

CREATE TABLE run_state (
    run_key INTEGER PRIMARY KEY,
    session_key INTEGER NOT NULL,
    status TEXT NOT NULL,
    end_reason TEXT,
    turn INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL,
    cost_nanos INTEGER,
    duration_ms INTEGER NOT NULL,
    started_at INTEGER,
    completed_at INTEGER,
    epoch INTEGER NOT NULL,
    append_number INTEGER NOT NULL,
    last_run_seq INTEGER NOT NULL,
    error TEXT
) STRICT;
CREATE INDEX run_live ON run_state (session_key) WHERE status IN ('queued', 'running', 'waiting');

-- No text ids and one index only: this table takes most of the writes.
CREATE TABLE event (
    lsn INTEGER PRIMARY KEY,
    trace_key INTEGER NOT NULL,
    event_id INTEGER NOT NULL,
    run_key INTEGER,
    run_seq INTEGER NOT NULL,
    session_key INTEGER NOT NULL,
    session_seq INTEGER NOT NULL,
    ts INTEGER NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (trace_key, event_id)
) STRICT;

CREATE TABLE message (
    message_key INTEGER PRIMARY KEY,
    trace_key INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    parent_sequence INTEGER,
    role TEXT NOT NULL,
    goal_id TEXT,
    partial INTEGER NOT NULL,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    cost_nanos INTEGER,
    duration_ms INTEGER,
    created_at INTEGER NOT NULL,
    tool_call_id TEXT,
    finish_reason TEXT,
    description TEXT NOT NULL,
    content TEXT NOT NULL,
    reasoning TEXT,
    tool_calls TEXT,
    UNIQUE (trace_key, sequence)
) STRICT;

-- Only traces with goals have a row; the mission of the others is their task.
CREATE TABLE goal_tree (
    trace_key INTEGER PRIMARY KEY,
    current_id TEXT,
    body TEXT NOT NULL
) STRICT;

-- The key keeps the order of first appearance.
CREATE TABLE collaborator (
    collaborator_key INTEGER PRIMARY KEY,
    trace_key INTEGER NOT NULL,
    name TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (trace_key, name)
) STRICT;

CREATE TABLE child_result (
    run_key INTEGER PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;

CREATE TABLE artifact (
    artifact_key INTEGER PRIMARY KEY,
    artifact_id TEXT NOT NULL UNIQUE,
    -- Whose it is: a session's or a user's.
    session_key INTEGER,
    uid TEXT,
    name TEXT NOT NULL,
    title TEXT NOT NULL,
    filename TEXT NOT NULL,
    content_type TEXT NOT NULL,
    size INTEGER NOT NULL,
    current_version INTEGER NOT NULL,
    source TEXT NOT NULL,
    provenance TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CHECK ((session_key IS NULL) <> (uid IS NULL))
) STRICT;
CREATE UNIQUE INDEX artifact_of_session ON artifact (session_key, name) WHERE session_key IS NOT NULL;
CREATE UNIQUE INDEX artifact_of_user ON artifact (uid, name) WHERE uid IS NOT NULL;

CREATE TABLE artifact_version (
    artifact_key INTEGER NOT NULL,
    version INTEGER NOT NULL,
    size INTEGER NOT NULL,
    update_type TEXT NOT NULL,
    source TEXT NOT NULL,
    provenance TEXT NOT NULL,
    path TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (artifact_key, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE blob_intent (
    path TEXT PRIMARY KEY,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
