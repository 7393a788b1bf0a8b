-- Request tokens that were written to the provider's cache (protocol/src/usage.rs).
ALTER TABLE run_state ADD COLUMN cache_write_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trace_state ADD COLUMN cache_write_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_sum ADD COLUMN cache_write_tokens INTEGER NOT NULL DEFAULT 0;
