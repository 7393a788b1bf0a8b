-- Sub-agents, people and budgets: how often models and tools were called, and what people are asked.

ALTER TABLE run_state ADD COLUMN model_calls INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run_state ADD COLUMN tool_calls INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trace_state ADD COLUMN model_calls INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trace_state ADD COLUMN tool_calls INTEGER NOT NULL DEFAULT 0;

-- A question and its answer (SUB-9). Who answers first writes the answer; its run takes it from here.
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
