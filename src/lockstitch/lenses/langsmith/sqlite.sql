-- The record in the terms of LangSmith: runs of agents, their model calls, and the tool calls that these request.
-- Differs from PostgreSQL: it uses the tables behind the views `runs` and `stitches`, to find the stitches of a run by
-- its number. JSON is text, and a subquery orders blocks.

-- A view with the prefix lens_ is the base of the one without. It also contains the identity of the row (row_id) and of
-- referenced rows (run_id_row), because the shown ids need not be unique. `export` needs these columns.

-- A search for the name of a field comes before parsing, which takes longer: few runs have the fields.
CREATE VIEW lens_agent_runs AS
SELECT r.shown_id AS run_id,
       r.started_at AS start_time,
       r.completed_at AS end_time,
       -- Never guessed: a run that has not ended has no status.
       CASE WHEN r.status = 'completed' THEN 'success' WHEN r.status IN ('failed', 'cancelled') THEN 'error' END AS status,
       CASE WHEN r.status = 'cancelled' THEN coalesce(r.error, 'cancelled') ELSE r.error END AS error,
       CASE WHEN r.source = 'native' THEN t.user_id ELSE coalesce(r.state ->> '$.user_id', t.user_id) END AS user_id,
       CASE WHEN r.source = 'native' THEN coalesce(t.key, t.id)
            WHEN instr(r.state, '"session_id"') > 0 THEN r.state ->> '$.session_id' END AS session_id,
       CASE WHEN r.source = 'native' THEN t.id
            WHEN instr(r.state, '"thread_id"') > 0 THEN r.state ->> '$.thread_id' END AS thread_id,
       (SELECT CASE WHEN r.source = 'native' THEN json_array(json(i.message))
                    ELSE coalesce(i.data -> '$.inputs.messages', i.data -> '$.inputs') END
        FROM lens_data i
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
            FROM lens_data o
            WHERE o.thread_no = r.thread_no AND o.position = r.input_position)
       END AS output_messages,
       coalesce(CASE WHEN instr(r.metadata, '"ls_model_name"') > 0 AND r.source <> 'native'
                     THEN r.metadata ->> '$.ls_model_name' END, r.model) AS model_name,
       r.tags AS tags,
       r.metadata AS langgraph_metadata,
       -- The totals of the source if it has them; else the model calls of the run and of its members, each once.
       CAST(coalesce(CASE WHEN instr(r.state, '"total_tokens"') > 0 AND r.source <> 'native'
                          THEN r.state ->> '$.total_tokens' END,
                     CASE WHEN EXISTS (SELECT 1 FROM main.run_rows member WHERE member.parent_run_id = r.id) THEN
                         (SELECT sum(m.input_tokens + m.output_tokens) FROM main.run_rows m
                          WHERE m.thread_no = r.thread_no AND m.turn = r.turn)
                     ELSE r.input_tokens + r.output_tokens END) AS INTEGER) AS total_tokens,
       CAST(coalesce(CASE WHEN instr(r.state, '"total_cost"') > 0 AND r.source <> 'native'
                          THEN r.state ->> '$.total_cost' END,
                     CASE WHEN EXISTS (SELECT 1 FROM main.run_rows member WHERE member.parent_run_id = r.id) THEN
                         (SELECT sum(m.total_cost) FROM main.run_rows m
                          WHERE m.thread_no = r.thread_no AND m.turn = r.turn)
                     ELSE r.total_cost END) AS REAL) AS total_cost,
       r.id AS row_id
FROM main.run_rows r JOIN main.threads t ON t.no = r.thread_no
WHERE r.parent_run_id IS NULL;

-- model_name, created_at and the tokens are columns of the index stitches_models, so figures over all calls read only
-- that index. `root` is a LEFT JOIN: SQLite starts with it if a query selects a run, and with the calls if not.
CREATE VIEW lens_llm_calls AS
SELECT s.llm_call_id,
       root.shown_id AS run_id,
       -- For an imported trace the number of the call is known. The calls of a native turn are counted, because members
       -- and calls outside the loop have separate numbers. The stitches of a turn are consecutive.
       CASE WHEN r.source <> 'native' THEN s.step_number - 1
            ELSE (SELECT count(*) FROM main.stitch_rows e
                  WHERE e.thread_no = s.thread_no AND e.position >= root.first_position AND e.position < s.position
                    AND e.type = 'llm_call') END AS step_index,
       (SELECT coalesce(d.data ->> '$.prompt', d.data ->> '$.inputs.prompt', d.data ->> '$.inputs.prompts[0]')
        FROM lens_data d WHERE d.log_id = s.log_id) AS prompt_text,
       coalesce(s.data ->> '$.finish_reason', CASE WHEN r.source = 'native' THEN s.status END) AS finish_reason,
       s.model AS model_name,
       coalesce(s.data ->> '$.provider', r.provider) AS model_provider,
       -- The counts of one of several generations. The columns of the first generation have those of the whole call.
       CASE WHEN s.parent_id IS NOT NULL AND s.data -> '$.usage' IS NOT NULL THEN nullif(s.data -> '$.usage', '{}')
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
       CASE WHEN s.status IN ('error', 'refusal') THEN 1
            WHEN s.parent_id IS NOT NULL AND instr(s.data, '"failed"') > 0 AND s.data ->> '$.failed' = 1 THEN 1
            ELSE 0 END AS error_flag,
       s.at AS created_at, s.input_tokens, s.output_tokens,
       s.id AS row_id, root.id AS run_id_row
FROM main.run_rows r
JOIN main.stitch_rows s ON s.run_no = r.no
-- The top-level run of the turn, found by its number. The conditions on thread and turn find the other way.
LEFT JOIN main.run_rows root ON root.no = CASE WHEN r.parent_run_id IS NULL THEN r.no ELSE (
        SELECT top.no FROM main.run_rows top
        WHERE top.thread_no = r.thread_no AND top.turn = r.turn AND top.parent_run_id IS NULL) END
    AND root.thread_no = r.thread_no AND root.turn = r.turn
WHERE s.type = 'llm_call';

-- The calls with their plain columns. The first part has the calls with a stitch, the second those without a result,
-- from their response: only an open native run has such calls. In an imported trace they already have a stitch.
-- `place` is their block in the response. A condition on a column reaches both parts. For that, a column must be text
-- in both or in none.
CREATE VIEW lens_requested_calls AS
SELECT s.log_id, s.call_id AS tool_call_id, root.shown_id AS run_id, root.id AS run_id_row, s.name AS tool_name,
       s.status, s.duration_ms, s.thread_no, s.reply_to, CAST(NULL AS INTEGER) AS place
FROM main.run_rows r
JOIN main.stitch_rows s ON s.run_no = r.no
LEFT JOIN main.run_rows root ON root.no = CASE WHEN r.parent_run_id IS NULL THEN r.no ELSE (
        SELECT top.no FROM main.run_rows top
        WHERE top.thread_no = r.thread_no AND top.turn = r.turn AND top.parent_run_id IS NULL) END
    AND root.thread_no = r.thread_no AND root.turn = r.turn
WHERE s.type = 'tool_call'
UNION ALL
SELECT s.log_id, CAST(asked.value ->> '$.id' AS TEXT), root.shown_id, root.id,
       CAST(asked.value ->> '$.name' AS TEXT), CAST(NULL AS TEXT), CAST(NULL AS INTEGER), s.thread_no, s.position,
       CAST(asked.key AS INTEGER)
-- Without the hint SQLite would read all model calls to find those of open runs.
FROM main.run_rows r INDEXED BY runs_open
JOIN main.stitch_rows s ON s.run_no = r.no
LEFT JOIN main.run_rows root ON root.no = CASE WHEN r.parent_run_id IS NULL THEN r.no ELSE (
        SELECT top.no FROM main.run_rows top
        WHERE top.thread_no = r.thread_no AND top.turn = r.turn AND top.parent_run_id IS NULL) END
    AND root.thread_no = r.thread_no AND root.turn = r.turn
JOIN json_each(s.message, '$.content') asked
WHERE r.status IN ('pending', 'running', 'waiting') AND r.source = 'native' AND s.type = 'llm_call' AND s.calls > 0
  AND asked.type = 'object' AND asked.value ->> '$.type' = 'tool_use'
  AND NOT EXISTS (SELECT 1 FROM main.stitch_rows a
                  WHERE a.run_no = s.run_no AND a.type = 'tool_call' AND a.reply_to = s.position
                    -- Ids may repeat within a response, so the index identifies a call.
                    AND a.call_index = (SELECT count(*) FROM json_each(s.message, '$.content') e
                                        WHERE e.key < asked.key AND e.type = 'object'
                                          AND e.value ->> '$.type' = 'tool_use'));

-- Content is read by subqueries: SQLite computes all columns of a view with two parts when it adds up rows.
CREATE VIEW lens_tool_calls AS
SELECT c.tool_call_id,
       c.run_id,
       l.llm_call_id,
       c.tool_name,
       CASE WHEN c.place IS NOT NULL THEN l.message -> ('$.content[' || c.place || '].input')
            WHEN l.calls > 0 THEN
                (SELECT b.value -> '$.input' FROM json_each(l.message, '$.content') b
                 WHERE b.type = 'object' AND b.value ->> '$.type' = 'tool_use'
                   AND (SELECT s.call_index FROM main.stitch_rows s WHERE s.log_id = c.log_id) = (
                       SELECT count(*) FROM json_each(l.message, '$.content') e
                       WHERE e.key < b.key AND e.type = 'object' AND e.value ->> '$.type' = 'tool_use'))
            ELSE (SELECT coalesce(d.data -> '$.args', d.data -> '$.inputs') FROM lens_data d
                  WHERE d.log_id = c.log_id) END AS tool_args,
       CASE WHEN c.status IN ('ok', 'settled') THEN 'success' WHEN c.status IS NOT NULL THEN 'error' END AS tool_status,
       -- Blocks unchanged as JSON; a text as text.
       CASE WHEN c.place IS NULL THEN (SELECT s.message ->> '$.content' FROM main.stitch_rows s
                                       WHERE s.log_id = c.log_id) END AS tool_response,
       CASE WHEN c.place IS NULL THEN (SELECT s.message ->> '$.content' FROM main.stitch_rows s
                                       WHERE s.log_id = c.log_id) END AS tool_message_content,
       c.duration_ms AS execution_latency_ms,
       CASE WHEN c.status NOT IN ('ok', 'settled') THEN 1 ELSE 0 END AS is_tool_error,
       CASE WHEN c.status NOT IN ('ok', 'settled') THEN c.status END AS error_type,
       (SELECT s.id FROM main.stitch_rows s WHERE s.log_id = c.log_id) || coalesce(' ' || c.place, '') AS row_id,
       c.run_id_row, l.id AS llm_call_id_row
FROM lens_requested_calls c
LEFT JOIN main.stitch_rows l ON l.thread_no = c.thread_no AND l.position = c.reply_to;

CREATE VIEW agent_runs AS
SELECT run_id, start_time, end_time, status, error, user_id, session_id, thread_id, input_messages, output_messages,
       model_name, tags, langgraph_metadata, total_tokens, total_cost
FROM lens_agent_runs;

CREATE VIEW llm_calls AS
SELECT llm_call_id, run_id, step_index, prompt_text, finish_reason, model_name, model_provider, usage_metadata,
       tool_call_requests, llm_output_text, error_flag, created_at, input_tokens, output_tokens
FROM lens_llm_calls;

CREATE VIEW tool_calls AS
SELECT tool_call_id, run_id, llm_call_id, tool_name, tool_args, tool_status, tool_response, tool_message_content,
       execution_latency_ms, is_tool_error, error_type
FROM lens_tool_calls;
