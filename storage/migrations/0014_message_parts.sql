-- Content of a message with images or files, as a JSON list of parts (protocol/src/content.rs); `content` is then empty.
-- NULL: the content is only text.
ALTER TABLE message ADD COLUMN parts TEXT;
-- Data of an answer for the service that made it, as JSON (protocol/src/provider_data.rs).
ALTER TABLE message ADD COLUMN provider_data TEXT;
