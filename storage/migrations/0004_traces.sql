-- The message tree as a whole: which messages lead to the head, what summaries stand for, what was copied.
--
-- The messages that lead to a trace's head, by the links to their parents, as ranges of sequences: the last
-- range has no end, it goes up to the head. So a message that follows the head costs nothing here, and going
-- back does not walk the links (DUR-2b).

CREATE TABLE path_range (
    trace_key INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER,
    PRIMARY KEY (trace_key, first)
) STRICT, WITHOUT ROWID;

WITH RECURSIVE path (trace_key, sequence, parent) AS (
    SELECT trace_key, sequence, parent_sequence FROM trace_state JOIN message USING (trace_key)
    WHERE sequence = head_sequence
    UNION ALL
    SELECT path.trace_key, message.sequence, message.parent_sequence FROM path JOIN message
    ON message.trace_key = path.trace_key AND message.sequence = path.parent AND message.sequence < path.sequence
)
INSERT INTO path_range (trace_key, first, last)
    SELECT trace_key, min(sequence), max(sequence) FROM (
        SELECT trace_key, sequence,
               sequence - row_number() OVER (PARTITION BY trace_key ORDER BY sequence) AS range
        FROM path
    ) GROUP BY trace_key, range;
UPDATE path_range SET last = NULL
    WHERE last = (SELECT head_sequence FROM trace_state WHERE trace_state.trace_key = path_range.trace_key);

-- Summaries (MSG-5): the path from `next` back leads to `summary`.
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

-- Sub-traces of the trace that a trace is a copy of: they stay where they are.
CREATE TABLE linked_trace (
    trace_key INTEGER NOT NULL,
    linked_key INTEGER NOT NULL,
    goal_id TEXT,
    PRIMARY KEY (trace_key, linked_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX linked_to ON linked_trace (linked_key);

-- What changed the goals of a trace: to find what they were at a time without reading all that happened.
CREATE INDEX event_of_goals ON event (trace_key, event_id)
    WHERE kind IN ('goal_added', 'goal_updated', 'goal_focused', 'rewind', 'head_switched', 'session_forked');

-- The place among the events: what has a smaller lsn came before. 0 = before there was such a place.
ALTER TABLE message ADD COLUMN lsn INTEGER NOT NULL DEFAULT 0;
UPDATE message SET lsn = told.lsn FROM (
    SELECT trace_key, json_extract(data, '$.sequence') AS sequence, lsn FROM event WHERE kind = 'message_added'
) AS told WHERE told.trace_key = message.trace_key AND told.sequence = message.sequence;
ALTER TABLE artifact_version ADD COLUMN lsn INTEGER NOT NULL DEFAULT 0;
UPDATE artifact_version SET lsn = edit.lsn FROM document_edit AS edit
    WHERE edit.artifact_key = artifact_version.artifact_key AND edit.revision = artifact_version.version;
UPDATE artifact_version SET lsn = saved.lsn FROM (
    SELECT artifact_key, json_extract(data, '$.version') AS version, event.lsn
    FROM event JOIN artifact ON artifact_id = json_extract(data, '$.artifact_id') WHERE kind = 'artifact_saved'
) AS saved WHERE saved.artifact_key = artifact_version.artifact_key AND saved.version = artifact_version.version
    AND artifact_version.lsn = 0;
CREATE INDEX edit_of_trace ON document_edit (trace_key, lsn);

-- The name of an artifact that is not there at the moment, because the conversation went back to before it was made.
ALTER TABLE artifact ADD COLUMN withdrawn TEXT;
-- The ids under which a copy is found too, with spaces between: of what it is a copy of, and so on.
ALTER TABLE artifact ADD COLUMN copied_from TEXT;
CREATE INDEX artifact_dirty ON artifact (session_key) WHERE current_version > stored_version;

ALTER TABLE run_state ADD COLUMN cancel_requested INTEGER NOT NULL DEFAULT 0;
