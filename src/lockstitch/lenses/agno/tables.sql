-- Tables that `lockstitch export --lens agno` creates in a separate SQLite file. Names are unique only within a
-- project, so the keys contain it.

CREATE TABLE IF NOT EXISTS agno_sessions (
    session_id TEXT NOT NULL,
    session_type TEXT NOT NULL,
    agent_id TEXT,
    team_id TEXT,
    workflow_id TEXT,
    user_id TEXT,
    session_data JSON TEXT CHECK (session_data IS NULL OR json_valid(session_data)),
    agent_data JSON TEXT CHECK (agent_data IS NULL OR json_valid(agent_data)),
    team_data JSON TEXT CHECK (team_data IS NULL OR json_valid(team_data)),
    workflow_data JSON TEXT CHECK (workflow_data IS NULL OR json_valid(workflow_data)),
    runs JSON TEXT NOT NULL CHECK (json_valid(runs)),
    summary JSON TEXT CHECK (summary IS NULL OR json_valid(summary)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    project TEXT NOT NULL,
    PRIMARY KEY (project, session_id)
);
CREATE INDEX IF NOT EXISTS agno_sessions_user_id ON agno_sessions (user_id);
CREATE INDEX IF NOT EXISTS agno_sessions_created_at ON agno_sessions (created_at);

CREATE TABLE IF NOT EXISTS agno_components (
    component_id TEXT NOT NULL,
    component_type TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT,
    current_version INTEGER,
    metadata JSON TEXT CHECK (metadata IS NULL OR json_valid(metadata)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER,
    deleted_at INTEGER,
    project TEXT NOT NULL,
    PRIMARY KEY (project, component_id)
);

CREATE TABLE IF NOT EXISTS agno_component_configs (
    component_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    label TEXT,
    stage TEXT NOT NULL,
    config JSON TEXT NOT NULL CHECK (json_valid(config)),
    notes TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER,
    deleted_at INTEGER,
    project TEXT NOT NULL,
    PRIMARY KEY (project, component_id, version),
    FOREIGN KEY (project, component_id) REFERENCES agno_components (project, component_id)
);

CREATE TABLE IF NOT EXISTS agno_component_links (
    parent_component_id TEXT NOT NULL,
    parent_version INTEGER NOT NULL,
    link_kind TEXT NOT NULL,
    link_key TEXT NOT NULL,
    child_component_id TEXT NOT NULL,
    child_version INTEGER,
    position INTEGER NOT NULL,
    meta JSON TEXT CHECK (meta IS NULL OR json_valid(meta)),
    created_at INTEGER,
    updated_at INTEGER,
    project TEXT NOT NULL,
    PRIMARY KEY (project, parent_component_id, parent_version, link_kind, link_key),
    FOREIGN KEY (project, parent_component_id, parent_version)
        REFERENCES agno_component_configs (project, component_id, version)
);
CREATE INDEX IF NOT EXISTS agno_component_links_child_component_id ON agno_component_links (child_component_id);

CREATE TABLE IF NOT EXISTS agno_memories (
    memory_id TEXT NOT NULL PRIMARY KEY,
    memory TEXT NOT NULL,
    feedback TEXT,
    input TEXT,
    agent_id TEXT,
    team_id TEXT,
    user_id TEXT,
    topics JSON TEXT CHECK (topics IS NULL OR json_valid(topics)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER
);
CREATE INDEX IF NOT EXISTS agno_memories_user_id ON agno_memories (user_id);

CREATE TABLE IF NOT EXISTS agno_learnings (
    learning_id TEXT NOT NULL PRIMARY KEY,
    learning_type TEXT NOT NULL,
    namespace TEXT,
    user_id TEXT,
    agent_id TEXT,
    team_id TEXT,
    workflow_id TEXT,
    session_id TEXT,
    entity_id TEXT,
    entity_type TEXT,
    content JSON TEXT NOT NULL CHECK (json_valid(content)),
    metadata JSON TEXT CHECK (metadata IS NULL OR json_valid(metadata)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER
);
CREATE INDEX IF NOT EXISTS agno_learnings_agent_id ON agno_learnings (agent_id);
CREATE INDEX IF NOT EXISTS agno_learnings_user_id ON agno_learnings (user_id);

CREATE TABLE IF NOT EXISTS agno_knowledge (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    description TEXT,
    metadata JSON TEXT CHECK (metadata IS NULL OR json_valid(metadata)),
    type TEXT,
    size INTEGER,
    linked_to TEXT,
    access_count INTEGER,
    status TEXT,
    status_message TEXT,
    external_id TEXT,
    created_at INTEGER,
    updated_at INTEGER
);

CREATE TABLE IF NOT EXISTS agno_metrics (
    id TEXT NOT NULL PRIMARY KEY,
    agent_runs_count INTEGER NOT NULL,
    team_runs_count INTEGER NOT NULL,
    workflow_runs_count INTEGER NOT NULL,
    agent_sessions_count INTEGER NOT NULL,
    team_sessions_count INTEGER NOT NULL,
    workflow_sessions_count INTEGER NOT NULL,
    users_count INTEGER NOT NULL,
    token_metrics JSON TEXT NOT NULL CHECK (json_valid(token_metrics)),
    model_metrics JSON TEXT NOT NULL CHECK (json_valid(model_metrics)),
    date TEXT NOT NULL,
    aggregation_period TEXT NOT NULL,
    completed INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER,
    UNIQUE (date, aggregation_period)
);

CREATE TABLE IF NOT EXISTS agno_eval_runs (
    run_id TEXT NOT NULL PRIMARY KEY,
    eval_type TEXT NOT NULL,
    eval_data JSON TEXT NOT NULL CHECK (json_valid(eval_data)),
    eval_input JSON TEXT NOT NULL CHECK (json_valid(eval_input)),
    name TEXT,
    agent_id TEXT,
    team_id TEXT,
    workflow_id TEXT,
    model_id TEXT,
    model_provider TEXT,
    evaluated_component_name TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER
);
CREATE INDEX IF NOT EXISTS agno_eval_runs_created_at ON agno_eval_runs (created_at);

CREATE TABLE IF NOT EXISTS agno_schema_versions (
    table_name TEXT NOT NULL PRIMARY KEY,
    version TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT
);
