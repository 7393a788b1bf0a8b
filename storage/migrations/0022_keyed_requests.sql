-- Requests with an `Idempotency-Key`. `run_id` or `session_id`: what the request has created. `status` and `body`: its
-- answer; NULL until it is stored, and after the session that it concerns is deleted. `session_key`: that session.
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
