CREATE TABLE agno_db_sessions (
    project      TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    thread_id    TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    session_type TEXT NOT NULL,
    agent_id     TEXT,
    team_id      TEXT,
    workflow_id  TEXT,
    user_id      TEXT,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    content      TEXT NOT NULL,
    deletions    INTEGER NOT NULL,
    PRIMARY KEY (project, session_id)
) WITHOUT ROWID;

CREATE UNIQUE INDEX agno_db_sessions_thread ON agno_db_sessions (thread_id);
CREATE INDEX agno_db_sessions_updated ON agno_db_sessions (project, updated_at);
CREATE INDEX agno_db_sessions_created ON agno_db_sessions (project, created_at);

CREATE TABLE agno_db_runs (
    project        TEXT NOT NULL,
    run_id         TEXT NOT NULL,
    thread_id      TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    session_id     TEXT NOT NULL,
    run_index      INTEGER NOT NULL,
    run_type       TEXT NOT NULL,
    agent_id       TEXT,
    team_id        TEXT,
    workflow_id    TEXT,
    user_id        TEXT,
    parent_run_id  TEXT,
    status         TEXT,
    model          TEXT,
    model_provider TEXT,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    position       INTEGER NOT NULL,
    record_id      TEXT NOT NULL,
    recorded       TEXT NOT NULL,
    content        BLOB NOT NULL,
    PRIMARY KEY (project, run_id)
) WITHOUT ROWID;

CREATE INDEX agno_db_runs_session ON agno_db_runs (thread_id, run_index);
CREATE INDEX agno_db_runs_written ON agno_db_runs (thread_id, position);
CREATE INDEX agno_db_runs_created ON agno_db_runs (project, created_at);

CREATE TABLE agno_db_rows (
    project    TEXT NOT NULL,
    kind       TEXT NOT NULL,
    id         TEXT NOT NULL,
    thread_id  TEXT REFERENCES threads (id) ON DELETE CASCADE,
    parent_id  TEXT,
    user_id    TEXT,
    created_at TEXT NOT NULL,
    version    INTEGER NOT NULL,
    content    TEXT NOT NULL,
    PRIMARY KEY (project, kind, id)
) WITHOUT ROWID;

CREATE INDEX agno_db_rows_recent ON agno_db_rows (project, kind, created_at);
CREATE INDEX agno_db_rows_parent ON agno_db_rows (project, kind, parent_id);
CREATE INDEX agno_db_rows_thread ON agno_db_rows (thread_id) WHERE thread_id IS NOT NULL;
