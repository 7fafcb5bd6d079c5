-- Tables that `lockstitch export --lens agentic_threads` creates in a separate SQLite file. A thread and a stitch may
-- refer to one that is written after them, so references are checked at the end.

CREATE TABLE IF NOT EXISTS threads (
    id                    TEXT NOT NULL PRIMARY KEY,
    branching_stitch_id   TEXT,
    parent_thread_id      TEXT REFERENCES threads (id) DEFERRABLE INITIALLY DEFERRED,
    goal                  TEXT NOT NULL,
    tasks                 JSON TEXT CHECK (tasks IS NULL OR json_valid(tasks)),
    status                TEXT NOT NULL,
    result                JSON TEXT CHECK (result IS NULL OR json_valid(result)),
    pending_child_results JSON TEXT CHECK (pending_child_results IS NULL OR json_valid(pending_child_results)),
    created_at            TEXT NOT NULL,
    updated_at            TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS threads_parent ON threads (parent_thread_id);
CREATE INDEX IF NOT EXISTS threads_status ON threads (status);

CREATE TABLE IF NOT EXISTS stitches (
    id                    TEXT NOT NULL PRIMARY KEY,
    thread_id             TEXT NOT NULL REFERENCES threads (id),
    previous_stitch_id    TEXT REFERENCES stitches (id) DEFERRABLE INITIALLY DEFERRED,
    stitch_type           TEXT NOT NULL,
    llm_request           JSON TEXT CHECK (llm_request IS NULL OR json_valid(llm_request)),
    llm_response          JSON TEXT CHECK (llm_response IS NULL OR json_valid(llm_response)),
    tool_name             TEXT,
    tool_input            JSON TEXT CHECK (tool_input IS NULL OR json_valid(tool_input)),
    tool_output           JSON TEXT CHECK (tool_output IS NULL OR json_valid(tool_output)),
    child_thread_id       TEXT REFERENCES threads (id),
    thread_result_summary TEXT,
    created_at            TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS stitches_thread ON stitches (thread_id);
CREATE INDEX IF NOT EXISTS stitches_previous ON stitches (previous_stitch_id);
CREATE INDEX IF NOT EXISTS stitches_child ON stitches (child_thread_id);
