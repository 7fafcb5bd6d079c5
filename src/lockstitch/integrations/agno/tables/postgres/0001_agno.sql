CREATE TABLE agno_db_sessions (
    project      text COLLATE "C" NOT NULL,
    session_id   text COLLATE "C" NOT NULL,
    thread_id    uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    session_type text COLLATE "C" NOT NULL,
    agent_id     text COLLATE "C",
    team_id      text COLLATE "C",
    workflow_id  text COLLATE "C",
    user_id      text COLLATE "C",
    created_at   bigint NOT NULL,
    updated_at   bigint NOT NULL,
    content      json NOT NULL,
    deletions    bigint NOT NULL,
    PRIMARY KEY (project, session_id)
);

CREATE UNIQUE INDEX agno_db_sessions_thread ON agno_db_sessions (thread_id);
CREATE INDEX agno_db_sessions_updated ON agno_db_sessions (project, updated_at);
CREATE INDEX agno_db_sessions_created ON agno_db_sessions (project, created_at);

CREATE TABLE agno_db_runs (
    project        text COLLATE "C" NOT NULL,
    run_id         text COLLATE "C" NOT NULL,
    thread_id      uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    session_id     text COLLATE "C" NOT NULL,
    run_index      bigint NOT NULL,
    run_type       text COLLATE "C" NOT NULL,
    agent_id       text COLLATE "C",
    team_id        text COLLATE "C",
    workflow_id    text COLLATE "C",
    user_id        text COLLATE "C",
    parent_run_id  text COLLATE "C",
    status         text COLLATE "C",
    model          text COLLATE "C",
    model_provider text COLLATE "C",
    created_at     bigint NOT NULL,
    updated_at     bigint NOT NULL,
    position       bigint NOT NULL,
    record_id      uuid NOT NULL,
    recorded       json NOT NULL,
    content        bytea NOT NULL,
    PRIMARY KEY (project, run_id)
);

CREATE INDEX agno_db_runs_session ON agno_db_runs (thread_id, run_index);
CREATE INDEX agno_db_runs_written ON agno_db_runs (thread_id, position);
CREATE INDEX agno_db_runs_created ON agno_db_runs (project, created_at);

CREATE TABLE agno_db_rows (
    project    text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    thread_id  uuid REFERENCES threads (id) ON DELETE CASCADE,
    parent_id  text COLLATE "C",
    user_id    text COLLATE "C",
    created_at text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    content    json NOT NULL,
    PRIMARY KEY (project, kind, id)
);

CREATE INDEX agno_db_rows_recent ON agno_db_rows (project, kind, created_at);
CREATE INDEX agno_db_rows_parent ON agno_db_rows (project, kind, parent_id);
CREATE INDEX agno_db_rows_thread ON agno_db_rows (thread_id) WHERE thread_id IS NOT NULL;
