-- The record in the terms of LangSmith: runs of agents, their model calls, and the tool calls that these request.
-- Differs from PostgreSQL: it uses the tables behind the views `runs` and `stitches`, to find the stitches of a run by
-- its number. JSON is text, and a subquery orders blocks. tool_calls is one SELECT, because SQLite computes a view of
-- two as a whole when it is joined.

-- A view with the prefix lens_ is the base of the one without. It also contains the identity of the row (row_id) and of
-- referenced rows (run_id_row), because the shown ids need not be unique. `export` needs these columns.

CREATE VIEW lens_agent_runs AS
SELECT coalesce(r.foreign_id, r.id) AS run_id,
       r.started_at AS start_time,
       r.completed_at AS end_time,
       -- Never guessed: a run that has not ended has no status.
       CASE WHEN r.status = 'completed' THEN 'success' WHEN r.status IN ('failed', 'cancelled') THEN 'error' END AS status,
       CASE WHEN r.status = 'cancelled' THEN coalesce(r.error, 'cancelled') ELSE r.error END AS error,
       coalesce(r.state ->> '$.user_id', t.user_id) AS user_id,
       CASE WHEN r.source = 'native' THEN coalesce(t.key, t.id) ELSE r.state ->> '$.session_id' END AS session_id,
       CASE WHEN r.source = 'native' THEN t.id ELSE r.state ->> '$.thread_id' END AS thread_id,
       (SELECT CASE WHEN r.source = 'native' THEN json_array(json(i.message))
                    ELSE coalesce(i.data -> '$.inputs.messages', i.data -> '$.inputs') END
        FROM main.stitch_rows i
        WHERE i.thread_no = r.thread_no AND i.position = r.input_position) AS input_messages,
       CASE WHEN r.source = 'native' THEN
           (SELECT json_array(json_array(json_object(
                       'text', CASE WHEN json_type(o.message, '$.content') = 'text' THEN o.message ->> '$.content'
                               ELSE coalesce((SELECT group_concat(said, '')
                                              FROM (SELECT b.value ->> '$.text' AS said
                                                    FROM json_each(o.message, '$.content') b
                                                    WHERE b.type = 'object' AND b.value ->> '$.type' = 'text' ORDER BY b.key)), '') END,
                       'message', json(o.message))))
            FROM main.stitch_rows o
            WHERE o.thread_no = r.thread_no AND o.position = r.output_position AND o.message IS NOT NULL)
       ELSE
           (SELECT coalesce(nullif(o.data -> '$.outputs.generations', 'null'),
                            nullif(o.data -> '$.outputs.messages', 'null'), o.data -> '$.outputs')
            FROM main.stitch_rows o
            WHERE o.thread_no = r.thread_no AND o.position = r.input_position)
       END AS output_messages,
       coalesce(r.metadata ->> '$.ls_model_name', r.model) AS model_name,
       r.tags AS tags,
       r.metadata AS langgraph_metadata,
       -- The totals of the source if it has them; else the model calls of the run and of its members, each once.
       CAST(coalesce(r.state ->> '$.total_tokens',
                     (SELECT sum(m.input_tokens + m.output_tokens) FROM main.run_rows m
                      WHERE m.thread_no = r.thread_no AND m.turn = r.turn)) AS INTEGER) AS total_tokens,
       CAST(coalesce(r.state ->> '$.total_cost',
                     (SELECT sum(m.total_cost) FROM main.run_rows m
                      WHERE m.thread_no = r.thread_no AND m.turn = r.turn)) AS REAL) AS total_cost,
       r.id AS row_id
FROM main.run_rows r JOIN main.threads t ON t.no = r.thread_no
WHERE r.parent_run_id IS NULL;

CREATE VIEW lens_llm_calls AS
SELECT coalesce(s.call_id, s.id) AS llm_call_id,
       coalesce(root.foreign_id, root.id) AS run_id,
       -- For an imported trace the number of the call is known. The calls of a native turn are counted, because members
       -- and calls outside the loop have separate numbers. The stitches of a turn are consecutive.
       CASE WHEN root.source <> 'native' THEN s.step_number - 1
            ELSE (SELECT count(*) FROM main.stitch_rows e
                  WHERE e.thread_no = s.thread_no AND e.position >= root.first_position AND e.position < s.position
                    AND e.type = 'llm_call') END AS step_index,
       coalesce(s.data ->> '$.prompt', s.data ->> '$.inputs.prompt', s.data ->> '$.inputs.prompts[0]') AS prompt_text,
       coalesce(s.data ->> '$.finish_reason', CASE WHEN root.source = 'native' THEN s.status END) AS finish_reason,
       coalesce(s.data ->> '$.model', s.name) AS model_name,
       coalesce(s.data ->> '$.provider', r.provider) AS model_provider,
       -- The counts of one of several generations. The columns of the first generation have those of the whole call.
       CASE WHEN s.data -> '$.usage' IS NOT NULL THEN nullif(s.data -> '$.usage', '{}')
            WHEN s.input_tokens IS NOT NULL OR s.output_tokens IS NOT NULL THEN
           json_object('input_tokens', coalesce(s.input_tokens, 0), 'output_tokens', coalesce(s.output_tokens, 0),
                       'total_tokens', coalesce(s.input_tokens, 0) + coalesce(s.output_tokens, 0))
       END AS usage_metadata,
       CASE WHEN s.calls > 0 THEN
           (SELECT json_group_array(json(call))
            FROM (SELECT json_object('name', json(b.value -> '$.name'), 'args', json(b.value -> '$.input'),
                                     'id', json(b.value -> '$.id'), 'type', 'tool_call') AS call
                  FROM json_each(s.message, '$.content') b
                  WHERE b.type = 'object' AND b.value ->> '$.type' = 'tool_use' ORDER BY b.key))
       ELSE '[]' END AS tool_call_requests,
       CASE WHEN s.message IS NULL OR s.data ->> '$.text' IS NOT NULL THEN s.data ->> '$.text'
            WHEN json_type(s.message, '$.content') = 'text' THEN s.message ->> '$.content'
            ELSE coalesce((SELECT group_concat(said, '')
                           FROM (SELECT b.value ->> '$.text' AS said FROM json_each(s.message, '$.content') b
                                 WHERE b.type = 'object' AND b.value ->> '$.type' = 'text' ORDER BY b.key)), '') END AS llm_output_text,
       CASE WHEN s.status IN ('error', 'refusal') OR s.data ->> '$.failed' = 1 THEN 1 ELSE 0 END AS error_flag,
       s.id AS row_id, root.id AS run_id_row
FROM main.run_rows root
JOIN main.run_rows r ON r.thread_no = root.thread_no AND r.turn = root.turn
JOIN main.stitch_rows s ON s.run_no = r.no
WHERE root.parent_run_id IS NULL AND s.type = 'llm_call';

CREATE VIEW lens_tool_calls AS
SELECT coalesce(asked.value ->> '$.id', s.call_id) AS tool_call_id,
       coalesce(root.foreign_id, root.id) AS run_id,
       CASE WHEN l.id IS NOT NULL THEN coalesce(l.call_id, l.id) END AS llm_call_id,
       CASE WHEN s.type = 'llm_call' THEN asked.value ->> '$.name' ELSE s.name END AS tool_name,
       CASE WHEN s.type = 'llm_call' THEN asked.value -> '$.input'
            WHEN l.calls > 0 THEN
                (SELECT b.value -> '$.input' FROM json_each(l.message, '$.content') b
                 WHERE b.type = 'object' AND b.value ->> '$.type' = 'tool_use'
                   AND s.call_index = (SELECT count(*) FROM json_each(l.message, '$.content') e
                                       WHERE e.key < b.key AND e.type = 'object' AND e.value ->> '$.type' = 'tool_use'))
            ELSE coalesce(s.data -> '$.args', s.data -> '$.inputs') END AS tool_args,
       CASE WHEN s.type = 'llm_call' THEN NULL WHEN s.status IN ('ok', 'settled') THEN 'success'
            WHEN s.status IS NOT NULL THEN 'error' END AS tool_status,
       -- Blocks unchanged as JSON; a text as text.
       CASE WHEN s.type = 'tool_call' THEN s.message ->> '$.content' END AS tool_response,
       CASE WHEN s.type = 'tool_call' THEN s.message ->> '$.content' END AS tool_message_content,
       CASE WHEN s.type = 'tool_call' THEN s.duration_ms END AS execution_latency_ms,
       CASE WHEN s.type = 'tool_call' AND s.status NOT IN ('ok', 'settled') THEN 1 ELSE 0 END AS is_tool_error,
       CASE WHEN s.type = 'tool_call' AND s.status NOT IN ('ok', 'settled') THEN s.status END AS error_type,
       s.id || CASE WHEN s.type = 'llm_call' THEN ' ' || asked.key ELSE '' END AS row_id, root.id AS run_id_row, l.id AS llm_call_id_row
FROM main.run_rows root
JOIN main.run_rows r ON r.thread_no = root.thread_no AND r.turn = root.turn
JOIN main.stitch_rows s ON s.run_no = r.no
-- A call with its result is one row. Calls without a result come from the response: only an open native run has such
-- calls. In an imported trace they already have a row.
JOIN json_each(CASE WHEN s.type = 'tool_call' THEN '[{"type": "tool_use"}]'
                    WHEN s.type = 'llm_call' AND s.calls > 0 AND root.source = 'native'
                         AND r.status IN ('pending', 'running', 'waiting') THEN s.message -> '$.content'
                    ELSE '[]' END) asked
LEFT JOIN main.stitch_rows l ON l.thread_no = s.thread_no AND l.position = coalesce(s.reply_to, s.position)
                            AND l.type = 'llm_call'
WHERE root.parent_run_id IS NULL AND s.type IN ('tool_call', 'llm_call')
  AND asked.type = 'object' AND asked.value ->> '$.type' = 'tool_use'
  AND (s.type = 'tool_call' OR NOT EXISTS (SELECT 1 FROM main.stitch_rows a
                                           WHERE a.run_no = s.run_no AND a.type = 'tool_call' AND a.reply_to = s.position
                                             -- Ids may repeat within a response, so the index identifies a call.
                                             AND a.call_index = (SELECT count(*) FROM json_each(s.message, '$.content') e
                                                                 WHERE e.key < asked.key AND e.type = 'object'
                                                                   AND e.value ->> '$.type' = 'tool_use')));

CREATE VIEW agent_runs AS
SELECT run_id, start_time, end_time, status, error, user_id, session_id, thread_id, input_messages, output_messages,
       model_name, tags, langgraph_metadata, total_tokens, total_cost
FROM lens_agent_runs;

CREATE VIEW llm_calls AS
SELECT llm_call_id, run_id, step_index, prompt_text, finish_reason, model_name, model_provider, usage_metadata,
       tool_call_requests, llm_output_text, error_flag
FROM lens_llm_calls;

CREATE VIEW tool_calls AS
SELECT tool_call_id, run_id, llm_call_id, tool_name, tool_args, tool_status, tool_response, tool_message_content,
       execution_latency_ms, is_tool_error, error_type
FROM lens_tool_calls;
