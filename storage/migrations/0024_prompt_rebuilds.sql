-- For an answer, how its prompt was rebuilt, if it was the first one after that: JSON (protocol/src/event/model.rs).
ALTER TABLE message ADD COLUMN prompt_rebuild TEXT;
