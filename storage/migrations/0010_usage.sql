-- Sums of what runs used, so that a report does not read every run.
--
-- A run counts for the day (days since 1970-01-01, UTC) on which it began and for the model with which it began. A row
-- is the sum over the runs that refer to it and whose session is not being deleted.

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
    tool_calls INTEGER NOT NULL,
    UNIQUE (uid, day, model)
) STRICT;

-- Absent until the run begins.
ALTER TABLE run_state ADD COLUMN usage_key INTEGER;

INSERT INTO usage_sum (uid, day, model, runs, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens,
                       cost_nanos, runs_without_price, estimated_runs, model_calls, tool_calls)
SELECT session.uid, state.started_at / 86400000, trace.model,
       count(*) FILTER (WHERE removal IS NULL),
       CAST(total(prompt_tokens) FILTER (WHERE removal IS NULL) AS INTEGER),
       CAST(total(completion_tokens) FILTER (WHERE removal IS NULL) AS INTEGER),
       CAST(total(cached_tokens) FILTER (WHERE removal IS NULL) AS INTEGER),
       CAST(total(reasoning_tokens) FILTER (WHERE removal IS NULL) AS INTEGER),
       CAST(total(cost_nanos) FILTER (WHERE removal IS NULL) AS INTEGER),
       count(*) FILTER (WHERE removal IS NULL AND cost_nanos IS NULL AND (prompt_tokens > 0 OR completion_tokens > 0)),
       count(*) FILTER (WHERE removal IS NULL AND estimated),
       CAST(total(model_calls) FILTER (WHERE removal IS NULL) AS INTEGER),
       CAST(total(tool_calls) FILTER (WHERE removal IS NULL) AS INTEGER)
FROM run_state AS state JOIN run USING (run_key) JOIN trace USING (trace_key)
JOIN session ON session.session_key = run.session_key
WHERE state.started_at IS NOT NULL GROUP BY 1, 2, 3;

UPDATE run_state SET usage_key = found.usage_key FROM (
    SELECT run.run_key, usage_sum.usage_key
    FROM run_state AS state JOIN run USING (run_key) JOIN trace USING (trace_key)
    JOIN session ON session.session_key = run.session_key
    JOIN usage_sum ON usage_sum.uid = session.uid AND usage_sum.day = state.started_at / 86400000
                  AND usage_sum.model = trace.model
    WHERE state.started_at IS NOT NULL
) AS found WHERE found.run_key = run_state.run_key;

-- Runs of a part of a day.
CREATE INDEX run_started ON run_state (started_at) WHERE started_at IS NOT NULL;
-- Lists of one of many users. What belongs to the user of the machine is most of all, and needs no index.
CREATE INDEX session_of_user ON session (uid) WHERE uid <> 'local';
CREATE INDEX trace_of_user ON trace (uid) WHERE uid <> 'local';
