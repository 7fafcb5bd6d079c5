-- The record as sessions of a reasoning agent: the request, the result, and each step. A session is a thread that works
-- towards an outcome, which extras.outcome_id names. It shows its latest turn. Differs from PostgreSQL: it uses the
-- tables behind the views `runs` and `stitches`, to find the stitches of a run by its number. JSON is text, and steps
-- are a JSON array.

-- Added: one row per step. There is one step per tool call, with the thought on the first call of a response, and one
-- step per response without calls that is not the final answer.
CREATE VIEW reasoning_steps AS
SELECT t.id AS session_id,
       r.id AS trace_id,
       l.position,
       coalesce(s.call_index, 0) AS call_index,
       l.at AS timestamp,
       CASE WHEN coalesce(s.call_index, 0) <> 0 THEN NULL
            WHEN json_type(l.message, '$.content') = 'text' THEN l.message ->> '$.content'
            ELSE (SELECT group_concat(said, char(10, 10))
                  FROM (SELECT coalesce(b.value ->> '$.thinking', b.value ->> '$.text') AS said
                        FROM json_each(l.message, '$.content') b
                        WHERE b.type = 'object' AND b.value ->> '$.type' IN ('thinking', 'text') ORDER BY b.key)) END
           AS thought,
       CASE WHEN s.type = 'tool_call' THEN s.name END AS tool_name,
       CASE WHEN s.type = 'tool_call' THEN
           (SELECT b.value -> '$.input' FROM json_each(l.message, '$.content') b
            WHERE b.type = 'object' AND b.value ->> '$.type' = 'tool_use'
              AND s.call_index = (SELECT count(*) FROM json_each(l.message, '$.content') e
                                  WHERE e.key < b.key AND e.type = 'object' AND e.value ->> '$.type' = 'tool_use')) END
           AS tool_input,
       -- The result of a tool as an object: text that contains a JSON object is parsed, any other value is wrapped.
       CASE WHEN s.type = 'llm_call' THEN NULL
            WHEN json_type(s.message, '$.content') = 'object' THEN s.message -> '$.content'
            WHEN json_type(s.message, '$.content') = 'text' AND json_valid(s.message ->> '$.content')
                THEN CASE WHEN json_type(s.message ->> '$.content') = 'object' THEN json(s.message ->> '$.content')
                     ELSE json_object('value', s.message ->> '$.content') END
            ELSE json_object('value', json(s.message -> '$.content')) END AS tool_output,
       coalesce(s.duration_ms, 0) AS duration_ms,
       CASE WHEN s.type = 'llm_call' OR s.status IN ('ok', 'settled') THEN 'success'
            -- Denied, or cancelled with its run: planned and not executed.
            WHEN s.status IN ('denied', 'cancelled', 'failed') THEN 'skipped' ELSE 'failed' END AS status
FROM main.run_rows r
JOIN main.threads t ON t.no = r.thread_no
JOIN main.stitch_rows s ON s.run_no = r.no
-- The response that contains a call. A response without calls refers to itself.
JOIN main.stitch_rows l ON l.thread_no = s.thread_no AND l.position = coalesce(s.reply_to, s.position)
WHERE s.lane IS NULL
  AND ((s.type = 'tool_call' AND l.calls > 0)
       OR (s.type = 'llm_call' AND s.message IS NOT NULL AND s.calls IS NULL AND s.position IS NOT r.output_position));

CREATE VIEW reasoning_traces AS
SELECT r.id,
       t.id AS session_id,
       -- Numbered within one trace, which is already read then. A trace has at most ten steps.
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
  AND replace(t.extras ->> '$.outcome_id', '-', '') NOT GLOB '*[^0-9a-fA-F]*';

CREATE VIEW agent_sessions AS
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
                                        WHERE l.run_no = r.no AND l.type = 'llm_call'
                                          AND l.data -> '$.call' IS NULL),
                   'tool_execution_time_ms', coalesce(sum(duration_ms) FILTER (WHERE tool_name IS NOT NULL), 0),
                   'total_time_ms', CAST(round((julianday(coalesce(r.completed_at, t.updated_at))
                                                - julianday(r.started_at)) * 86400000) AS INTEGER),
                   'error_count', count(*) FILTER (WHERE status = 'failed'),
                   'success_rate', CASE WHEN count(status) = 0 THEN 0
                       ELSE round(count(*) FILTER (WHERE status = 'success') * 1.0 / count(status), 4) END)
        FROM (SELECT a.tool_name, a.duration_ms, a.status FROM reasoning_steps a
              WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10)) AS execution_metadata,
       t.created_at,
       t.updated_at
FROM main.threads t
JOIN main.run_rows r ON r.thread_no = t.no AND r.turn = t.last_turn AND r.parent_run_id IS NULL
WHERE t.kind <> 'trace' AND t.last_turn > 0
  AND t.extras ->> '$.outcome_id' LIKE '________-____-____-____-____________'
  AND replace(t.extras ->> '$.outcome_id', '-', '') NOT GLOB '*[^0-9a-fA-F]*';
