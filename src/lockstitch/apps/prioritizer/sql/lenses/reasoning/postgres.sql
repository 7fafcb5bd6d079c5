-- Sessions of the prioritiser, beside older threads that only say in their extras which outcome they work towards.
--
-- What a session came to stands in its row. One whose thread has ended, however that came, is not running any more.
-- A trace is shown until it expires.

CREATE VIEW prioritizer_steps AS
SELECT s.session_id, s.trace_id, s.position, s.call_index, s."timestamp", s.duration_ms,
       -- Only tools that there are count as called.
       CASE WHEN s.tool_name IS NULL OR known.tool THEN s.thought
            ELSE coalesce(s.thought, 'Asked for the tool ' || s.tool_name || ', which there is not.') END AS thought,
       CASE WHEN known.tool THEN s.tool_name END AS tool_name,
       CASE WHEN known.tool THEN
           CASE WHEN jsonb_typeof(s.tool_input) = 'object' THEN s.tool_input
                ELSE jsonb_build_object('value', s.tool_input) END END AS tool_input,
       CASE WHEN known.tool THEN s.tool_output END AS tool_output,
       CASE WHEN s.tool_name IS NULL OR known.tool THEN s.status ELSE 'skipped' END AS status
FROM reasoning_steps s
CROSS JOIN LATERAL (SELECT coalesce(s.tool_name IN ('semantic-search', 'detect-dependencies', 'query-task-graph',
                                                    'cluster-by-similarity', 'get-document-context'), false)) AS known (tool);

CREATE VIEW reasoning_traces AS
SELECT r.id,
       p.thread_id AS session_id,
       done.steps,
       done.duration_ms AS total_duration_ms,
       done.total AS total_steps,
       done.tools AS tools_used_count,
       r.started_at AS created_at
FROM lockstitch.prioritizer_sessions p
JOIN lockstitch.threads t ON t.id = p.thread_id
JOIN lockstitch.runs r ON r.thread_id = t.id AND r.turn = t.last_turn AND r.parent_run_id IS NULL
CROSS JOIN LATERAL
    (SELECT coalesce(array_agg(jsonb_build_object(
                'step_number', n, 'timestamp', to_char(s."timestamp" AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                'thought', s.thought, 'tool_name', s.tool_name, 'tool_input', s.tool_input, 'tool_output', s.tool_output,
                'duration_ms', s.duration_ms, 'status', s.status) ORDER BY n), '{}') AS steps,
            coalesce(sum(s.duration_ms), 0)::int AS duration_ms,
            count(*)::int AS total,
            (SELECT coalesce(jsonb_object_agg(u.name, u.calls), '{}')
             FROM (SELECT e.name, count(*) AS calls
                   FROM unnest(array_agg(s.tool_name)) AS e (name) WHERE e.name IS NOT NULL GROUP BY e.name) AS u) AS tools
     FROM (SELECT a.*, row_number() OVER (ORDER BY a.position, a.call_index) AS n
           FROM prioritizer_steps a WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10) AS s) AS done
WHERE p.trace_expires_at > now()
UNION ALL
SELECT r.id,
       t.id AS session_id,
       done.steps,
       done.duration_ms AS total_duration_ms,
       done.total AS total_steps,
       done.tools AS tools_used_count,
       r.started_at AS created_at
FROM lockstitch.threads t
JOIN lockstitch.runs r ON r.thread_id = t.id AND r.turn = t.last_turn AND r.parent_run_id IS NULL
CROSS JOIN LATERAL
    (SELECT coalesce(array_agg(jsonb_build_object(
                'step_number', n, 'timestamp', to_char(s."timestamp" AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                'thought', s.thought, 'tool_name', s.tool_name, 'tool_input', s.tool_input, 'tool_output', s.tool_output,
                'duration_ms', s.duration_ms, 'status', s.status) ORDER BY n), '{}') AS steps,
            coalesce(sum(s.duration_ms), 0)::int AS duration_ms,
            count(*)::int AS total,
            (SELECT coalesce(jsonb_object_agg(u.name, u.calls), '{}')
             FROM (SELECT e.name, count(*) AS calls
                   FROM unnest(array_agg(s.tool_name)) AS e (name) WHERE e.name IS NOT NULL GROUP BY e.name) AS u) AS tools
     FROM (SELECT a.*, row_number() OVER (ORDER BY a.position, a.call_index) AS n
           FROM reasoning_steps a WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10) AS s) AS done
WHERE t.kind <> 'trace' AND t.last_turn > 0
  AND lockstitch.safe_jsonb(t.extras) ->> 'outcome_id' ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'
  AND NOT EXISTS (SELECT 1 FROM lockstitch.prioritizer_sessions p WHERE p.thread_id = t.id);

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
SELECT t.id,
       t.user_id,
       (lockstitch.safe_jsonb(t.extras) ->> 'outcome_id')::uuid AS outcome_id,
       CASE WHEN r.status = 'completed' THEN 'completed' WHEN r.status IN ('failed', 'cancelled') THEN 'failed'
            ELSE 'running' END AS status,
       CASE WHEN r.status = 'completed' THEN lockstitch.safe_jsonb(coalesce(r.output, t.result)) END AS prioritized_plan,
       (SELECT jsonb_build_object(
                   'steps_taken', count(s.status), 'tool_call_count',
                   (SELECT coalesce(jsonb_object_agg(u.name, u.calls), '{}')
                    FROM (SELECT e.name, count(*) AS calls FROM unnest(array_agg(s.tool_name)) AS e (name)
                          WHERE e.name IS NOT NULL GROUP BY e.name) AS u),
                   'thinking_time_ms', (SELECT coalesce(sum(l.duration_ms), 0) FROM lockstitch.stitches l
                                        WHERE l.run_id = r.id AND l.type = 'llm_call'),
                   'tool_execution_time_ms', coalesce(sum(s.duration_ms) FILTER (WHERE s.tool_name IS NOT NULL), 0),
                   'total_time_ms', round(extract(epoch FROM coalesce(r.completed_at, t.updated_at) - r.started_at) * 1000),
                   'error_count', count(*) FILTER (WHERE s.status = 'failed'),
                   'success_rate', CASE WHEN count(s.status) = 0 THEN 0
                       ELSE round(count(*) FILTER (WHERE s.status = 'success')::numeric / count(s.status), 4) END)
        FROM (SELECT a.tool_name, a.duration_ms, a.status FROM reasoning_steps a
              WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10) AS s) AS execution_metadata,
       t.created_at,
       t.updated_at,
       true AS is_active
FROM lockstitch.threads t
JOIN lockstitch.runs r ON r.thread_id = t.id AND r.turn = t.last_turn AND r.parent_run_id IS NULL
WHERE t.kind <> 'trace' AND t.last_turn > 0
  AND lockstitch.safe_jsonb(t.extras) ->> 'outcome_id' ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'
  AND NOT EXISTS (SELECT 1 FROM lockstitch.prioritizer_sessions p WHERE p.thread_id = t.id);
