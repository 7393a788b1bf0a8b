-- Documents, captured products, and what lists say of artifacts.
--
-- An artifact holds what its last edit made of it (`current_version`); what is stored as a version is
-- `stored_version`. The edits in between are rows, and stay for as long as the artifact does.

CREATE TABLE artifact_new (
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
    updated_at INTEGER NOT NULL,
    CHECK ((session_key IS NULL) <> (uid IS NULL)),
    CHECK (stored_version <= current_version)
) STRICT;
INSERT INTO artifact_new
    SELECT artifact_key, artifact_id, session_key, uid, name, title, filename, content_type, size, current_version,
           current_version, source, 0, provenance, NULL, NULL, created_at, updated_at
    FROM artifact;
DROP TABLE artifact;
ALTER TABLE artifact_new RENAME TO artifact;
CREATE UNIQUE INDEX artifact_of_session ON artifact (session_key, name) WHERE session_key IS NOT NULL;
CREATE UNIQUE INDEX artifact_of_user ON artifact (uid, name) WHERE uid IS NOT NULL;

ALTER TABLE artifact_version ADD COLUMN content_type TEXT NOT NULL DEFAULT '';
UPDATE artifact_version SET content_type = (SELECT content_type FROM artifact
    WHERE artifact.artifact_key = artifact_version.artifact_key);

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

ALTER TABLE message ADD COLUMN long_term_memory TEXT;
ALTER TABLE message ADD COLUMN output_once INTEGER NOT NULL DEFAULT 0;
