-- The lake that has the stitches of an archive. Its content is empty then.
ALTER TABLE archives ADD COLUMN lake text;
