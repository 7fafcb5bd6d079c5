-- Tables that `lockstitch export --lens langsmith` creates in a separate SQLite file.

CREATE TABLE IF NOT EXISTS agent_runs (
    run_id             TEXT NOT NULL PRIMARY KEY,
    start_time         TEXT,
    end_time           TEXT,
    status             TEXT CHECK (status IN ('success', 'error')),
    error              TEXT,
    user_id            TEXT,
    session_id         TEXT,
    thread_id          TEXT,
    input_messages     JSON TEXT CHECK (input_messages IS NULL OR json_valid(input_messages)),
    output_messages    JSON TEXT CHECK (output_messages IS NULL OR json_valid(output_messages)),
    model_name         TEXT,
    tags               JSON TEXT NOT NULL CHECK (json_valid(tags)),
    langgraph_metadata JSON TEXT NOT NULL CHECK (json_valid(langgraph_metadata)),
    total_tokens       INTEGER,
    total_cost         REAL
);
CREATE INDEX IF NOT EXISTS agent_runs_session ON agent_runs (session_id);
CREATE INDEX IF NOT EXISTS agent_runs_thread ON agent_runs (thread_id);
CREATE INDEX IF NOT EXISTS agent_runs_start ON agent_runs (start_time);

CREATE TABLE IF NOT EXISTS llm_calls (
    llm_call_id        TEXT NOT NULL PRIMARY KEY,
    run_id             TEXT NOT NULL REFERENCES agent_runs (run_id),
    step_index         INTEGER,
    prompt_text        TEXT,
    finish_reason      TEXT,
    model_name         TEXT,
    model_provider     TEXT,
    usage_metadata     JSON TEXT CHECK (usage_metadata IS NULL OR json_valid(usage_metadata)),
    tool_call_requests JSON TEXT NOT NULL CHECK (json_valid(tool_call_requests)),
    llm_output_text    TEXT,
    error_flag         INTEGER NOT NULL CHECK (error_flag IN (0, 1)),
    created_at         TEXT,
    input_tokens       INTEGER,
    output_tokens      INTEGER
);
CREATE INDEX IF NOT EXISTS llm_calls_run ON llm_calls (run_id);

CREATE TABLE IF NOT EXISTS tool_calls (
    tool_call_id         TEXT NOT NULL PRIMARY KEY,
    run_id               TEXT NOT NULL REFERENCES agent_runs (run_id),
    llm_call_id          TEXT REFERENCES llm_calls (llm_call_id),
    tool_name            TEXT,
    tool_args            JSON TEXT CHECK (tool_args IS NULL OR json_valid(tool_args)),
    tool_status          TEXT CHECK (tool_status IN ('success', 'error')),
    tool_response        TEXT,
    tool_message_content TEXT,
    execution_latency_ms INTEGER,
    is_tool_error        INTEGER NOT NULL CHECK (is_tool_error IN (0, 1)),
    error_type           TEXT
);
CREATE INDEX IF NOT EXISTS tool_calls_run ON tool_calls (run_id);
CREATE INDEX IF NOT EXISTS tool_calls_llm_call ON tool_calls (llm_call_id);
CREATE INDEX IF NOT EXISTS tool_calls_name ON tool_calls (tool_name);
