-- Readable names of sessions beside their ids (storage/src/sqlite/slug.rs). Sessions of earlier versions have none.
ALTER TABLE session ADD COLUMN slug TEXT;
CREATE INDEX session_of_slug ON session (slug) WHERE slug IS NOT NULL;
