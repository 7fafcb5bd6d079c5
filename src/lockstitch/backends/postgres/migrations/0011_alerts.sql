-- Limits for the cost, the errors and the latency of runs, with their last checks.
CREATE TABLE alerts (
    project text NOT NULL, name text NOT NULL, measure text NOT NULL, above double precision NOT NULL,
    window_minutes bigint NOT NULL, agent text, minimum_runs bigint NOT NULL, webhook text,
    created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL,
    firing boolean NOT NULL, value double precision, runs bigint NOT NULL, checked_at timestamptz,
    changed_at timestamptz, reported boolean NOT NULL, tries bigint NOT NULL, due_at timestamptz,
    PRIMARY KEY (project, name)
);
