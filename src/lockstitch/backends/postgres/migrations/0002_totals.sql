-- A search for a frequent word reads the newest texts.
CREATE INDEX text_search_log ON text_search (log_id);
-- Totals of past days for reports. A report stores them. A change of the runs or stitches of a day ends its settlement:
-- then its totals are no longer used.
CREATE TABLE settled_days (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, day text COLLATE "C" NOT NULL UNIQUE,
    snapshot pg_snapshot NOT NULL
);
-- A settlement ends with a transaction that its snapshot does not contain. No transaction waits for another one.
CREATE TABLE changed_days (day text COLLATE "C" NOT NULL, changed_by xid8 NOT NULL DEFAULT pg_current_xact_id());
CREATE INDEX changed_days_day ON changed_days (day, changed_by);
CREATE TABLE usage_totals (
    day text COLLATE "C" NOT NULL, project text NOT NULL, agent text, status text NOT NULL, model text,
    runs numeric NOT NULL, failed_runs numeric NOT NULL, input_tokens numeric NOT NULL, output_tokens numeric NOT NULL,
    cache_read_tokens numeric NOT NULL, cache_write_tokens numeric NOT NULL, parts numeric, unpriced numeric NOT NULL
);
CREATE INDEX usage_totals_day ON usage_totals (day);
-- The calls of a day with the same duration.
CREATE TABLE call_totals (
    kind text NOT NULL, day text COLLATE "C" NOT NULL, project text NOT NULL, agent text, status text NOT NULL,
    model text, name text, duration_ms bigint, failed bigint NOT NULL, calls bigint NOT NULL
);
CREATE INDEX call_totals_day ON call_totals (day, kind);
-- One row per transaction and day. The index makes the look-up of an earlier one cheap.
CREATE FUNCTION change_day(started timestamptz) RETURNS void LANGUAGE sql AS $$
    INSERT INTO lockstitch.changed_days (day)
    SELECT changed.day FROM (SELECT to_char(started AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day) AS changed
    WHERE NOT EXISTS (
        SELECT 1 FROM lockstitch.changed_days c WHERE c.day = changed.day AND c.changed_by = pg_current_xact_id())
$$;
CREATE FUNCTION change_day_of_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN PERFORM lockstitch.change_day(old.started_at); END IF;
    IF TG_OP = 'INSERT' OR (TG_OP = 'UPDATE' AND new.started_at IS DISTINCT FROM old.started_at) THEN
        PERFORM lockstitch.change_day(new.started_at);
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION change_day_of_stitch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lockstitch.change_day(started_at) FROM lockstitch.runs WHERE id = old.run_id;
    RETURN NULL;
END $$;
-- The last day is never settled, so the runs of agents that work now do not call the functions.
CREATE TRIGGER changed_days_run_insert AFTER INSERT ON runs FOR EACH ROW
    WHEN (new.started_at < now() - interval '1 day') EXECUTE FUNCTION change_day_of_run();
CREATE TRIGGER changed_days_run_update AFTER UPDATE ON runs FOR EACH ROW
    WHEN (least(old.started_at, new.started_at) < now() - interval '1 day') EXECUTE FUNCTION change_day_of_run();
CREATE TRIGGER changed_days_run_delete AFTER DELETE ON runs FOR EACH ROW
    WHEN (old.started_at < now() - interval '1 day') EXECUTE FUNCTION change_day_of_run();
-- Archiving deletes stitches, and more data of a trace replaces them. New stitches come with a change of their run.
CREATE TRIGGER changed_days_stitch_update AFTER UPDATE ON stitches FOR EACH ROW EXECUTE FUNCTION change_day_of_stitch();
CREATE TRIGGER changed_days_stitch_delete AFTER DELETE ON stitches FOR EACH ROW EXECUTE FUNCTION change_day_of_stitch();
