-- The slowest runs first. Without the id, which would take a third of the space. A list sorts runs with the same duration.
CREATE INDEX runs_elapsed ON runs ((completed_at - started_at) DESC) WHERE completed_at IS NOT NULL;
-- The usage of a day by user. Apart from usage_totals, which would have as many rows otherwise.
CREATE TABLE user_totals (
    day text COLLATE "C" NOT NULL, project text NOT NULL, agent text, status text NOT NULL, model text, user_id text,
    runs numeric NOT NULL, failed_runs numeric NOT NULL, input_tokens numeric NOT NULL, output_tokens numeric NOT NULL,
    cache_read_tokens numeric NOT NULL, cache_write_tokens numeric NOT NULL, parts numeric, unpriced numeric NOT NULL
);
CREATE INDEX user_totals_day ON user_totals (day);
-- The days whose totals lack those of users are settled again.
DELETE FROM settled_days;
