-- agent_config, conversation_history and agent_runs, of the kinds chat, goal and task. Traces were not executed by an
-- agent of this store.

CREATE VIEW agent_config AS
SELECT t.id AS agent_uuid,
    coalesce(lockstitch.kept_text(settings.value -> 'texts' ->> 'system'), settings.value ->> 'system_prompt', '')
        AS system_prompt,
    regexp_replace(coalesce(nullif(settings.value ->> 'model', ''), (
        SELECT r.model FROM lockstitch.runs r WHERE r.thread_id = t.id ORDER BY r.sequence DESC LIMIT 1), ''),
        '^.*:', '')::varchar(100) AS model,
    lockstitch.whole(settings.value -> 'max_steps', 50) AS max_steps,
    lockstitch.whole(settings.value -> 'thinking_tokens', 0) AS thinking_tokens,
    lockstitch.whole(settings.value -> 'max_tokens', 2048) AS max_tokens,
    (state.now ->> 'container_id')::varchar(255) AS container_id,
    lockstitch.safe_jsonb(lockstitch.context(t.id, t.context_from)) AS messages,
    tools.schemas AS tool_schemas,
    ARRAY(SELECT element ->> 'name' FROM lockstitch.elements(tools.schemas) ORDER BY place) AS tool_names,
    coalesce(nullif(settings.value -> 'server_tools', 'null'), '[]') AS server_tools,
    ARRAY(SELECT element #>> '{}' FROM lockstitch.elements(settings.value -> 'beta_headers') ORDER BY place) AS beta_headers,
    coalesce(nullif(settings.value -> 'api_kwargs', 'null'), '{}') AS api_kwargs,
    coalesce(settings.value ->> 'formatter', 'json')::varchar(50) AS formatter,
    coalesce(settings.value -> 'stream_meta_history_and_tool_results' = 'true', false)
        AS stream_meta_history_and_tool_results,
    coalesce(settings.value ->> 'compactor_type', 'none')::varchar(50) AS compactor_type,
    coalesce(settings.value ->> 'memory_store_type', 'none')::varchar(50) AS memory_store_type,
    (SELECT coalesce(jsonb_object_agg(f.file_id, jsonb_build_object(
         'filename', f.filename, 'storage_path', f.storage_path, 'size', f.size, 'mime_type', f.mime_type,
         'created_in_run', f.created_in_run, 'last_updated_run', f.last_updated_run,
         'last_updated_at', lockstitch.told_time(f.last_updated_at))), '{}')
     FROM lockstitch.files f WHERE f.thread_id = t.id) AS file_registry,
    lockstitch.safe_jsonb(t.extras) AS extras,
    lockstitch.whole(settings.value -> 'max_retries', 5) AS max_retries,
    CASE jsonb_typeof(settings.value -> 'base_delay') WHEN 'number' THEN (settings.value -> 'base_delay')::float8 ELSE 1.0 END
        AS base_delay,
    coalesce((SELECT s.input_tokens FROM lockstitch.stitches s
              WHERE s.thread_id = t.id AND s.type = 'llm_call' AND s.input_tokens IS NOT NULL
              ORDER BY s.position DESC LIMIT 1), 0)::integer AS last_known_input_tokens,
    coalesce((SELECT s.output_tokens FROM lockstitch.stitches s
              WHERE s.thread_id = t.id AND s.type = 'llm_call' AND s.input_tokens IS NOT NULL
              ORDER BY s.position DESC LIMIT 1), 0)::integer AS last_known_output_tokens,
    CASE WHEN relay.awaiting THEN (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'tool_use_id', call.block -> 'id', 'name', call.block -> 'name', 'input', call.block -> 'input')
                   ORDER BY call.position, call.index), '[]')
        FROM (SELECT s.id AS response_id, s.position, index, lockstitch.call_at(t.id, s.position, index) AS block
              FROM lockstitch.runs r
              JOIN lockstitch.stitches s ON s.thread_id = t.id AND s.run_id = r.id AND s.type = 'llm_call',
                   generate_series(0, s.calls - 1) AS index
              WHERE r.thread_id = t.id AND r.status NOT IN ('completed', 'failed', 'cancelled')
                -- count() instead of EXISTS, for which the planner might scan all stitches.
                AND (SELECT count(*) FROM lockstitch.stitches a
                     WHERE a.run_id = r.id AND a.type = 'tool_call' AND a.reply_to = s.position
                       AND a.call_index = index) = 0) AS call
        WHERE EXISTS (SELECT 1 FROM lockstitch.elements(lockstitch.safe_jsonb(t.waiting_for)) AS one
                      WHERE one.element ->> 'kind' = 'frontend_tools'
                        -- By key: calls of several members may have the same id.
                        AND coalesce(one.element ->> 'key', replace(call.response_id::text, '-', '') || '-' || call.index)
                            = replace(call.response_id::text, '-', '') || '-' || call.index
                        AND coalesce(one.element ->> 'id', call.block ->> 'id') = call.block ->> 'id'))
        ELSE '[]' END AS pending_frontend_tools,
    CASE WHEN relay.awaiting THEN (
        SELECT coalesce(jsonb_agg(lockstitch.safe_jsonb(a.message) ORDER BY a.position), '[]')
        FROM lockstitch.runs r
        JOIN lockstitch.stitches a ON a.thread_id = t.id AND a.run_id = r.id AND a.type = 'tool_call'
        JOIN lockstitch.stitches s ON s.thread_id = t.id AND s.position = a.reply_to
        WHERE r.thread_id = t.id AND r.status NOT IN ('completed', 'failed', 'cancelled') AND a.message IS NOT NULL
          AND s.calls > (SELECT count(*) FROM lockstitch.stitches other
                         WHERE other.run_id = r.id AND other.type = 'tool_call' AND other.reply_to = s.position))
        ELSE '[]' END AS pending_backend_results,
    relay.awaiting AS awaiting_frontend_tools,
    lockstitch.whole(state.now -> 'current_step', coalesce((
        SELECT max(r.steps) FROM lockstitch.runs r
        WHERE r.thread_id = t.id AND r.status NOT IN ('completed', 'failed', 'cancelled')), 0)::integer)
        AS current_step,
    CASE WHEN relay.awaiting THEN coalesce((
        SELECT lockstitch.safe_jsonb(lockstitch.history(r.id)) FROM lockstitch.runs r
        WHERE r.thread_id = t.id AND r.parent_run_id IS NULL AND r.status NOT IN ('completed', 'failed', 'cancelled')
        ORDER BY r.sequence DESC LIMIT 1), '[]') ELSE '[]' END AS conversation_history,
    t.title::varchar(255) AS title,
    t.created_at, t.updated_at, t.last_run_at, t.total_runs::integer AS total_runs
FROM lockstitch.threads t
CROSS JOIN LATERAL (SELECT lockstitch.safe_jsonb(t.settings) AS value) AS settings
CROSS JOIN LATERAL (SELECT coalesce(
        lockstitch.safe_jsonb(lockstitch.kept_text(settings.value -> 'texts' ->> 'tools')::json),
        nullif(settings.value -> 'tool_schemas', 'null'), '[]') AS schemas) AS tools
CROSS JOIN LATERAL (SELECT (
        SELECT r.state FROM lockstitch.runs r
        WHERE r.thread_id = t.id AND r.parent_run_id IS NULL AND r.status NOT IN ('completed', 'failed', 'cancelled')
        ORDER BY r.sequence DESC LIMIT 1) AS state) AS open
CROSS JOIN LATERAL (SELECT lockstitch.merged(
        lockstitch.safe_jsonb(t.state), coalesce(lockstitch.safe_jsonb(open.state), '{}')) AS now) AS state
CROSS JOIN LATERAL (SELECT t.status = 'waiting' AND EXISTS (
        SELECT 1 FROM lockstitch.elements(lockstitch.safe_jsonb(t.waiting_for))
        WHERE element ->> 'kind' = 'frontend_tools') AS awaiting) AS relay
WHERE t.kind IN ('chat', 'goal', 'task');

-- Finished turns. Those of an archived turn are unpacked when they are selected.
CREATE VIEW conversation_history AS
SELECT r.id AS conversation_id, r.thread_id AS agent_uuid, r.id AS run_id, r.started_at, r.completed_at,
    lockstitch.text_of(lockstitch.message_at(r.thread_id, r.input_position)) AS user_message,
    (SELECT lockstitch.answer_of(answer) FROM lockstitch.message_at(r.thread_id, r.output_position) AS answer
     WHERE answer IS NOT NULL) AS final_response,
    lockstitch.safe_jsonb(lockstitch.history(r.id)) AS messages,
    r.stop_reason::varchar(50) AS stop_reason,
    r.steps::integer AS total_steps,
    jsonb_build_object('input_tokens', r.input_tokens, 'output_tokens', r.output_tokens,
        'cache_creation_input_tokens', r.cache_write_tokens, 'cache_read_input_tokens', r.cache_read_tokens) AS usage,
    -- As the run recorded them, because a later run may change them, and those that were stored without its state.
    (SELECT coalesce(jsonb_agg(shown ORDER BY shown ->> 'file_id' COLLATE "C"), '[]') FROM (
         SELECT recorded.element FROM lockstitch.elements(lockstitch.safe_jsonb(r.state) -> 'files') AS recorded
         WHERE jsonb_typeof(recorded.element) = 'object'
         UNION ALL
         SELECT jsonb_build_object(
             'file_id', f.file_id, 'filename', f.filename, 'storage_path', f.storage_path, 'size', f.size,
             'mime_type', f.mime_type, 'step', f.step, 'timestamp', lockstitch.told_time(f.last_updated_at))
         FROM lockstitch.files f WHERE f.thread_id = r.thread_id AND f.last_updated_run = r.id
           AND NOT EXISTS (SELECT 1 FROM lockstitch.elements(lockstitch.safe_jsonb(r.state) -> 'files') AS recorded
                           WHERE recorded.element ->> 'file_id' = f.file_id)) AS files (shown)) AS generated_files,
    CASE WHEN lockstitch.safe_jsonb(r.cost) ->> 'total_cost' IS NULL THEN '{}'
         ELSE lockstitch.safe_jsonb(r.cost) END AS cost,
    lockstitch.safe_jsonb(r.extras) AS extras,
    r.turn::integer AS sequence_number,
    coalesce(r.completed_at, r.started_at) AS created_at,
    -- The document queries these two columns, which its table does not have.
    r.input_tokens, r.output_tokens
FROM lockstitch.runs r JOIN lockstitch.threads t ON t.id = r.thread_id
WHERE r.parent_run_id IS NULL AND r.status IN ('completed', 'failed', 'cancelled') AND t.kind IN ('chat', 'goal', 'task');

-- Added: the finished turns that each thread shows. A fork also shows the turns before the fork. They stay rows of the
-- thread that executed them, so conversation_history has each turn once, and sums count it once.
CREATE VIEW visible_turns AS
SELECT r.thread_id AS agent_uuid, r.id AS run_id, r.turn::integer AS sequence_number, NULL::uuid AS inherited_from,
    false AS cut
FROM lockstitch.runs r JOIN lockstitch.threads t ON t.id = r.thread_id
WHERE r.parent_run_id IS NULL AND r.status IN ('completed', 'failed', 'cancelled') AND t.kind IN ('chat', 'goal', 'task')
UNION ALL
SELECT t.id, r.id, r.turn::integer, r.thread_id, coalesce(r.output_position > lockstitch.whole(part.element -> 'position', 0), false)
FROM lockstitch.threads t
CROSS JOIN LATERAL lockstitch.elements(lockstitch.safe_jsonb(t.state) -> 'inherited') AS part
-- The state is JSON of any writer. One wrong value must not make the view unreadable.
JOIN lockstitch.runs r ON r.thread_id = CASE WHEN part.element ->> 'thread_id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                                             THEN (part.element ->> 'thread_id')::uuid END
    AND r.turn BETWEEN lockstitch.whole(part.element -> 'first_turn', 1) AND lockstitch.whole(part.element -> 'last_turn', 0)
WHERE r.parent_run_id IS NULL AND r.status IN ('completed', 'failed', 'cancelled') AND t.kind IN ('chat', 'goal', 'task');

-- The log. One branch for each name that differs from the core's, so that a condition on action_type can use the
-- indexes of the core. The last branch has the archived runs, without the messages that were sent.
CREATE VIEW agent_runs AS
SELECT s.log_id, s.thread_id AS agent_uuid, s.run_id, s.at AS "timestamp", s.step_number::integer AS step_number,
    'api_response_received'::varchar AS action_type,
    lockstitch.merged(
        lockstitch.merged(lockstitch.safe_jsonb(s.data), jsonb_build_object(
            'stop_reason', s.status, 'usage', jsonb_strip_nulls(jsonb_build_object(
                'input_tokens', s.input_tokens, 'output_tokens', s.output_tokens,
                'cache_creation_input_tokens', s.cache_write_tokens, 'cache_read_input_tokens', s.cache_read_tokens)))),
        CASE WHEN s.message IS NULL THEN '{}'
        ELSE jsonb_build_object('content', lockstitch.safe_jsonb(s.message) -> 'content') END) AS action_data,
    NULL::jsonb AS messages_snapshot, s.messages_count::integer AS messages_count,
    s.estimated_tokens::integer AS estimated_tokens, s.duration_ms::integer AS duration_ms
FROM lockstitch.stitches s JOIN lockstitch.threads t ON t.id = s.thread_id
WHERE s.type = 'llm_call' AND s.run_id IS NOT NULL AND t.kind IN ('chat', 'goal', 'task')
UNION ALL
SELECT s.log_id, s.thread_id, s.run_id, s.at, s.step_number::integer,
    'tool_execution'::varchar,
    lockstitch.merged(lockstitch.safe_jsonb(s.data), jsonb_build_object('tool_name', s.name, 'tool_use_id', s.call_id,
        'input', lockstitch.call_at(s.thread_id, s.reply_to, s.call_index) -> 'input',
        'result', lockstitch.result_value(lockstitch.safe_jsonb(s.message) -> 'content'),
        'success', coalesce(lockstitch.safe_jsonb(s.message) -> 'is_error', 'false') <> 'true',
        'execution_time_ms', s.duration_ms)),
    NULL::jsonb, s.messages_count::integer, s.estimated_tokens::integer, s.duration_ms::integer
FROM lockstitch.stitches s JOIN lockstitch.threads t ON t.id = s.thread_id
WHERE s.type = 'tool_call' AND s.run_id IS NOT NULL AND t.kind IN ('chat', 'goal', 'task')
UNION ALL
SELECT s.log_id, s.thread_id, s.run_id, s.at, s.step_number::integer,
    'api_call_started'::varchar,
    lockstitch.merged(lockstitch.safe_jsonb(s.data), jsonb_build_object('messages_sent', sent.messages)),
    sent.messages, s.messages_count::integer, s.estimated_tokens::integer, s.duration_ms::integer
FROM lockstitch.stitches s JOIN lockstitch.threads t ON t.id = s.thread_id
CROSS JOIN LATERAL (SELECT lockstitch.safe_jsonb(lockstitch.context_before(s.thread_id, s.position)) AS messages) AS sent
WHERE s.type = 'api_call_started' AND s.run_id IS NOT NULL AND t.kind IN ('chat', 'goal', 'task')
UNION ALL
SELECT s.log_id, s.thread_id, s.run_id, s.at, s.step_number::integer,
    s.type::varchar,
    lockstitch.merged(lockstitch.safe_jsonb(s.data), CASE s.type
        WHEN 'run_started' THEN jsonb_build_object('user_message', coalesce((
            SELECT lockstitch.text_at(r.thread_id, r.input_position) FROM lockstitch.runs r WHERE r.id = s.run_id), ''))
        WHEN 'run_completed' THEN jsonb_build_object('final_response', (
            SELECT lockstitch.answer_at(r.thread_id, r.output_position) FROM lockstitch.runs r WHERE r.id = s.run_id))
        ELSE '{}' END),
    NULL::jsonb, s.messages_count::integer, s.estimated_tokens::integer, s.duration_ms::integer
FROM lockstitch.stitches s JOIN lockstitch.threads t ON t.id = s.thread_id
WHERE s.type NOT IN ('llm_call', 'tool_call', 'api_call_started') AND s.run_id IS NOT NULL
  AND s.type NOT IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error')
  AND t.kind IN ('chat', 'goal', 'task')
UNION ALL
-- The document looks for errors by this name. action_data has the type of the stitch.
SELECT s.log_id, s.thread_id, s.run_id, s.at, s.step_number::integer,
    'error'::varchar,
    lockstitch.merged(lockstitch.safe_jsonb(s.data), jsonb_build_object('stitch_type', s.type)),
    NULL::jsonb, s.messages_count::integer, s.estimated_tokens::integer, s.duration_ms::integer
FROM lockstitch.stitches s JOIN lockstitch.threads t ON t.id = s.thread_id
WHERE s.type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error') AND s.run_id IS NOT NULL
  AND t.kind IN ('chat', 'goal', 'task')
UNION ALL
SELECT s.log_id, t.id, r.id, s.at, s.step_number::integer,
    CASE WHEN s.type = 'llm_call' THEN 'api_response_received' WHEN s.type = 'tool_call' THEN 'tool_execution'
         WHEN s.type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error') THEN 'error'
         ELSE s.type END::varchar,
    lockstitch.merged(lockstitch.safe_jsonb(s.data), CASE s.type
        WHEN 'run_started' THEN
            jsonb_build_object('user_message', lockstitch.text_of(lockstitch.message_at(r.thread_id, r.input_position)))
        WHEN 'run_completed' THEN jsonb_build_object('final_response', (
            SELECT lockstitch.answer_of(answer) FROM lockstitch.message_at(r.thread_id, r.output_position) AS answer
            WHERE answer IS NOT NULL))
        WHEN 'llm_call' THEN lockstitch.merged(
            jsonb_build_object('stop_reason', s.status, 'usage', jsonb_strip_nulls(jsonb_build_object(
                'input_tokens', s.input_tokens, 'output_tokens', s.output_tokens,
                'cache_creation_input_tokens', s.cache_write_tokens, 'cache_read_input_tokens', s.cache_read_tokens))),
            CASE WHEN s.message IS NULL THEN '{}'
            ELSE jsonb_build_object('content', lockstitch.safe_jsonb(s.message) -> 'content') END)
        WHEN 'tool_call' THEN jsonb_build_object('tool_name', s.name, 'tool_use_id', s.call_id,
            'input', lockstitch.call_of(lockstitch.message_at(r.thread_id, s.reply_to), s.call_index) -> 'input',
            'result', lockstitch.result_value(lockstitch.safe_jsonb(s.message) -> 'content'),
            'success', coalesce(lockstitch.safe_jsonb(s.message) -> 'is_error', 'false') <> 'true',
            'execution_time_ms', s.duration_ms)
        ELSE CASE WHEN s.type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error')
                  THEN jsonb_build_object('stitch_type', s.type) ELSE '{}' END END),
    NULL::jsonb, s.messages_count::integer, s.estimated_tokens::integer, s.duration_ms::integer
FROM lockstitch.runs r
JOIN lockstitch.archives a ON a.thread_id = r.thread_id AND r.first_position BETWEEN a.first_position AND a.last_position
JOIN lockstitch.threads t ON t.id = r.thread_id
CROSS JOIN LATERAL lockstitch.unpacked(a.content) AS s
WHERE s.run_id = r.id AND t.kind IN ('chat', 'goal', 'task')
  AND NOT EXISTS (SELECT 1 FROM lockstitch.stitches live
                  WHERE live.thread_id = a.thread_id AND live.position = a.first_position);
