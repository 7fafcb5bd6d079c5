-- Totals of past days for reports. A report stores them. A change of the runs or stitches of a day ends its settlement:
-- then its totals are no longer used.
CREATE TABLE settled_days (number INTEGER PRIMARY KEY AUTOINCREMENT, day TEXT NOT NULL UNIQUE);
CREATE TABLE usage_totals (
    day TEXT NOT NULL, project TEXT NOT NULL, agent TEXT, status TEXT NOT NULL, model TEXT, runs NOT NULL,
    failed_runs NOT NULL, input_tokens NOT NULL, output_tokens NOT NULL, cache_read_tokens NOT NULL,
    cache_write_tokens NOT NULL, parts, unpriced NOT NULL
);
CREATE INDEX usage_totals_day ON usage_totals (day);
-- The calls of a day with the same duration.
CREATE TABLE call_totals (
    kind TEXT NOT NULL, day TEXT NOT NULL, project TEXT NOT NULL, agent TEXT, status TEXT NOT NULL, model TEXT,
    name TEXT, duration_ms INTEGER, failed INTEGER NOT NULL, calls INTEGER NOT NULL
);
CREATE INDEX call_totals_day ON call_totals (day, kind);
CREATE TRIGGER settled_days_run_insert AFTER INSERT ON run_rows BEGIN
    DELETE FROM settled_days WHERE day = substr(NEW.started_at, 1, 10);
END;
CREATE TRIGGER settled_days_run_update AFTER UPDATE ON run_rows BEGIN
    DELETE FROM settled_days WHERE day IN (substr(OLD.started_at, 1, 10), substr(NEW.started_at, 1, 10));
END;
CREATE TRIGGER settled_days_run_delete AFTER DELETE ON run_rows BEGIN
    DELETE FROM settled_days WHERE day = substr(OLD.started_at, 1, 10);
END;
-- Archiving deletes stitches, and more data of a trace replaces them. New stitches come with a change of their run.
CREATE TRIGGER settled_days_stitch_update AFTER UPDATE ON stitch_rows WHEN OLD.run_no IS NOT NULL BEGIN
    DELETE FROM settled_days WHERE day = (SELECT substr(started_at, 1, 10) FROM run_rows WHERE no = OLD.run_no);
END;
CREATE TRIGGER settled_days_stitch_delete AFTER DELETE ON stitch_rows WHEN OLD.run_no IS NOT NULL BEGIN
    DELETE FROM settled_days WHERE day = (SELECT substr(started_at, 1, 10) FROM run_rows WHERE no = OLD.run_no);
END;
