-- The model calls without an outcome, as a JSON array; NULL if there is none.
ALTER TABLE run_state ADD COLUMN open_model_calls TEXT;
