-- For an answer, the changes of its prompt, if it was the first one after them: JSON (protocol/src/prompt_changes.rs).
ALTER TABLE message ADD COLUMN prompt_changes TEXT;
