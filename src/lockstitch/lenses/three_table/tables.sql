-- Tables that `lockstitch export --lens three_table` creates in a separate SQLite file.

CREATE TABLE IF NOT EXISTS agent_config (
    agent_uuid TEXT NOT NULL PRIMARY KEY,
    system_prompt TEXT,
    model TEXT,
    max_steps INTEGER,
    thinking_tokens INTEGER,
    max_tokens INTEGER,
    container_id TEXT,
    messages JSON TEXT CHECK (messages IS NULL OR json_valid(messages)),
    tool_schemas JSON TEXT CHECK (tool_schemas IS NULL OR json_valid(tool_schemas)),
    tool_names JSON TEXT CHECK (tool_names IS NULL OR json_valid(tool_names)),
    server_tools JSON TEXT CHECK (server_tools IS NULL OR json_valid(server_tools)),
    beta_headers JSON TEXT CHECK (beta_headers IS NULL OR json_valid(beta_headers)),
    api_kwargs JSON TEXT CHECK (api_kwargs IS NULL OR json_valid(api_kwargs)),
    formatter TEXT,
    stream_meta_history_and_tool_results INTEGER,
    compactor_type TEXT,
    memory_store_type TEXT,
    file_registry JSON TEXT CHECK (file_registry IS NULL OR json_valid(file_registry)),
    extras JSON TEXT CHECK (extras IS NULL OR json_valid(extras)),
    max_retries INTEGER,
    base_delay REAL,
    last_known_input_tokens INTEGER,
    last_known_output_tokens INTEGER,
    pending_frontend_tools JSON TEXT CHECK (pending_frontend_tools IS NULL OR json_valid(pending_frontend_tools)),
    pending_backend_results JSON TEXT CHECK (pending_backend_results IS NULL OR json_valid(pending_backend_results)),
    awaiting_frontend_tools INTEGER,
    current_step INTEGER,
    conversation_history JSON TEXT CHECK (conversation_history IS NULL OR json_valid(conversation_history)),
    title TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    last_run_at TEXT,
    total_runs INTEGER
);
CREATE INDEX IF NOT EXISTS agent_config_last_run ON agent_config (last_run_at);

CREATE TABLE IF NOT EXISTS conversation_history (
    conversation_id TEXT NOT NULL PRIMARY KEY,
    agent_uuid TEXT NOT NULL REFERENCES agent_config (agent_uuid),
    run_id TEXT NOT NULL,
    started_at TEXT NOT NULL,
    completed_at TEXT,
    user_message TEXT,
    final_response TEXT,
    messages JSON TEXT CHECK (messages IS NULL OR json_valid(messages)),
    stop_reason TEXT,
    total_steps INTEGER,
    usage JSON TEXT CHECK (usage IS NULL OR json_valid(usage)),
    generated_files JSON TEXT CHECK (generated_files IS NULL OR json_valid(generated_files)),
    cost JSON TEXT CHECK (cost IS NULL OR json_valid(cost)),
    extras JSON TEXT CHECK (extras IS NULL OR json_valid(extras)),
    sequence_number INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    UNIQUE (agent_uuid, sequence_number)
);
CREATE INDEX IF NOT EXISTS conversation_history_run ON conversation_history (run_id);

CREATE TABLE IF NOT EXISTS agent_runs (
    log_id INTEGER NOT NULL PRIMARY KEY,
    agent_uuid TEXT NOT NULL REFERENCES agent_config (agent_uuid),
    run_id TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    step_number INTEGER,
    action_type TEXT NOT NULL,
    action_data JSON TEXT CHECK (action_data IS NULL OR json_valid(action_data)),
    messages_snapshot JSON TEXT CHECK (messages_snapshot IS NULL OR json_valid(messages_snapshot)),
    messages_count INTEGER,
    estimated_tokens INTEGER,
    duration_ms INTEGER
);
CREATE INDEX IF NOT EXISTS agent_runs_agent ON agent_runs (agent_uuid, run_id);
CREATE INDEX IF NOT EXISTS agent_runs_run ON agent_runs (run_id);
CREATE INDEX IF NOT EXISTS agent_runs_action ON agent_runs (action_type);

CREATE TABLE IF NOT EXISTS visible_turns (
    agent_uuid TEXT NOT NULL REFERENCES agent_config (agent_uuid),
    run_id TEXT NOT NULL,
    sequence_number INTEGER NOT NULL,
    inherited_from TEXT,
    cut INTEGER NOT NULL,
    PRIMARY KEY (agent_uuid, sequence_number)
);
