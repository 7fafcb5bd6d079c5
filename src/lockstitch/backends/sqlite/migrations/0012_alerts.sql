-- Limits for the cost, the errors and the latency of runs, with their last checks.
CREATE TABLE alerts (
    project TEXT NOT NULL, name TEXT NOT NULL, measure TEXT NOT NULL, above REAL NOT NULL,
    window_minutes INTEGER NOT NULL, agent TEXT, minimum_runs INTEGER NOT NULL, webhook TEXT,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
    firing INTEGER NOT NULL, value REAL, runs INTEGER NOT NULL, checked_at TEXT, changed_at TEXT,
    reported INTEGER NOT NULL, tries INTEGER NOT NULL, due_at TEXT,
    PRIMARY KEY (project, name)
);
