-- Usage by the version of an agent, and by tag. `tags` is JSON.
ALTER TABLE user_totals ADD COLUMN version TEXT;
ALTER TABLE user_totals ADD COLUMN tags TEXT;
-- The totals are computed again, with the new columns.
DELETE FROM settled_days;
