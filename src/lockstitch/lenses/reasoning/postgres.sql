-- The record as sessions of a reasoning agent: the request, the result, and each step. A session is a thread that works
-- towards an outcome, which extras.outcome_id names. It shows its latest turn.

-- The result of a tool as an object: text that contains a JSON object is parsed, any other value is wrapped.
CREATE OR REPLACE FUNCTION object_of(content jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    spelled jsonb;
BEGIN
    IF jsonb_typeof(content) = 'object' THEN
        RETURN content;
    END IF;
    IF jsonb_typeof(content) = 'string' AND (content #>> '{}') ~ '^\s*\{' THEN
        BEGIN
            spelled := (content #>> '{}')::jsonb;
            RETURN spelled;
        EXCEPTION WHEN data_exception THEN
            NULL;
        END;
    END IF;
    RETURN jsonb_build_object('value', content);
END $$;

-- Added: one row per step. There is one step per tool call, with the thought on the first call of a response, and one
-- step per response without calls that is not the final answer.
CREATE VIEW reasoning_steps AS
SELECT s.thread_id AS session_id,
       s.run_id AS trace_id,
       l.position,
       coalesce(s.call_index, 0) AS call_index,
       l.at AS "timestamp",
       CASE WHEN coalesce(s.call_index, 0) = 0 THEN
           (SELECT CASE WHEN jsonb_typeof(said.content) = 'string' THEN said.content #>> '{}'
                   ELSE (SELECT string_agg(coalesce(b.block ->> 'thinking', b.block ->> 'text'), E'\n\n' ORDER BY b.place)
                         FROM jsonb_array_elements(said.content) WITH ORDINALITY AS b (block, place)
                         WHERE b.block ->> 'type' IN ('thinking', 'text')) END
            FROM (SELECT lockstitch.safe_jsonb(l.message) -> 'content') AS said (content)) END AS thought,
       CASE WHEN s.type = 'tool_call' THEN s.name END AS tool_name,
       CASE WHEN s.type = 'tool_call' THEN
           lockstitch.call_of(lockstitch.safe_jsonb(l.message), s.call_index) -> 'input' END AS tool_input,
       CASE WHEN s.type = 'tool_call' THEN object_of(lockstitch.safe_jsonb(s.message) -> 'content') END AS tool_output,
       coalesce(s.duration_ms, 0)::int AS duration_ms,
       CASE WHEN s.type = 'llm_call' OR s.status IN ('ok', 'settled') THEN 'success'
            -- Denied, or cancelled with its run: planned and not executed.
            WHEN s.status IN ('denied', 'cancelled', 'failed') THEN 'skipped' ELSE 'failed' END AS status
FROM lockstitch.runs r
JOIN lockstitch.stitches s ON s.run_id = r.id
-- The response that contains a call. A response without calls refers to itself.
JOIN lockstitch.stitches l ON l.thread_id = s.thread_id AND l.position = coalesce(s.reply_to, s.position)
WHERE s.lane IS NULL
  AND ((s.type = 'tool_call' AND l.calls > 0)
       OR (s.type = 'llm_call' AND s.message IS NOT NULL AND s.calls IS NULL
           AND s.position IS DISTINCT FROM r.output_position));

CREATE VIEW reasoning_traces AS
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
            lockstitch.counted(array_agg(s.tool_name)) AS tools
     -- Numbered within one trace, which is already read then. A trace has at most ten steps.
     FROM (SELECT a.*, row_number() OVER (ORDER BY a.position, a.call_index) AS n
           FROM reasoning_steps a WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10) AS s) AS done
WHERE t.kind <> 'trace' AND t.last_turn > 0
  AND lockstitch.safe_jsonb(t.extras) ->> 'outcome_id' ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$';

CREATE VIEW agent_sessions AS
SELECT t.id,
       t.user_id,
       (lockstitch.safe_jsonb(t.extras) ->> 'outcome_id')::uuid AS outcome_id,
       CASE WHEN r.status = 'completed' THEN 'completed' WHEN r.status IN ('failed', 'cancelled') THEN 'failed'
            ELSE 'running' END AS status,
       CASE WHEN r.status = 'completed' THEN lockstitch.safe_jsonb(coalesce(r.output, t.result)) END AS prioritized_plan,
       (SELECT jsonb_build_object(
                   'steps_taken', count(s.status),
                   'tool_call_count', lockstitch.counted(array_agg(s.tool_name)),
                   'thinking_time_ms', thinking.duration_ms,
                   'tool_execution_time_ms', coalesce(sum(s.duration_ms) FILTER (WHERE s.tool_name IS NOT NULL), 0),
                   'total_time_ms', round(extract(epoch FROM coalesce(r.completed_at, t.updated_at) - r.started_at) * 1000),
                   'error_count', count(*) FILTER (WHERE s.status = 'failed'),
                   'success_rate', CASE WHEN count(s.status) = 0 THEN 0
                       ELSE round(count(*) FILTER (WHERE s.status = 'success')::numeric / count(s.status), 4) END)
        FROM (SELECT a.tool_name, a.duration_ms, a.status FROM reasoning_steps a
              WHERE a.trace_id = r.id ORDER BY a.position, a.call_index LIMIT 10) AS s) AS execution_metadata,
       t.created_at,
       t.updated_at
FROM lockstitch.threads t
JOIN lockstitch.runs r ON r.thread_id = t.id AND r.turn = t.last_turn AND r.parent_run_id IS NULL
CROSS JOIN LATERAL (SELECT coalesce(sum(l.duration_ms), 0) AS duration_ms FROM lockstitch.stitches l
                    WHERE l.run_id = r.id AND l.type = 'llm_call' AND l.data -> 'call' IS NULL) AS thinking
WHERE t.kind <> 'trace' AND t.last_turn > 0
  AND lockstitch.safe_jsonb(t.extras) ->> 'outcome_id' ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$';
