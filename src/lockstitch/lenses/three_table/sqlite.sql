-- agent_config, conversation_history and agent_runs, of the kinds chat, goal and task. Traces were not executed by an
-- agent of this store. JSONB and TEXT[] are JSON as text, UUID and TIMESTAMPTZ are text, BOOLEAN is 0 or 1.

CREATE VIEW agent_config AS
SELECT t.id AS agent_uuid,
    coalesce((SELECT CAST(b.content AS TEXT) FROM main.blobs b WHERE b.sha256 = t.settings ->> '$.texts.system'),
             t.settings ->> '$.system_prompt', '') AS system_prompt,
    substr(CASE WHEN instr(m.model, ':') THEN replace(m.model, rtrim(m.model, replace(m.model, ':', '')), '')
                ELSE m.model END, 1, 100) AS model,
    CASE WHEN json_type(t.settings, '$.max_steps') IN ('integer', 'real') THEN CAST(t.settings ->> '$.max_steps' AS INTEGER)
         ELSE 50 END AS max_steps,
    CASE WHEN json_type(t.settings, '$.thinking_tokens') IN ('integer', 'real')
         THEN CAST(t.settings ->> '$.thinking_tokens' AS INTEGER) ELSE 0 END AS thinking_tokens,
    CASE WHEN json_type(t.settings, '$.max_tokens') IN ('integer', 'real')
         THEN CAST(t.settings ->> '$.max_tokens' AS INTEGER) ELSE 2048 END AS max_tokens,
    CASE WHEN json_type(open.state, '$.container_id') IS NOT NULL THEN open.state ->> '$.container_id'
         ELSE t.state ->> '$.container_id' END AS container_id,
    coalesce((SELECT c.messages FROM lens_context c WHERE c.thread_id = t.id AND c.position = t.position), '[]')
        AS messages,
    tools.schemas AS tool_schemas,
    (SELECT json_group_array(e.value ->> '$.name') FROM json_each(tools.schemas) e) AS tool_names,
    coalesce(nullif(t.settings -> '$.server_tools', 'null'), '[]') AS server_tools,
    coalesce(nullif(t.settings -> '$.beta_headers', 'null'), '[]') AS beta_headers,
    coalesce(nullif(t.settings -> '$.api_kwargs', 'null'), '{}') AS api_kwargs,
    coalesce(t.settings ->> '$.formatter', 'json') AS formatter,
    coalesce(t.settings -> '$.stream_meta_history_and_tool_results' = 'true', 0) AS stream_meta_history_and_tool_results,
    coalesce(t.settings ->> '$.compactor_type', 'none') AS compactor_type,
    coalesce(t.settings ->> '$.memory_store_type', 'none') AS memory_store_type,
    (SELECT json_group_object(f.file_id, json_object(
         'filename', f.filename, 'storage_path', f.storage_path, 'size', f.size, 'mime_type', f.mime_type,
         'created_in_run', f.created_in_run, 'last_updated_run', f.last_updated_run,
         'last_updated_at', f.last_updated_at)) FROM main.files f WHERE f.thread_id = t.id) AS file_registry,
    t.extras,
    CASE WHEN json_type(t.settings, '$.max_retries') IN ('integer', 'real')
         THEN CAST(t.settings ->> '$.max_retries' AS INTEGER) ELSE 5 END AS max_retries,
    CASE WHEN json_type(t.settings, '$.base_delay') IN ('integer', 'real')
         THEN CAST(t.settings ->> '$.base_delay' AS REAL) ELSE 1.0 END AS base_delay,
    coalesce((SELECT s.input_tokens FROM main.stitches s
              WHERE s.thread_id = t.id AND s.type = 'llm_call' AND s.input_tokens IS NOT NULL
              ORDER BY s.position DESC LIMIT 1), 0) AS last_known_input_tokens,
    coalesce((SELECT s.output_tokens FROM main.stitches s
              WHERE s.thread_id = t.id AND s.type = 'llm_call' AND s.input_tokens IS NOT NULL
              ORDER BY s.position DESC LIMIT 1), 0) AS last_known_output_tokens,
    CASE WHEN relay.awaiting THEN (
        SELECT json_group_array(json(shown)) FROM (
            SELECT json_object('tool_use_id', c.call ->> '$.id', 'name', c.call ->> '$.name',
                               'input', json(c.call -> '$.input')) AS shown
            FROM main.runs r JOIN lens_calls c ON c.run_id = r.id
            WHERE r.thread_id = t.id AND r.status NOT IN ('completed', 'failed', 'cancelled')
              AND NOT EXISTS (SELECT 1 FROM main.stitches a
                              WHERE a.run_id = r.id AND a.type = 'tool_call' AND a.reply_to = c.position
                                AND a.call_index = c.call_index)
              AND EXISTS (SELECT 1 FROM json_each(t.waiting_for) w
                          WHERE w.value ->> '$.kind' = 'frontend_tools'
                            -- By key: calls of several members may have the same id.
                            AND coalesce(w.value ->> '$.key', replace(c.response_id, '-', '') || '-' || c.call_index)
                                = replace(c.response_id, '-', '') || '-' || c.call_index
                            AND coalesce(w.value ->> '$.id', c.call ->> '$.id') = c.call ->> '$.id')
            ORDER BY c.position, c.call_index)) ELSE '[]' END AS pending_frontend_tools,
    CASE WHEN relay.awaiting THEN (
        SELECT '[' || coalesce(group_concat(message, ','), '') || ']' FROM (
            SELECT a.message FROM main.runs r JOIN main.stitches a ON a.run_id = r.id AND a.type = 'tool_call'
            JOIN main.stitches s ON s.thread_id = t.id AND s.position = a.reply_to
            WHERE r.thread_id = t.id AND r.status NOT IN ('completed', 'failed', 'cancelled') AND a.message IS NOT NULL
              AND s.calls > (SELECT count(*) FROM main.stitches other
                             WHERE other.run_id = r.id AND other.type = 'tool_call' AND other.reply_to = s.position)
            ORDER BY a.position)) ELSE '[]' END AS pending_backend_results,
    relay.awaiting AS awaiting_frontend_tools,
    coalesce(CASE WHEN json_type(open.state, '$.current_step') IN ('integer', 'real')
                  THEN CAST(open.state ->> '$.current_step' AS INTEGER)
                  WHEN json_type(t.state, '$.current_step') IN ('integer', 'real')
                  THEN CAST(t.state ->> '$.current_step' AS INTEGER) END,
             (SELECT max(r.steps) FROM main.runs r
              WHERE r.thread_id = t.id AND r.status NOT IN ('completed', 'failed', 'cancelled')), 0) AS current_step,
    CASE WHEN relay.awaiting THEN coalesce((SELECT h.messages FROM lens_history h WHERE h.run_id = open.id), '[]')
         ELSE '[]' END AS conversation_history,
    t.title, t.created_at, t.updated_at, t.last_run_at, t.total_runs
FROM main.threads t
LEFT JOIN main.run_rows open ON open.id = (
    SELECT r.id FROM main.runs r
    WHERE r.thread_id = t.id AND r.parent_run_id IS NULL AND r.status NOT IN ('completed', 'failed', 'cancelled')
    ORDER BY r.sequence DESC LIMIT 1)
JOIN (SELECT one.id, coalesce(nullif(one.settings ->> '$.model', ''), (
          SELECT r.model FROM main.runs r WHERE r.thread_id = one.id ORDER BY r.sequence DESC LIMIT 1), '') AS model
      FROM main.threads one) AS m ON m.id = t.id
JOIN (SELECT one.id, coalesce((
          SELECT CAST(b.content AS TEXT) FROM main.blobs b WHERE b.sha256 = one.settings ->> '$.texts.tools'),
          nullif(one.settings -> '$.tool_schemas', 'null'), '[]') AS schemas
      FROM main.threads one) AS tools ON tools.id = t.id
JOIN (SELECT one.id, one.status = 'waiting' AND EXISTS (
          SELECT 1 FROM json_each(one.waiting_for) w WHERE w.value ->> '$.kind' = 'frontend_tools') AS awaiting
      FROM main.threads one) AS relay ON relay.id = t.id
WHERE t.kind IN ('chat', 'goal', 'task');

-- Finished turns. Those of an archived turn are unpacked when they are selected.
CREATE VIEW conversation_history AS
SELECT r.id AS conversation_id, r.thread_id AS agent_uuid, r.id AS run_id, r.started_at, r.completed_at,
    coalesce((SELECT l.text FROM lens_texts l WHERE l.thread_id = r.thread_id AND l.position = r.input_position),
             (SELECT l.text FROM lens_archived_texts l
              WHERE l.thread_id = r.thread_id AND l.first_position <= r.input_position AND l.last_position >= r.input_position AND l.position = r.input_position), '') AS user_message,
    coalesce((SELECT l.answer FROM lens_texts l WHERE l.thread_id = r.thread_id AND l.position = r.output_position),
             (SELECT l.answer FROM lens_archived_texts l
              WHERE l.thread_id = r.thread_id AND l.first_position <= r.output_position AND l.last_position >= r.output_position AND l.position = r.output_position)) AS final_response,
    (SELECT h.messages FROM lens_history h WHERE h.run_id = r.id) AS messages,
    r.stop_reason,
    r.steps AS total_steps,
    json_object('input_tokens', r.input_tokens, 'output_tokens', r.output_tokens,
        'cache_creation_input_tokens', r.cache_write_tokens, 'cache_read_input_tokens', r.cache_read_tokens) AS usage,
    -- As the run recorded them, because a later run may change them, and those that were stored without its state.
    (SELECT json_group_array(json(shown)) FROM (
         SELECT e.value AS shown, e.value ->> '$.file_id' AS file_id FROM json_each(r.state, '$.files') e
         WHERE e.type = 'object'
         UNION ALL
         SELECT json_object('file_id', f.file_id, 'filename', f.filename, 'storage_path', f.storage_path, 'size', f.size,
                            'mime_type', f.mime_type, 'step', f.step, 'timestamp', f.last_updated_at), f.file_id
         FROM main.files f WHERE f.thread_id = r.thread_id AND f.last_updated_run = r.id
           AND NOT EXISTS (SELECT 1 FROM json_each(r.state, '$.files') e
                           WHERE e.type = 'object' AND e.value ->> '$.file_id' = f.file_id)
         ORDER BY file_id)) AS generated_files,
    CASE WHEN r.cost ->> '$.total_cost' IS NULL THEN '{}' ELSE r.cost END AS cost, r.extras,
    r.turn AS sequence_number,
    coalesce(r.completed_at, r.started_at) AS created_at,
    -- The document queries these two columns, which its table does not have.
    r.input_tokens, r.output_tokens
FROM main.runs r JOIN main.threads t ON t.id = r.thread_id
WHERE r.parent_run_id IS NULL AND r.status IN ('completed', 'failed', 'cancelled') AND t.kind IN ('chat', 'goal', 'task');

-- Added: the finished turns that each thread shows. A fork also shows the turns before the fork. They stay rows of the
-- thread that executed them, so conversation_history has each turn once, and sums count it once.
CREATE VIEW visible_turns AS
SELECT t.id AS agent_uuid, r.id AS run_id, r.turn AS sequence_number, CAST(NULL AS TEXT) AS inherited_from, 0 AS cut
FROM main.threads t JOIN main.run_rows r ON r.thread_no = t.no
WHERE r.parent_run_id IS NULL AND r.status IN ('completed', 'failed', 'cancelled') AND t.kind IN ('chat', 'goal', 'task')
UNION ALL
SELECT t.id, r.id, r.turn, source.id, coalesce(r.output_position > t.state ->> (part.fullkey || '.position'), 0)
FROM main.threads t
CROSS JOIN json_each(t.state, '$.inherited') part
CROSS JOIN main.threads source ON source.id = t.state ->> (part.fullkey || '.thread_id')
CROSS JOIN main.run_rows r ON r.thread_no = source.no
    AND r.turn BETWEEN t.state ->> (part.fullkey || '.first_turn') AND t.state ->> (part.fullkey || '.last_turn')
WHERE r.parent_run_id IS NULL AND r.status IN ('completed', 'failed', 'cancelled') AND t.kind IN ('chat', 'goal', 'task');

-- The log. One branch for each name that differs from the core's, so that a condition on action_type can use the
-- indexes of the core. For that SQLite needs the plain columns first, and a column must be text in every branch or in
-- none. The last branch has the archived runs, without the messages that were sent.
CREATE VIEW agent_runs AS
SELECT s.log_id, t.id AS agent_uuid, r.id AS run_id, s.at AS timestamp, s.step_number,
    s.type AS action_type,
    CAST(CASE s.type
        WHEN 'run_started' THEN json_set(coalesce(s.data, '{}'), '$.user_message', coalesce((
            SELECT l.text FROM lens_texts l WHERE l.thread_id = t.id AND l.position = r.input_position), ''))
        WHEN 'run_completed' THEN json_set(coalesce(s.data, '{}'), '$.final_response', (
            SELECT l.answer FROM lens_texts l WHERE l.thread_id = t.id AND l.position = r.output_position))
        ELSE coalesce(s.data, '{}') END AS TEXT) AS action_data,
    CAST(NULL AS TEXT) AS messages_snapshot, s.messages_count, s.estimated_tokens, s.duration_ms
FROM main.stitch_rows s JOIN main.threads t ON t.no = s.thread_no JOIN main.run_rows r ON r.no = s.run_no
WHERE s.type NOT IN ('llm_call', 'tool_call', 'api_call_started')
  AND s.type NOT IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error')
  AND t.kind IN ('chat', 'goal', 'task')
UNION ALL
-- The document looks for errors by this name. action_data has the type of the stitch.
SELECT s.log_id, t.id, r.id, s.at, s.step_number,
    CAST('error' AS TEXT),
    CAST(json_set(coalesce(s.data, '{}'), '$.stitch_type', s.type) AS TEXT),
    CAST(NULL AS TEXT), s.messages_count, s.estimated_tokens, s.duration_ms
FROM main.stitch_rows s JOIN main.threads t ON t.no = s.thread_no JOIN main.run_rows r ON r.no = s.run_no
WHERE s.type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error')
  AND t.kind IN ('chat', 'goal', 'task')
UNION ALL
SELECT s.log_id, t.id AS agent_uuid, r.id AS run_id, s.at AS timestamp, s.step_number,
    CAST('api_response_received' AS TEXT) AS action_type,
    CAST(json_set(CASE WHEN s.message IS NULL THEN coalesce(s.data, '{}')
                  ELSE json_set(coalesce(s.data, '{}'), '$.content', json(s.message -> '$.content')) END,
        '$.stop_reason', s.status,
        '$.usage', json_patch('{}', json_object('input_tokens', s.input_tokens, 'output_tokens', s.output_tokens,
            'cache_creation_input_tokens', s.cache_write_tokens, 'cache_read_input_tokens', s.cache_read_tokens)))
        AS TEXT) AS action_data,
    CAST(NULL AS TEXT) AS messages_snapshot, s.messages_count, s.estimated_tokens, s.duration_ms
FROM main.stitch_rows s JOIN main.threads t ON t.no = s.thread_no JOIN main.run_rows r ON r.no = s.run_no
WHERE s.type = 'llm_call' AND t.kind IN ('chat', 'goal', 'task')
UNION ALL
SELECT s.log_id, t.id, r.id, s.at, s.step_number,
    CAST('tool_execution' AS TEXT),
    CAST(json_set(coalesce(s.data, '{}'), '$.tool_name', s.name, '$.tool_use_id', s.call_id,
        '$.input', json((SELECT c.call -> '$.input' FROM lens_calls c
                         WHERE c.thread_id = t.id AND c.position = s.reply_to AND c.call_index = s.call_index)),
        '$.result', json(iif(s.message ->> '$.content' GLOB '{*' AND json_valid(s.message ->> '$.content'),
            s.message ->> '$.content', s.message -> '$.content')),
        '$.success', json(iif(coalesce(s.message -> '$.is_error', 'false') <> 'true', 'true', 'false')),
        '$.execution_time_ms', s.duration_ms) AS TEXT),
    CAST(NULL AS TEXT), s.messages_count, s.estimated_tokens, s.duration_ms
FROM main.stitch_rows s JOIN main.threads t ON t.no = s.thread_no JOIN main.run_rows r ON r.no = s.run_no
WHERE s.type = 'tool_call' AND t.kind IN ('chat', 'goal', 'task')
UNION ALL
SELECT s.log_id, t.id, r.id, s.at, s.step_number,
    CAST('api_call_started' AS TEXT),
    CAST(json_set(coalesce(s.data, '{}'), '$.messages_sent', json((
        SELECT c.messages FROM lens_context c WHERE c.stitch_id = s.id))) AS TEXT),
    CAST((SELECT c.messages FROM lens_context c WHERE c.stitch_id = s.id) AS TEXT),
    s.messages_count, s.estimated_tokens, s.duration_ms
FROM main.stitch_rows s JOIN main.threads t ON t.no = s.thread_no JOIN main.run_rows r ON r.no = s.run_no
WHERE s.type = 'api_call_started' AND t.kind IN ('chat', 'goal', 'task')
UNION ALL
SELECT s.log_id, t.id, r.id, s.at, s.step_number,
    CAST(CASE WHEN s.type = 'llm_call' THEN 'api_response_received' WHEN s.type = 'tool_call' THEN 'tool_execution'
              WHEN s.type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error') THEN 'error'
              ELSE s.type END AS TEXT),
    CAST(CASE s.type
        WHEN 'run_started' THEN json_set(s.data, '$.user_message', coalesce((
            SELECT l.text FROM lens_archived_texts l
              WHERE l.thread_id = t.id AND l.first_position <= r.input_position AND l.last_position >= r.input_position AND l.position = r.input_position), ''))
        WHEN 'run_completed' THEN json_set(s.data, '$.final_response', (
            SELECT l.answer FROM lens_archived_texts l
              WHERE l.thread_id = t.id AND l.first_position <= r.output_position AND l.last_position >= r.output_position AND l.position = r.output_position))
        WHEN 'llm_call' THEN json_set(
            CASE WHEN s.message IS NULL THEN s.data ELSE json_set(s.data, '$.content', json(s.message -> '$.content')) END,
            '$.stop_reason', s.status,
            '$.usage', json_patch('{}', json_object('input_tokens', s.input_tokens, 'output_tokens', s.output_tokens,
                'cache_creation_input_tokens', s.cache_write_tokens, 'cache_read_input_tokens', s.cache_read_tokens)))
        WHEN 'tool_call' THEN json_set(s.data, '$.tool_name', s.name, '$.tool_use_id', s.call_id,
            '$.input', json((
                SELECT b.value -> '$.input' FROM lens_archived c CROSS JOIN json_each(c.message, '$.content') b
                WHERE c.thread_id = t.id AND c.first_position = s.first_position AND c.last_position >= s.reply_to
                  AND c.position = s.reply_to AND b.type = 'object' AND b.value ->> '$.type' = 'tool_use'
                  AND s.call_index = (SELECT count(*) FROM json_each(c.message, '$.content') d
                                      WHERE d.key < b.key AND d.type = 'object' AND d.value ->> '$.type' = 'tool_use'))),
            '$.result', json(iif(s.message ->> '$.content' GLOB '{*' AND json_valid(s.message ->> '$.content'),
            s.message ->> '$.content', s.message -> '$.content')),
            '$.success', json(iif(coalesce(s.message -> '$.is_error', 'false') <> 'true', 'true', 'false')),
            '$.execution_time_ms', s.duration_ms)
        ELSE CASE WHEN s.type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error')
                  THEN json_set(s.data, '$.stitch_type', s.type) ELSE s.data END END AS TEXT),
    CAST(NULL AS TEXT), s.messages_count, s.estimated_tokens, s.duration_ms
FROM main.threads t JOIN main.run_rows r ON r.thread_no = t.no JOIN lens_archived s
    ON s.thread_id = t.id AND s.first_position <= r.first_position AND s.last_position >= r.first_position
WHERE s.run_id = r.id AND r.first_position < t.first_position AND t.kind IN ('chat', 'goal', 'task');
