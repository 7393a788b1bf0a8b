-- Who wrote a message with the role user; NULL in messages of earlier versions and for other roles.
ALTER TABLE message ADD COLUMN origin TEXT;
