-- Messages of a side branch, such as a look back on what was done (MEM-4): they hang in the tree, and never become the
-- head.
ALTER TABLE message ADD COLUMN side_branch INTEGER NOT NULL DEFAULT 0;
