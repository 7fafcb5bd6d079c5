-- The record in the terms of LangSmith: runs of agents, their model calls, and the tool calls that these request. A row
-- of agent_runs is a whole turn: a top-level run with the runs of its members, which have the same thread and turn. Ids
-- are shown as the source gave them, in place of ours. All queries go through the small table: a run_id is found by
-- runs_shown, and its stitches by their run. No window functions, because conditions are not pushed into them.

-- A view with the prefix lens_ is the base of the one without. It also contains the identity of the row (row_id) and of
-- referenced rows (run_id_row), because the shown ids need not be unique. `export` needs these columns.

-- A search for the name of a field comes before parsing, which takes longer: few runs have the fields.
CREATE VIEW lens_agent_runs AS
SELECT r.shown_id AS run_id,
       lockstitch.told_time(r.started_at) AS start_time,
       lockstitch.told_time(r.completed_at) AS end_time,
       -- Never guessed: a run that has not ended has no status.
       CASE WHEN r.status = 'completed' THEN 'success' WHEN r.status IN ('failed', 'cancelled') THEN 'error' END AS status,
       CASE WHEN r.status = 'cancelled' THEN coalesce(r.error, 'cancelled') ELSE r.error END AS error,
       CASE WHEN r.source = 'native' THEN t.user_id
            ELSE coalesce(lockstitch.safe_jsonb(r.state) ->> 'user_id', t.user_id) END AS user_id,
       CASE WHEN r.source = 'native' THEN coalesce(t.key, t.id::text)
            WHEN strpos(r.state::text, '"session_id"') > 0 THEN lockstitch.safe_jsonb(r.state) ->> 'session_id' END
           AS session_id,
       CASE WHEN r.source = 'native' THEN t.id::text
            WHEN strpos(r.state::text, '"thread_id"') > 0 THEN lockstitch.safe_jsonb(r.state) ->> 'thread_id' END
           AS thread_id,
       (SELECT CASE WHEN r.source = 'native' THEN jsonb_build_array(lockstitch.safe_jsonb(i.message))
                    ELSE coalesce(lockstitch.safe_jsonb(i.data) #> '{inputs,messages}',
                                  lockstitch.safe_jsonb(i.data) -> 'inputs') END
        FROM lockstitch.stitches i
        WHERE i.thread_id = r.thread_id AND i.position = r.input_position) AS input_messages,
       CASE WHEN r.source = 'native' THEN
           (SELECT jsonb_build_array(jsonb_build_array(jsonb_build_object(
                       'text', lockstitch.text_of(said.message), 'message', said.message)))
            FROM lockstitch.stitches o, LATERAL lockstitch.safe_jsonb(o.message) AS said (message)
            WHERE o.thread_id = r.thread_id AND o.position = r.output_position AND o.message IS NOT NULL)
       ELSE
           (SELECT coalesce(nullif(said.data #> '{outputs,generations}', 'null'),
                            nullif(said.data #> '{outputs,messages}', 'null'), said.data -> 'outputs')
            FROM lockstitch.stitches o, LATERAL lockstitch.safe_jsonb(o.data) AS said (data)
            WHERE o.thread_id = r.thread_id AND o.position = r.input_position)
       END AS output_messages,
       coalesce(CASE WHEN strpos(r.metadata::text, '"ls_model_name"') > 0 AND r.source <> 'native'
                     THEN lockstitch.safe_jsonb(r.metadata) ->> 'ls_model_name' END, r.model) AS model_name,
       lockstitch.safe_jsonb(r.tags) AS tags,
       lockstitch.safe_jsonb(r.metadata) AS langgraph_metadata,
       -- The totals of the source if it has them; else the model calls of the run and of its members, each once. LIMIT:
       -- for EXISTS, PostgreSQL would read all runs first.
       coalesce(CASE WHEN strpos(r.state::text, '"total_tokens"') > 0 AND r.source <> 'native'
                     THEN (lockstitch.safe_jsonb(r.state) ->> 'total_tokens')::numeric::bigint END,
                CASE WHEN (SELECT 1 FROM lockstitch.runs member WHERE member.parent_run_id = r.id LIMIT 1) = 1 THEN
                    (SELECT sum(m.input_tokens + m.output_tokens) FROM lockstitch.runs m
                     WHERE m.thread_id = r.thread_id AND m.turn = r.turn)::bigint
                ELSE r.input_tokens + r.output_tokens END) AS total_tokens,
       coalesce(CASE WHEN strpos(r.state::text, '"total_cost"') > 0 AND r.source <> 'native'
                     THEN (lockstitch.safe_jsonb(r.state) ->> 'total_cost')::float8 END,
                CASE WHEN (SELECT 1 FROM lockstitch.runs member WHERE member.parent_run_id = r.id LIMIT 1) = 1 THEN
                    (SELECT sum(m.total_cost) FROM lockstitch.runs m
                     WHERE m.thread_id = r.thread_id AND m.turn = r.turn)
                ELSE r.total_cost END) AS total_cost,
       r.id::text AS row_id
FROM lockstitch.runs r JOIN lockstitch.threads t ON t.id = r.thread_id
WHERE r.parent_run_id IS NULL;

-- model_name, created_at and the tokens are columns of the index stitches_models, so figures over all calls read only
-- that index. Runs are LEFT JOINs, which PostgreSQL leaves out if a query selects nothing of them.
CREATE VIEW lens_llm_calls AS
SELECT s.llm_call_id,
       root.shown_id AS run_id,
       -- For an imported trace the number of the call is known. The calls of a native turn are counted, because members
       -- and calls outside the loop have separate numbers. The stitches of a turn are consecutive.
       CASE WHEN r.source <> 'native' THEN s.step_number - 1
            ELSE (SELECT count(*) FROM lockstitch.stitches e
                  WHERE e.thread_id = s.thread_id AND e.position >= root.first_position AND e.position < s.position
                    AND e.type = 'llm_call') END AS step_index,
       (SELECT coalesce(parsed ->> 'prompt', parsed #>> '{inputs,prompt}', parsed #>> '{inputs,prompts,0}')
        FROM lockstitch.safe_jsonb(s.data) AS parsed) AS prompt_text,
       coalesce(lockstitch.safe_jsonb(s.data) ->> 'finish_reason',
                CASE WHEN r.source = 'native' THEN s.status END) AS finish_reason,
       s.model AS model_name,
       coalesce(lockstitch.safe_jsonb(s.data) ->> 'provider', r.provider) AS model_provider,
       -- The counts of one of several generations. The columns of the first generation have those of the whole call.
       (SELECT CASE WHEN usage IS NOT NULL THEN nullif(usage, '{}')
                    WHEN s.input_tokens IS NOT NULL OR s.output_tokens IS NOT NULL THEN
                   jsonb_build_object('input_tokens', coalesce(s.input_tokens, 0),
                                      'output_tokens', coalesce(s.output_tokens, 0),
                                      'total_tokens', coalesce(s.input_tokens, 0) + coalesce(s.output_tokens, 0)) END
        -- Only an imported call has such counts.
        FROM (SELECT CASE WHEN s.parent_id IS NOT NULL THEN lockstitch.safe_jsonb(s.data) -> 'usage' END OFFSET 0)
            AS counted (usage)) AS usage_metadata,
       CASE WHEN s.calls > 0 THEN
           (SELECT jsonb_agg(jsonb_build_object('name', b.block -> 'name', 'args', b.block -> 'input',
                                                'id', b.block -> 'id', 'type', 'tool_call') ORDER BY b.place)
            FROM jsonb_array_elements(lockstitch.safe_jsonb(s.message) -> 'content') WITH ORDINALITY AS b (block, place)
            WHERE b.block ->> 'type' = 'tool_use')
       ELSE '[]'::jsonb END AS tool_call_requests,
       (SELECT CASE WHEN s.message IS NULL OR parsed ->> 'text' IS NOT NULL THEN parsed ->> 'text'
               ELSE lockstitch.text_of(lockstitch.safe_jsonb(s.message)) END
        FROM lockstitch.safe_jsonb(s.data) AS parsed) AS llm_output_text,
       CASE WHEN s.status IN ('error', 'refusal') THEN 1
            WHEN strpos(s.data::text, '"failed"') > 0 AND s.parent_id IS NOT NULL
                 AND lockstitch.safe_jsonb(s.data) ->> 'failed' = 'true' THEN 1
            ELSE 0 END AS error_flag,
       s.at AS created_at, s.input_tokens, s.output_tokens,
       s.id::text AS row_id, root.id::text AS run_id_row
FROM lockstitch.stitches s
LEFT JOIN lockstitch.runs r ON r.id = s.run_id
-- The top-level run of the turn. The conditions on thread and turn find the other way.
LEFT JOIN lockstitch.runs root ON root.id = CASE WHEN r.parent_run_id IS NULL THEN r.id ELSE (
        SELECT top.id FROM lockstitch.runs top
        WHERE top.thread_id = r.thread_id AND top.turn = r.turn AND top.parent_run_id IS NULL) END
    AND root.thread_id = r.thread_id AND root.turn = r.turn
WHERE s.type = 'llm_call' AND s.run_id IS NOT NULL;

CREATE VIEW lens_tool_calls AS
SELECT s.call_id AS tool_call_id,
       root.shown_id AS run_id,
       l.llm_call_id,
       s.name AS tool_name,
       CASE WHEN l.calls > 0 THEN
                lockstitch.call_of(lockstitch.safe_jsonb(l.message), s.call_index) -> 'input'
            ELSE coalesce(lockstitch.safe_jsonb(s.data) -> 'args', lockstitch.safe_jsonb(s.data) -> 'inputs') END AS tool_args,
       CASE WHEN s.status IN ('ok', 'settled') THEN 'success' WHEN s.status IS NOT NULL THEN 'error' END AS tool_status,
       -- Blocks unchanged as JSON; a text as text.
       lockstitch.safe_jsonb(s.message) ->> 'content' AS tool_response,
       lockstitch.safe_jsonb(s.message) ->> 'content' AS tool_message_content,
       s.duration_ms AS execution_latency_ms,
       CASE WHEN s.status NOT IN ('ok', 'settled') THEN 1 ELSE 0 END AS is_tool_error,
       CASE WHEN s.status NOT IN ('ok', 'settled') THEN s.status END AS error_type,
       s.id::text AS row_id, root.id::text AS run_id_row, l.id::text AS llm_call_id_row
FROM lockstitch.stitches s
LEFT JOIN lockstitch.runs r ON r.id = s.run_id
LEFT JOIN lockstitch.runs root ON root.id = CASE WHEN r.parent_run_id IS NULL THEN r.id ELSE (
        SELECT top.id FROM lockstitch.runs top
        WHERE top.thread_id = r.thread_id AND top.turn = r.turn AND top.parent_run_id IS NULL) END
    AND root.thread_id = r.thread_id AND root.turn = r.turn
LEFT JOIN lockstitch.stitches l ON l.thread_id = s.thread_id AND l.position = s.reply_to
WHERE s.type = 'tool_call' AND s.run_id IS NOT NULL
UNION ALL
-- Calls without a result come from the response: only an open native run has such calls. In an imported trace they
-- already have a row.
SELECT asked.block ->> 'id', root.shown_id, s.llm_call_id,
       asked.block ->> 'name', asked.block -> 'input', NULL, NULL, NULL, NULL, 0, NULL,
       s.id::text || ' ' || asked.place, root.id::text, s.id::text
FROM lockstitch.runs root
JOIN lockstitch.runs r ON r.thread_id = root.thread_id AND r.turn = root.turn
JOIN lockstitch.stitches s ON s.run_id = r.id
-- The index among the calls of its response identifies a call: ids may repeat.
CROSS JOIN LATERAL (
    SELECT b.block, b.place - 1 AS place, row_number() OVER (ORDER BY b.place) - 1 AS index
    FROM jsonb_array_elements(CASE WHEN s.calls > 0 THEN lockstitch.safe_jsonb(s.message) -> 'content'
                                   ELSE '[]'::jsonb END) WITH ORDINALITY AS b (block, place)
    WHERE b.block ->> 'type' = 'tool_use') AS asked
WHERE root.parent_run_id IS NULL AND r.source = 'native' AND r.status IN ('pending', 'running', 'waiting')
  AND s.type = 'llm_call' AND s.calls > 0
  -- count(), because for NOT EXISTS the planner would read all stitches.
  AND (SELECT count(*) FROM lockstitch.stitches a
       WHERE a.run_id = s.run_id AND a.type = 'tool_call' AND a.reply_to = s.position
         AND a.call_index = asked.index) = 0;

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
