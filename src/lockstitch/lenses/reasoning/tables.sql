-- Tables that `lockstitch export --lens reasoning` creates in a separate SQLite file.

CREATE TABLE IF NOT EXISTS agent_sessions (
    id                 TEXT NOT NULL PRIMARY KEY,
    user_id            TEXT,
    outcome_id         TEXT NOT NULL,
    status             TEXT NOT NULL CHECK (status IN ('running', 'completed', 'failed')),
    prioritized_plan   JSON TEXT CHECK (prioritized_plan IS NULL OR json_valid(prioritized_plan)),
    execution_metadata JSON TEXT NOT NULL CHECK (json_valid(execution_metadata)),
    created_at         TEXT NOT NULL,
    updated_at         TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS agent_sessions_user ON agent_sessions (user_id);
CREATE INDEX IF NOT EXISTS agent_sessions_created ON agent_sessions (created_at);

CREATE TABLE IF NOT EXISTS reasoning_traces (
    id                TEXT NOT NULL PRIMARY KEY,
    session_id        TEXT NOT NULL UNIQUE REFERENCES agent_sessions (id) ON DELETE CASCADE,
    steps             JSON TEXT NOT NULL CHECK (json_valid(steps)),
    total_duration_ms INTEGER NOT NULL CHECK (total_duration_ms >= 0),
    total_steps       INTEGER NOT NULL CHECK (total_steps BETWEEN 0 AND 10),
    tools_used_count  JSON TEXT NOT NULL CHECK (json_valid(tools_used_count)),
    created_at        TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS reasoning_traces_created ON reasoning_traces (created_at);
