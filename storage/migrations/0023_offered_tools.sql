-- The tools that the run offered to its model: the row in `prompt` with their names as a JSON array; NULL if it has not
-- started, or was started by an earlier version.
ALTER TABLE run_state ADD COLUMN tools_key INTEGER;
