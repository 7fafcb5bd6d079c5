-- Sessions: one row for each thread that prioritizes. The row has the result; the log has the steps.

CREATE TABLE prioritizer_sessions (
    thread_id        TEXT NOT NULL PRIMARY KEY REFERENCES threads (id) ON DELETE CASCADE,
    project          TEXT NOT NULL DEFAULT 'default',
    user_id          TEXT NOT NULL CHECK (user_id <> ''),
    outcome_id       TEXT NOT NULL REFERENCES user_outcomes (id) ON DELETE CASCADE,
    is_active        INTEGER NOT NULL DEFAULT 1 CHECK (is_active IN (0, 1)),
    status           TEXT NOT NULL CHECK (status IN ('running', 'completed', 'failed')),
    plan             TEXT CHECK (plan IS NULL OR json_valid(plan)),
    metadata         TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(metadata)),
    steps_taken      INTEGER NOT NULL DEFAULT 0 CHECK (steps_taken BETWEEN 0 AND 10),
    trace_expires_at TEXT NOT NULL,
    trace_kept       INTEGER NOT NULL DEFAULT 1 CHECK (trace_kept IN (0, 1)),
    created_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    updated_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    CHECK ((status = 'completed') = (plan IS NOT NULL)),
    CHECK (coalesce(metadata ->> '$.steps_taken', steps_taken) = steps_taken),
    CHECK (coalesce(metadata ->> '$.total_time_ms', 0) >= 0
           AND coalesce(metadata ->> '$.thinking_time_ms', 0) >= 0
           AND coalesce(metadata ->> '$.tool_execution_time_ms', 0) >= 0)
);
-- One active session per user. Older sessions stay for the history and are not active.
CREATE UNIQUE INDEX prioritizer_sessions_active ON prioritizer_sessions (project, user_id) WHERE is_active;
CREATE INDEX prioritizer_sessions_user ON prioritizer_sessions (project, user_id, created_at);
CREATE INDEX prioritizer_sessions_outcome ON prioritizer_sessions (outcome_id);
CREATE INDEX prioritizer_sessions_created ON prioritizer_sessions (created_at);
-- Sessions with stored reasoning, which is deleted when it expires.
CREATE INDEX prioritizer_sessions_expiring ON prioritizer_sessions (trace_expires_at) WHERE trace_kept;
CREATE TRIGGER prioritizer_sessions_touch AFTER UPDATE ON prioritizer_sessions
WHEN new.updated_at IS old.updated_at BEGIN
    UPDATE prioritizer_sessions SET updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    WHERE thread_id = new.thread_id;
END;

-- A session that has ended keeps its status.
CREATE TRIGGER prioritizer_sessions_transition BEFORE UPDATE OF status ON prioritizer_sessions
WHEN old.status <> new.status AND old.status <> 'running' BEGIN
    SELECT raise(ABORT, 'CHECK constraint failed: a session that has ended does not change its status');
END;
