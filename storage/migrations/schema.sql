-- The schema that all migrations together create, with their comments. New databases are created from it.
-- To change it, add a migration: a test of sqlite/migrate.rs prints the statements that must then stand here.

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
, removal TEXT CHECK (removal IN ('files', 'rows')), slug TEXT, incarnation INTEGER NOT NULL DEFAULT 1, event_base INTEGER NOT NULL DEFAULT 0) STRICT;
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
, model_calls INTEGER NOT NULL DEFAULT 0, tool_calls INTEGER NOT NULL DEFAULT 0, cache_write_tokens INTEGER NOT NULL DEFAULT 0) STRICT;
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
, cancel_requested INTEGER NOT NULL DEFAULT 0, model_calls INTEGER NOT NULL DEFAULT 0, tool_calls INTEGER NOT NULL DEFAULT 0, usage_key INTEGER, cache_write_tokens INTEGER NOT NULL DEFAULT 0, open_model_calls TEXT, tools_key INTEGER) STRICT;
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
    data TEXT NOT NULL, changes_goals INTEGER NOT NULL DEFAULT 0,
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
    tool_calls TEXT, long_term_memory TEXT, output_once INTEGER NOT NULL DEFAULT 0, lsn INTEGER NOT NULL DEFAULT 0, side_branch INTEGER NOT NULL DEFAULT 0, prompt_key INTEGER, parts TEXT, provider_data TEXT, context_update TEXT, origin TEXT, prompt_changes TEXT,
    UNIQUE (trace_key, sequence)
) STRICT;
CREATE TABLE goal_tree (
    trace_key INTEGER PRIMARY KEY,
    current_id TEXT,
    body TEXT NOT NULL
) STRICT;
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
CREATE TABLE artifact_version (
    artifact_key INTEGER NOT NULL,
    version INTEGER NOT NULL,
    size INTEGER NOT NULL,
    update_type TEXT NOT NULL,
    source TEXT NOT NULL,
    provenance TEXT NOT NULL,
    path TEXT NOT NULL,
    created_at INTEGER NOT NULL, content_type TEXT NOT NULL DEFAULT '', lsn INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (artifact_key, version)
) STRICT, WITHOUT ROWID;
CREATE TABLE blob_intent (
    path TEXT PRIMARY KEY,
    at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE "artifact" (
    artifact_key INTEGER PRIMARY KEY,
    artifact_id TEXT NOT NULL UNIQUE,
    -- Whose it is: a session's or a user's.
    session_key INTEGER,
    uid TEXT,
    -- Absent for captured products.
    name TEXT,
    title TEXT NOT NULL,
    filename TEXT NOT NULL,
    content_type TEXT NOT NULL,
    size INTEGER NOT NULL,
    current_version INTEGER NOT NULL,
    stored_version INTEGER NOT NULL,
    source TEXT NOT NULL,
    debug INTEGER NOT NULL,
    provenance TEXT NOT NULL,
    summary TEXT,
    metadata TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, withdrawn TEXT, copied_from TEXT,
    CHECK ((session_key IS NULL) <> (uid IS NULL)),
    CHECK (stored_version <= current_version)
) STRICT;
CREATE UNIQUE INDEX artifact_of_session ON artifact (session_key, name) WHERE session_key IS NOT NULL;
CREATE UNIQUE INDEX artifact_of_user ON artifact (uid, name) WHERE uid IS NOT NULL;
CREATE TABLE document_edit (
    edit_key INTEGER PRIMARY KEY,
    artifact_key INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    -- Its place among the events: those with a smaller lsn came before it.
    lsn INTEGER NOT NULL,
    trace_key INTEGER NOT NULL,
    run_key INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    tool_call_id TEXT NOT NULL,
    update_type TEXT NOT NULL,
    start INTEGER NOT NULL,
    removed INTEGER NOT NULL,
    inserted TEXT NOT NULL,
    old TEXT,
    outcome TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (artifact_key, revision)
) STRICT;
CREATE INDEX edit_of_run ON document_edit (run_key, turn);
CREATE INDEX session_removal ON session (session_key) WHERE removal IS NOT NULL;
CREATE TABLE deleted_lsn (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    lsn INTEGER NOT NULL
) STRICT;
CREATE TABLE path_range (
    trace_key INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER,
    PRIMARY KEY (trace_key, first)
) STRICT, WITHOUT ROWID;
CREATE TABLE boundary (
    trace_key INTEGER NOT NULL,
    next INTEGER NOT NULL,
    summary INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    system INTEGER,
    request INTEGER,
    PRIMARY KEY (trace_key, next, summary)
) STRICT, WITHOUT ROWID;
CREATE TABLE linked_trace (
    trace_key INTEGER NOT NULL,
    linked_key INTEGER NOT NULL,
    goal_id TEXT,
    PRIMARY KEY (trace_key, linked_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX linked_to ON linked_trace (linked_key);
CREATE INDEX edit_of_trace ON document_edit (trace_key, lsn);
CREATE INDEX artifact_dirty ON artifact (session_key) WHERE current_version > stored_version;
CREATE TABLE task_journal (
    run_key INTEGER PRIMARY KEY,
    -- The event that began the run, on its trace's timeline: what the file tells begins there.
    event_id INTEGER NOT NULL,
    -- The goal tree as it stood then: a session that goes on brings older goals.
    goals TEXT NOT NULL
) STRICT;
CREATE TABLE question (
    question_key INTEGER PRIMARY KEY,
    question_id TEXT NOT NULL UNIQUE,
    run_key INTEGER NOT NULL,
    session_key INTEGER NOT NULL,
    question TEXT NOT NULL,
    recipient TEXT,
    status TEXT NOT NULL,
    answer TEXT,
    created_at INTEGER NOT NULL,
    decided_at INTEGER
) STRICT;
CREATE INDEX question_of_run ON question (run_key);
CREATE INDEX question_of_session ON question (session_key);
CREATE INDEX question_pending ON question (question_key) WHERE status = 'pending';
CREATE INDEX run_live ON run_state (session_key) WHERE status = 'queued' OR status = 'running' OR status = 'waiting';
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
CREATE TABLE usage_sum (
    usage_key INTEGER PRIMARY KEY,
    uid TEXT NOT NULL,
    day INTEGER NOT NULL,
    model TEXT NOT NULL,
    runs INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost_nanos INTEGER NOT NULL,
    -- Runs that used tokens without a known price.
    runs_without_price INTEGER NOT NULL,
    estimated_runs INTEGER NOT NULL,
    model_calls INTEGER NOT NULL,
    tool_calls INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    UNIQUE (uid, day, model)
) STRICT;
CREATE INDEX run_started ON run_state (started_at) WHERE started_at IS NOT NULL;
CREATE INDEX session_of_user ON session (uid) WHERE uid <> 'local';
CREATE INDEX trace_of_user ON trace (uid) WHERE uid <> 'local';
CREATE INDEX trace_unsuccessful ON trace_state (status, trace_key) WHERE status = 'failed' OR status = 'stopped';
CREATE INDEX event_of_goals ON event (trace_key, event_id) WHERE changes_goals;
CREATE TABLE prompt (
    prompt_key INTEGER PRIMARY KEY,
    session_key INTEGER NOT NULL,
    -- SHA-256 of the content.
    hash BLOB NOT NULL,
    content TEXT NOT NULL,
    UNIQUE (session_key, hash)
) STRICT;
CREATE INDEX session_of_slug ON session (slug) WHERE slug IS NOT NULL;
CREATE TABLE deleted_session (
    -- The first 16 bytes of the SHA-256 of the id: the id itself is deleted.
    hash BLOB PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    -- The last number of an event of the session.
    last_session_seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE copied_run (
    trace_key INTEGER NOT NULL,
    -- The first copied message of the run.
    first INTEGER NOT NULL,
    mode TEXT NOT NULL,
    task TEXT NOT NULL,
    settings TEXT NOT NULL,
    PRIMARY KEY (trace_key, first)
) STRICT, WITHOUT ROWID;
CREATE TABLE keyed_request (
    request_key INTEGER PRIMARY KEY,
    uid TEXT NOT NULL,
    key_hash TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    at INTEGER NOT NULL,
    run_id TEXT,
    session_id TEXT,
    session_key INTEGER,
    status INTEGER,
    body TEXT,
    UNIQUE (uid, key_hash)
) STRICT;
CREATE INDEX keyed_request_at ON keyed_request (at);
CREATE INDEX keyed_request_of_session ON keyed_request (session_key) WHERE session_key IS NOT NULL;
