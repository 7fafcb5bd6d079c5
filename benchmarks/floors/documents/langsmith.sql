-- The document's tables with the indexes that its requirements name.
CREATE TABLE agent_runs (
    run_id TEXT PRIMARY KEY,
    start_time TEXT,
    end_time TEXT,
    status TEXT,
    error TEXT,
    user_id TEXT,
    session_id TEXT,
    thread_id TEXT,
    input_messages JSONB,
    output_messages JSONB,
    model_name TEXT,
    tags JSONB,
    langgraph_metadata JSONB,
    total_tokens BIGINT,
    total_cost FLOAT
);
CREATE TABLE llm_calls (
    llm_call_id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    step_index INTEGER,
    prompt_text TEXT,
    finish_reason TEXT,
    model_name TEXT,
    model_provider TEXT,
    usage_metadata JSONB,
    tool_call_requests JSONB,
    llm_output_text TEXT,
    error_flag INTEGER,
    created_at TIMESTAMPTZ,
    input_tokens BIGINT,
    output_tokens BIGINT
);
CREATE TABLE tool_calls (
    tool_call_id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    llm_call_id TEXT,
    tool_name TEXT,
    tool_args JSONB,
    tool_status TEXT,
    tool_response TEXT,
    tool_message_content TEXT,
    execution_latency_ms INTEGER,
    is_tool_error INTEGER,
    error_type TEXT
);
CREATE INDEX agent_runs_session ON agent_runs (session_id);
CREATE INDEX agent_runs_thread ON agent_runs (thread_id);
CREATE INDEX agent_runs_start ON agent_runs (start_time);
CREATE INDEX llm_calls_run ON llm_calls (run_id);
CREATE INDEX tool_calls_run ON tool_calls (run_id);
CREATE INDEX tool_calls_llm_call ON tool_calls (llm_call_id);
CREATE INDEX tool_calls_name ON tool_calls (tool_name);
