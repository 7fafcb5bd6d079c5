-- Usage of a day by tree.
ALTER TABLE user_totals ADD COLUMN root uuid;
-- The totals are computed again, with the new column.
DELETE FROM settled_days;
