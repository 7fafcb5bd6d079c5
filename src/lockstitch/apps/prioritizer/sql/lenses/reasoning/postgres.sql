-- Sessions of the prioritizer, together with other threads that name an outcome in their extras.
--
-- The row of a session has its result. A session is not running if its thread has ended for any reason. A trace is shown until it expires.

CREATE VIEW reasoning_steps AS
SELECT s.session_id, s.trace_id, s.position, s.call_index, s."timestamp",
       -- In a session, only calls of existing tools count as tool calls.
       CASE WHEN s.unknown THEN coalesce(nullif(s.thought, ''), 'Called the unknown tool ' || s.tool_name || '.')
            ELSE s.thought END AS thought,
       CASE WHEN NOT s.unknown THEN s.tool_name END AS tool_name,
       CASE WHEN s.unknown OR s.tool_name IS NULL THEN NULL
            WHEN jsonb_typeof(s.tool_input) = 'object' THEN s.tool_input
            ELSE jsonb_build_object('value', s.tool_input) END AS tool_input,
       CASE WHEN NOT s.unknown THEN s.tool_output END AS tool_output,
       s.duration_ms,
       CASE WHEN s.unknown THEN 'skipped' ELSE s.status END AS status
FROM (SELECT o.*, p.thread_id IS NOT NULL AND coalesce(o.tool_name NOT IN
                 ('semantic-search', 'detect-dependencies', 'query-task-graph', 'cluster-by-similarity', 'get-document-context'),
                 false) AS unknown
      FROM lens_own_reasoning_steps o LEFT JOIN lockstitch.prioritizer_sessions p ON p.thread_id = o.session_id) AS s;

CREATE VIEW reasoning_traces AS
SELECT o.*
FROM lens_own_reasoning_traces o
LEFT JOIN lockstitch.prioritizer_sessions p ON p.thread_id = o.session_id
WHERE p.thread_id IS NULL OR p.trace_expires_at > now();

CREATE VIEW agent_sessions AS
SELECT p.thread_id AS id,
       p.user_id,
       p.outcome_id,
       CASE WHEN p.status = 'running' AND t.status IN ('completed', 'failed', 'cancelled') THEN 'failed'
            ELSE p.status END AS status,
       lockstitch.safe_jsonb(p.plan) AS prioritized_plan,
       lockstitch.safe_jsonb(p.metadata) AS execution_metadata,
       p.created_at,
       p.updated_at,
       p.is_active
FROM lockstitch.prioritizer_sessions p
JOIN lockstitch.threads t ON t.id = p.thread_id
UNION ALL
SELECT o.*, true
FROM lens_own_agent_sessions o
WHERE NOT EXISTS (SELECT 1 FROM lockstitch.prioritizer_sessions p WHERE p.thread_id = o.id);
