-- Ids of deleted sessions may be used again (storage/src/sqlite/sessions.rs).
-- How often the id of a session has been used, and the number after which the events of the session are counted.
ALTER TABLE session ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 1;
ALTER TABLE session ADD COLUMN event_base INTEGER NOT NULL DEFAULT 0;
CREATE TABLE deleted_session (
    -- The first 16 bytes of the SHA-256 of the id: the id itself is deleted.
    hash BLOB PRIMARY KEY,
    incarnation INTEGER NOT NULL,
    -- The last number of an event of the session.
    last_session_seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
