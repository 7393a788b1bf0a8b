-- Texts of system messages, each once per session: all children with the same preset share one (sqlite/prompts.rs).
CREATE TABLE prompt (
    prompt_key INTEGER PRIMARY KEY,
    session_key INTEGER NOT NULL,
    -- SHA-256 of the content.
    hash BLOB NOT NULL,
    content TEXT NOT NULL,
    UNIQUE (session_key, hash)
) STRICT;

-- The prompt that is the content of the message. NULL: the content is in the row of the message.
ALTER TABLE message ADD COLUMN prompt_key INTEGER;
