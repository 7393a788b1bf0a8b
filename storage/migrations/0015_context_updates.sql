-- For an answer, the context that the runtime sent before it (protocol/src/message.rs). NULL: none.
ALTER TABLE message ADD COLUMN context_update TEXT;
