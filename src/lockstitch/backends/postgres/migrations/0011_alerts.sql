-- Limits for the cost, the errors and the latency of runs, and their last checks. One writer each: a person, a checker.
CREATE TABLE alerts (
    project text NOT NULL, name text NOT NULL, measure text NOT NULL, above double precision NOT NULL,
    window_minutes bigint NOT NULL, agent text, minimum_runs bigint NOT NULL, webhook text,
    created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL,
    PRIMARY KEY (project, name)
);
CREATE TABLE alert_checks (
    project text NOT NULL, name text NOT NULL, firing boolean NOT NULL, value double precision, runs bigint NOT NULL,
    checked_at timestamptz NOT NULL, changed_at timestamptz NOT NULL, reported boolean NOT NULL, tries bigint NOT NULL,
    due_at timestamptz,
    PRIMARY KEY (project, name)
);
