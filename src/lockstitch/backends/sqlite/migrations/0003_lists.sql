-- The slowest runs first. The duration is in microseconds. The functions of SQLite have only milliseconds.
ALTER TABLE run_rows ADD COLUMN elapsed INTEGER GENERATED ALWAYS AS (
    (strftime('%s', substr(completed_at, 1, 19)) - strftime('%s', substr(started_at, 1, 19))) * 1000000
    + substr(completed_at, 21, 6) - substr(started_at, 21, 6)) VIRTUAL;
-- Without the id, which would take most of the space. A list sorts the few runs with the same duration.
CREATE INDEX runs_elapsed ON run_rows (elapsed DESC) WHERE completed_at IS NOT NULL;
-- The usage of a day by user. Apart from usage_totals, which would have as many rows otherwise.
CREATE TABLE user_totals (
    day TEXT NOT NULL, project TEXT NOT NULL, agent TEXT, status TEXT NOT NULL, model TEXT, user_id TEXT,
    runs NOT NULL, failed_runs NOT NULL, input_tokens NOT NULL, output_tokens NOT NULL, cache_read_tokens NOT NULL,
    cache_write_tokens NOT NULL, parts, unpriced NOT NULL
);
CREATE INDEX user_totals_day ON user_totals (day);
-- The days whose totals lack those of users are settled again.
DELETE FROM settled_days;
