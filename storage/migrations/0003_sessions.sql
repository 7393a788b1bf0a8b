-- Sessions that are being deleted (DUR-8).
--
-- A session with a `removal` is gone for all who read, and nothing is written to it any more; its rows go in
-- pieces, its own last. 'files': its files are on their way out, and may still come back. 'rows': its files
-- are gone, and its rows go.

ALTER TABLE session ADD COLUMN removal TEXT CHECK (removal IN ('files', 'rows'));
CREATE INDEX session_removal ON session (session_key) WHERE removal IS NOT NULL;

-- The highest lsn that an event of a deleted session had: none is given out twice.
CREATE TABLE deleted_lsn (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    lsn INTEGER NOT NULL
) STRICT;
