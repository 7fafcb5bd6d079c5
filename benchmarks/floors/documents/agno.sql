-- The document's table of sessions, with its key.
CREATE TABLE agno_sessions (
    session_id VARCHAR PRIMARY KEY,
    session_type VARCHAR,
    agent_id VARCHAR,
    team_id VARCHAR,
    user_id VARCHAR,
    session_data JSONB,
    agent_data JSONB,
    team_data JSONB,
    runs JSONB,
    summary JSONB,
    created_at BIGINT,
    updated_at BIGINT
);
