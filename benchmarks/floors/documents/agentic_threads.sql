-- The document's tables and indexes.
CREATE TABLE threads (
    id UUID PRIMARY KEY,
    branching_stitch_id UUID,
    goal TEXT NOT NULL,
    tasks JSONB,
    status TEXT NOT NULL,
    result JSONB,
    pending_child_results JSONB,
    created_at TIMESTAMPTZ,
    updated_at TIMESTAMPTZ
);
CREATE TABLE stitches (
    id UUID PRIMARY KEY,
    thread_id UUID NOT NULL,
    previous_stitch_id UUID,
    stitch_type TEXT NOT NULL,
    llm_request JSONB,
    llm_response JSONB,
    tool_name TEXT,
    tool_input JSONB,
    tool_output JSONB,
    child_thread_id UUID,
    thread_result_summary TEXT,
    created_at TIMESTAMPTZ
);
CREATE INDEX idx_threads_status ON threads (status);
CREATE INDEX idx_stitches_thread_id ON stitches (thread_id);
CREATE INDEX idx_stitches_previous_stitch_id ON stitches (previous_stitch_id);
CREATE UNIQUE INDEX idx_stitches_thread_previous ON stitches (thread_id, previous_stitch_id)
    WHERE previous_stitch_id IS NOT NULL;
