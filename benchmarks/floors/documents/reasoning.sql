-- The document's tables and indexes, but for the one index that no database takes: it names the present time.
CREATE TABLE agent_sessions (
    id UUID PRIMARY KEY,
    user_id TEXT NOT NULL UNIQUE,
    outcome_id UUID NOT NULL,
    status TEXT NOT NULL,
    prioritized_plan JSONB,
    execution_metadata JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL,
    updated_at TIMESTAMPTZ NOT NULL
);
CREATE TABLE reasoning_traces (
    id UUID PRIMARY KEY,
    session_id UUID NOT NULL,
    steps JSONB[] NOT NULL,
    total_duration_ms INTEGER NOT NULL,
    total_steps INTEGER NOT NULL,
    tools_used_count JSONB NOT NULL,
    created_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX idx_agent_sessions_user_id ON agent_sessions (user_id);
CREATE INDEX idx_agent_sessions_created_at ON agent_sessions (created_at);
CREATE INDEX idx_reasoning_traces_session_id ON reasoning_traces (session_id);
