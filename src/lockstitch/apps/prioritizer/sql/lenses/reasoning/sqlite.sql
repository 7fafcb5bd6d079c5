-- Sessions of the prioritiser, beside older threads that only say in their extras which outcome they work towards.
--
-- What a session came to stands in its row. One whose thread has ended, however that came, is not running any more.
-- A trace is shown until it expires. Differs from PostgreSQL: JSON is text, and steps are a JSON array.

CREATE VIEW prioritizer_steps AS
SELECT s.session_id, s.trace_id, s.position, s.call_index, s.timestamp, s.duration_ms,
       -- Only tools that there are count as called.
       CASE WHEN s.tool_name IS NULL OR s.known THEN s.thought
            ELSE coalesce(s.thought, 'Asked for the tool ' || s.tool_name || ', which there is not.') END AS thought,
       CASE WHEN s.known THEN s.tool_name END AS tool_name,
       CASE WHEN s.known THEN
           CASE WHEN json_type(s.tool_input) = 'object' THEN s.tool_input
                ELSE json_object('value', json(s.tool_input)) END END AS tool_input,
       CASE WHEN s.known THEN s.tool_output END AS tool_output,
       CASE WHEN s.tool_name IS NULL OR s.known THEN s.status ELSE 'skipped' END AS status
FROM (SELECT a.*, coalesce(a.tool_name IN ('semantic-search', 'detect-dependencies', 'query-task-graph',
                                           'cluster-by-similarity', 'get-document-context'), 0) AS known
      FROM reasoning_steps a) s;

CREATE VIEW reasoning_traces AS
SELECT r.id,
       p.thread_id AS session_id,
       (SELECT json_group_array(json_object(
                   'step_number', n, 'timestamp', timestamp, 'thought', thought, 'tool_name', tool_name,
                   'tool_input', json(tool_input), 'tool_output', json(tool_output), 'duration_ms', duration_ms,
                   'status', status))
        FROM (SELECT a.*, row_number() OVER (ORDER BY a.position, a.call_index) AS n
              FROM prioritizer_steps a WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10)) AS steps,
       (SELECT coalesce(sum(duration_ms), 0)
        FROM (SELECT a.duration_ms FROM prioritizer_steps a
              WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10)) AS total_duration_ms,
       (SELECT count(*) FROM (SELECT 1 FROM prioritizer_steps a WHERE a.trace_id = r.id LIMIT 10)) AS total_steps,
       (SELECT json_group_object(tool_name, calls)
        FROM (SELECT tool_name, count(*) AS calls
              FROM (SELECT a.tool_name FROM prioritizer_steps a
                    WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10)
              WHERE tool_name IS NOT NULL GROUP BY tool_name)) AS tools_used_count,
       r.started_at AS created_at
FROM main.prioritizer_sessions p
JOIN main.threads t ON t.id = p.thread_id
JOIN main.run_rows r ON r.thread_no = t.no AND r.turn = t.last_turn AND r.parent_run_id IS NULL
WHERE p.trace_expires_at > strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
UNION ALL
SELECT r.id,
       t.id AS session_id,
       (SELECT json_group_array(json_object(
                   'step_number', n, 'timestamp', timestamp, 'thought', thought, 'tool_name', tool_name,
                   'tool_input', json(tool_input), 'tool_output', json(tool_output), 'duration_ms', duration_ms,
                   'status', status))
        FROM (SELECT a.*, row_number() OVER (ORDER BY a.position, a.call_index) AS n
              FROM reasoning_steps a WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10)) AS steps,
       (SELECT coalesce(sum(duration_ms), 0)
        FROM (SELECT a.duration_ms FROM reasoning_steps a
              WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10)) AS total_duration_ms,
       (SELECT count(*) FROM (SELECT 1 FROM reasoning_steps a WHERE a.trace_id = r.id LIMIT 10)) AS total_steps,
       (SELECT json_group_object(tool_name, calls)
        FROM (SELECT tool_name, count(*) AS calls
              FROM (SELECT a.tool_name FROM reasoning_steps a
                    WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10)
              WHERE tool_name IS NOT NULL GROUP BY tool_name)) AS tools_used_count,
       r.started_at AS created_at
FROM main.threads t
JOIN main.run_rows r ON r.thread_no = t.no AND r.turn = t.last_turn AND r.parent_run_id IS NULL
WHERE t.kind <> 'trace' AND t.last_turn > 0
  AND t.extras ->> '$.outcome_id' LIKE '________-____-____-____-____________'
  AND replace(t.extras ->> '$.outcome_id', '-', '') NOT GLOB '*[^0-9a-fA-F]*'
  AND NOT EXISTS (SELECT 1 FROM main.prioritizer_sessions p WHERE p.thread_id = t.id);

CREATE VIEW agent_sessions AS
SELECT p.thread_id AS id,
       p.user_id,
       p.outcome_id,
       CASE WHEN p.status = 'running' AND t.status IN ('completed', 'failed', 'cancelled') THEN 'failed'
            ELSE p.status END AS status,
       p.plan AS prioritized_plan,
       p.metadata AS execution_metadata,
       p.created_at,
       p.updated_at,
       p.is_active
FROM main.prioritizer_sessions p
JOIN main.threads t ON t.id = p.thread_id
UNION ALL
SELECT t.id,
       t.user_id,
       t.extras ->> '$.outcome_id' AS outcome_id,
       CASE WHEN r.status = 'completed' THEN 'completed' WHEN r.status IN ('failed', 'cancelled') THEN 'failed'
            ELSE 'running' END AS status,
       CASE WHEN r.status = 'completed' THEN coalesce(r.output, t.result) END AS prioritized_plan,
       (SELECT json_object(
                   'steps_taken', count(status), 'tool_call_count',
                   json((SELECT json_group_object(tool_name, calls)
                         FROM (SELECT tool_name, count(*) AS calls
                               FROM (SELECT a.tool_name FROM reasoning_steps a
                                     WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10)
                               WHERE tool_name IS NOT NULL GROUP BY tool_name))),
                   'thinking_time_ms', (SELECT coalesce(sum(l.duration_ms), 0) FROM main.stitch_rows l
                                        WHERE l.run_no = r.no AND l.type = 'llm_call'),
                   'tool_execution_time_ms', coalesce(sum(duration_ms) FILTER (WHERE tool_name IS NOT NULL), 0),
                   'total_time_ms', CAST(round((julianday(coalesce(r.completed_at, t.updated_at))
                                                - julianday(r.started_at)) * 86400000) AS INTEGER),
                   'error_count', count(*) FILTER (WHERE status = 'failed'),
                   'success_rate', CASE WHEN count(status) = 0 THEN 0
                       ELSE round(count(*) FILTER (WHERE status = 'success') * 1.0 / count(status), 4) END)
        FROM (SELECT a.tool_name, a.duration_ms, a.status FROM reasoning_steps a
              WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10)) AS execution_metadata,
       t.created_at,
       t.updated_at,
       1 AS is_active
FROM main.threads t
JOIN main.run_rows r ON r.thread_no = t.no AND r.turn = t.last_turn AND r.parent_run_id IS NULL
WHERE t.kind <> 'trace' AND t.last_turn > 0
  AND t.extras ->> '$.outcome_id' LIKE '________-____-____-____-____________'
  AND replace(t.extras ->> '$.outcome_id', '-', '') NOT GLOB '*[^0-9a-fA-F]*'
  AND NOT EXISTS (SELECT 1 FROM main.prioritizer_sessions p WHERE p.thread_id = t.id);
