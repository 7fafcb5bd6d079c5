-- The document's tables and indexes. Times have zones, as the lens shows them.
CREATE TABLE agent_config (
    agent_uuid UUID PRIMARY KEY,
    system_prompt TEXT NOT NULL,
    model VARCHAR(100) NOT NULL,
    max_steps INTEGER,
    thinking_tokens INTEGER,
    max_tokens INTEGER,
    container_id VARCHAR(255),
    messages JSONB,
    tool_schemas JSONB,
    tool_names TEXT[],
    server_tools JSONB,
    beta_headers TEXT[],
    api_kwargs JSONB,
    formatter VARCHAR(50),
    stream_meta_history_and_tool_results BOOLEAN,
    compactor_type VARCHAR(50),
    memory_store_type VARCHAR(50),
    file_registry JSONB,
    extras JSONB,
    max_retries INTEGER,
    base_delay FLOAT,
    last_known_input_tokens INTEGER,
    last_known_output_tokens INTEGER,
    pending_frontend_tools JSONB,
    pending_backend_results JSONB,
    awaiting_frontend_tools BOOLEAN,
    current_step INTEGER,
    conversation_history JSONB,
    title VARCHAR(255),
    created_at TIMESTAMPTZ,
    updated_at TIMESTAMPTZ,
    last_run_at TIMESTAMPTZ,
    total_runs INTEGER
);
CREATE TABLE conversation_history (
    conversation_id UUID PRIMARY KEY,
    agent_uuid UUID NOT NULL,
    run_id UUID NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    completed_at TIMESTAMPTZ,
    user_message TEXT NOT NULL,
    final_response TEXT,
    messages JSONB NOT NULL,
    stop_reason VARCHAR(50),
    total_steps INTEGER,
    usage JSONB,
    generated_files JSONB,
    cost JSONB,
    extras JSONB,
    sequence_number INTEGER,
    created_at TIMESTAMPTZ,
    input_tokens BIGINT,
    output_tokens BIGINT
);
CREATE TABLE visible_turns (
    agent_uuid UUID NOT NULL,
    run_id UUID NOT NULL,
    sequence_number INTEGER,
    inherited_from UUID,
    cut BOOLEAN
);
CREATE TABLE agent_runs (
    log_id BIGSERIAL PRIMARY KEY,
    agent_uuid UUID NOT NULL,
    run_id UUID NOT NULL,
    timestamp TIMESTAMPTZ NOT NULL,
    step_number INTEGER,
    action_type VARCHAR(100) NOT NULL,
    action_data JSONB NOT NULL,
    messages_snapshot JSONB,
    messages_count INTEGER,
    estimated_tokens INTEGER,
    duration_ms INTEGER
);
CREATE INDEX idx_agent_config_updated ON agent_config (updated_at DESC);
CREATE INDEX idx_agent_config_last_run ON agent_config (last_run_at DESC);
CREATE INDEX idx_turns_agent_uuid ON visible_turns (agent_uuid, sequence_number DESC);
CREATE INDEX idx_conv_agent_uuid ON conversation_history (agent_uuid, sequence_number DESC);
CREATE INDEX idx_conv_started_at ON conversation_history (agent_uuid, started_at DESC);
CREATE INDEX idx_conv_run_id ON conversation_history (run_id);
CREATE INDEX idx_runs_agent_run ON agent_runs (agent_uuid, run_id, timestamp);
CREATE INDEX idx_runs_action_type ON agent_runs (action_type);
CREATE INDEX idx_runs_timestamp ON agent_runs (timestamp DESC);
