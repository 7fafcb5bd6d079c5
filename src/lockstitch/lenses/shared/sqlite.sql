-- Views that lenses share. SQLite has no functions in SQL, so lenses look up rows in these views by the id of a thread
-- or run. Lists are built as text, in which content is unchanged. SQLite 3.40 has no ORDER BY inside aggregates: a
-- subquery orders the rows, and its sort is stable.

-- The complete data of stitches. That of imported ones is packed.
CREATE VIEW lens_data AS
SELECT s.log_id, s.thread_no, s.position, s.message,
       CASE WHEN s.packed IS NULL THEN s.data
            ELSE lockstitch_data((SELECT p.content FROM main.packed_data p WHERE p.no = s.packed), s.position) END AS data
FROM main.stitch_rows s;

-- The context of the thread's own lane at one of its stitches. The context of the last stitch is that for the next
-- model call. As in model/context.py it starts at the last compaction or fork. A stitch contributes at its position,
-- tool results at the position of their response: rows are grouped by that position, and results enter when all are
-- present. It uses the table behind main.stitches, because SQLite would compute that whole view to join it from the
-- left.
CREATE VIEW lens_context AS
SELECT t.id AS thread_id, at.position, at.id AS stitch_id, (
    SELECT '[' || coalesce(group_concat(said, ','), '') || ']' FROM (
        SELECT CASE WHEN results >= calls AND results > 0
                    THEN coalesce(message || ',', '') || '{"role":"user","content":[' || blocks || ']}'
                    ELSE message END AS said
        FROM (
            SELECT place, max(calls) AS calls, max(stands) AS stands, max(message) AS message,
                   count(block) AS results, group_concat(block, ',') AS blocks
            FROM (
                SELECT CASE s.type WHEN 'tool_call' THEN s.reply_to ELSE s.position END AS place, s.call_index,
                       s.type <> 'tool_call' AS stands,
                       CASE s.type WHEN 'llm_call' THEN coalesce(s.calls, 0) ELSE 0 END AS calls,
                       CASE WHEN s.type = 'tool_call' THEN NULL
                            WHEN s.new IS NOT NULL THEN
                                CASE substr(s.new, 1, 1) WHEN '[' THEN nullif(substr(s.new, 2, length(s.new) - 2), '')
                                     ELSE s.new END
                            WHEN s.type = 'fork' THEN
                                nullif(substr(s.data -> '$.messages', 2, length(s.data -> '$.messages') - 2), '')
                            ELSE s.message END AS message,
                       CASE WHEN s.type = 'tool_call' AND s.message IS NOT NULL THEN coalesce(s.new, s.message) END
                           AS block
                FROM (
                    SELECT late.position, late.type, late.reply_to, late.call_index, late.calls, late.message, late.data,
                           NULL AS new
                    FROM main.stitch_rows late
                    WHERE late.thread_no = at.thread_no AND late.position >= coalesce(start.position, 0)
                      AND late.position <= at.position AND late.lane IS NULL
                    UNION ALL
                    SELECT early.position, early.type, early.reply_to, early.call_index, early.calls, early.message,
                           early.data, start.data -> ('$.replace."' || early.position || '"')
                    FROM main.stitch_rows early
                    WHERE early.thread_no = at.thread_no AND early.lane IS NULL AND +early.position < start.position
                      AND start.type = 'compaction'
                      AND early.position IN (
                          SELECT one.position FROM json_each(start.data, '$.keep') k CROSS JOIN main.stitch_rows one
                          WHERE one.thread_no = at.thread_no
                            AND one.position BETWEEN json_extract(k.value, '$[0]') AND json_extract(k.value, '$[1]')
                          UNION ALL
                          SELECT CAST(r.key AS INTEGER) FROM json_each(start.data, '$.replace') r)) AS s
                ORDER BY place, s.call_index)
            WHERE place IS NOT NULL
            GROUP BY place ORDER BY place)
        WHERE stands)
    WHERE said IS NOT NULL) AS messages
FROM main.stitch_rows at JOIN main.threads t ON t.no = at.thread_no
LEFT JOIN main.stitch_rows start ON start.thread_no = at.thread_no AND start.position = (
    CASE WHEN t.context_from <= at.position THEN t.context_from
         ELSE (SELECT c.position FROM main.stitch_rows c
               WHERE c.thread_no = at.thread_no AND c.position <= at.position AND c.lane IS NULL
                 AND (c.type = 'fork' OR (c.type = 'compaction' AND c.data -> '$.applied' = 'true'))
               ORDER BY c.position DESC LIMIT 1) END);

-- The stitches of archives. A lookup needs a position between first_position and last_position: each row is read by
-- unpacking its whole archive. The casts give the columns the types of those in main.stitches. An archive whose rows are
-- not deleted yet is not shown: its stitches would be there twice.
CREATE VIEW lens_archived AS
SELECT a.thread_id, a.first_position, a.last_position,
    CAST(e.value ->> '$.log_id' AS INTEGER) AS log_id, CAST(e.value ->> '$.position' AS INTEGER) AS position,
    CAST(e.value ->> '$.run_id' AS TEXT) AS run_id, CAST(e.value ->> '$.lane' AS TEXT) AS lane,
    CAST(e.value ->> '$.type' AS TEXT) AS type, CAST(e.value ->> '$.calls' AS INTEGER) AS calls,
    CAST(e.value ->> '$.at' AS TEXT) AS at, CAST(e.value ->> '$.name' AS TEXT) AS name,
    CAST(e.value ->> '$.call_id' AS TEXT) AS call_id, CAST(e.value ->> '$.status' AS TEXT) AS status,
    CAST(e.value ->> '$.reply_to' AS INTEGER) AS reply_to, CAST(e.value ->> '$.call_index' AS INTEGER) AS call_index,
    CAST(e.value ->> '$.step_number' AS INTEGER) AS step_number,
    CAST(e.value ->> '$.input_tokens' AS INTEGER) AS input_tokens,
    CAST(e.value ->> '$.output_tokens' AS INTEGER) AS output_tokens,
    CAST(e.value ->> '$.cache_read_tokens' AS INTEGER) AS cache_read_tokens,
    CAST(e.value ->> '$.cache_write_tokens' AS INTEGER) AS cache_write_tokens,
    CAST(e.value ->> '$.duration_ms' AS INTEGER) AS duration_ms,
    CAST(e.value ->> '$.messages_count' AS INTEGER) AS messages_count,
    CAST(e.value ->> '$.estimated_tokens' AS INTEGER) AS estimated_tokens,
    CAST(nullif(e.value -> '$.message', 'null') AS TEXT) AS message, CAST(e.value -> '$.data' AS TEXT) AS data
FROM main.archives a JOIN main.threads t ON t.id = a.thread_id CROSS JOIN json_each(lockstitch_unpacked(a.content)) e
WHERE NOT EXISTS (SELECT 1 FROM main.stitch_rows live WHERE live.thread_no = t.no AND live.position = a.first_position);

-- All original messages of a run, without compactions and injected messages. An earlier input that caused the run is
-- included.
CREATE VIEW lens_history AS
SELECT r.id AS run_id, (
    SELECT '[' || coalesce(group_concat(said, ','), '') || ']' FROM (
        SELECT coalesce(message, '') || CASE WHEN results > 0
                   THEN ',{"role":"user","content":[' || blocks || ']}' ELSE '' END AS said
        FROM (
            SELECT place, max(message) AS message, count(block) AS results, group_concat(block, ',') AS blocks
            FROM (
                SELECT CASE s.type WHEN 'tool_call' THEN s.reply_to ELSE s.position END AS place, s.call_index,
                       CASE WHEN s.type <> 'tool_call' THEN s.message END AS message,
                       CASE WHEN s.type = 'tool_call' THEN s.message END AS block
                FROM (
                    SELECT own.position, own.type, own.reply_to, own.call_index, own.message
                    FROM main.stitches own
                    WHERE own.run_id = r.id AND own.message IS NOT NULL
                      AND own.type IN ('input', 'llm_call', 'tool_call', 'thread_result', 'max_steps_reached',
                                       'final_answer_validation_failed', 'wait_timed_out')
                    UNION ALL
                    SELECT input.position, input.type, NULL, NULL, input.message FROM main.stitches input
                    WHERE input.thread_id = r.thread_id AND input.position = r.input_position
                      AND r.input_position < r.first_position AND input.run_id IS NOT r.id
                      AND input.type = 'input' AND input.message IS NOT NULL
                    UNION ALL
                    SELECT old.position, old.type, old.reply_to, old.call_index, old.message FROM lens_archived old
                    WHERE old.thread_id = r.thread_id AND old.first_position <= r.first_position
                      AND old.last_position >= r.first_position AND old.run_id = r.id AND old.message IS NOT NULL
                      AND old.type IN ('input', 'llm_call', 'tool_call', 'thread_result', 'max_steps_reached',
                                       'final_answer_validation_failed', 'wait_timed_out')
                    UNION ALL
                    SELECT old.position, old.type, NULL, NULL, old.message FROM lens_archived old
                    WHERE old.thread_id = r.thread_id AND old.first_position <= r.input_position
                      AND old.last_position >= r.input_position AND old.position = r.input_position
                      AND r.input_position < r.first_position AND old.run_id IS NOT r.id
                      AND old.type = 'input' AND old.message IS NOT NULL) AS s
                ORDER BY place, s.call_index)
            GROUP BY place ORDER BY place)
        WHERE message IS NOT NULL)) AS messages
FROM main.runs r;

-- The text of messages, and the text after their last tool block, which is the answer in a final response: by the id of
-- their stitch. A NUL becomes U+FFFD, as in PostgreSQL, because the functions of SQLite end a text there.
CREATE VIEW lens_messages AS
SELECT s.id, s.thread_id, s.position, s.type,
       replace(replace(replace(s.message, '\\', char(1)), '\u0000', '\ufffd'), char(1), '\\') AS message
FROM main.stitches s WHERE s.message IS NOT NULL;
CREATE VIEW lens_texts AS
SELECT m.id, m.thread_id, m.position, m.type,
    CASE json_type(m.message, '$.content') WHEN 'text' THEN m.message ->> '$.content'
         ELSE (SELECT coalesce(group_concat(e.value ->> '$.text', ''), '') FROM json_each(m.message, '$.content') e
               WHERE e.type = 'object' AND e.value ->> '$.type' = 'text') END AS text,
    CASE json_type(m.message, '$.content') WHEN 'text' THEN m.message ->> '$.content'
         ELSE (SELECT coalesce(group_concat(e.value ->> '$.text', ''), '') FROM json_each(m.message, '$.content') e
               WHERE e.type = 'object' AND e.value ->> '$.type' = 'text' AND e.key > (
                   SELECT coalesce(max(b.key), -1) FROM json_each(m.message, '$.content') b
                   WHERE b.type = 'object' AND (b.value ->> '$.type' LIKE '%tool!_use' ESCAPE '!'
                                                OR b.value ->> '$.type' LIKE '%tool!_result' ESCAPE '!'))) END AS answer
FROM lens_messages m;
-- The same for the messages of archives.
CREATE VIEW lens_archived_messages AS
SELECT s.thread_id, s.first_position, s.last_position, s.position,
       replace(replace(replace(s.message, '\\', char(1)), '\u0000', '\ufffd'), char(1), '\\') AS message
FROM lens_archived s WHERE s.message IS NOT NULL;
CREATE VIEW lens_archived_texts AS
SELECT m.thread_id, m.first_position, m.last_position, m.position,
    CASE json_type(m.message, '$.content') WHEN 'text' THEN m.message ->> '$.content'
         ELSE (SELECT coalesce(group_concat(e.value ->> '$.text', ''), '') FROM json_each(m.message, '$.content') e
               WHERE e.type = 'object' AND e.value ->> '$.type' = 'text') END AS text,
    CASE json_type(m.message, '$.content') WHEN 'text' THEN m.message ->> '$.content'
         ELSE (SELECT coalesce(group_concat(e.value ->> '$.text', ''), '') FROM json_each(m.message, '$.content') e
               WHERE e.type = 'object' AND e.value ->> '$.type' = 'text' AND e.key > (
                   SELECT coalesce(max(b.key), -1) FROM json_each(m.message, '$.content') b
                   WHERE b.type = 'object' AND (b.value ->> '$.type' LIKE '%tool!_use' ESCAPE '!'
                                                OR b.value ->> '$.type' LIKE '%tool!_result' ESCAPE '!'))) END AS answer
FROM lens_archived_messages m;

-- The calls in responses, by thread, position of the response and index in it.
CREATE VIEW lens_calls AS
SELECT s.id AS response_id, s.thread_id, s.run_id, s.position, e.value AS call, (
           SELECT count(*) FROM json_each(s.message, '$.content') b
           WHERE b.key < e.key AND b.type = 'object' AND b.value ->> '$.type' = 'tool_use') AS call_index
FROM main.stitches s, json_each(CASE json_type(s.message, '$.content') WHEN 'array' THEN s.message ELSE '{"content":[]}' END,
                                '$.content') e
WHERE s.type = 'llm_call' AND s.calls > 0 AND e.type = 'object' AND e.value ->> '$.type' = 'tool_use';

-- The part that all requests of a run have in common. The run_started of the run stores it once.
CREATE VIEW lens_requests AS
SELECT r.id AS run_id, (
    SELECT s.data -> '$.request' FROM main.stitches s
    WHERE s.thread_id = r.thread_id AND s.position BETWEEN r.first_position AND r.first_position + 1
      AND s.run_id = r.id AND s.type = 'run_started' LIMIT 1) AS request
FROM main.runs r;

-- The whole request of a model call, by the id of its stitch: parameters, instructions, tools and messages. The function
-- `lockstitch_request` reads this view. As in store/queries/log.py, the messages are the context of the call's lane
-- before it, without the positions that the run does not see, and with the answers of other members that the run got.
-- Media in blobs stay references.
CREATE VIEW lens_model_requests AS
SELECT at.id AS stitch_id, (
    WITH call AS MATERIALIZED (
        SELECT t.id AS thread_id, at.data -> '$.request' AS own, r.state -> '$.injected' AS injected,
               (SELECT q.request FROM lens_requests q WHERE q.run_id = r.id) AS common
        FROM main.threads t LEFT JOIN main.run_rows r ON r.no = at.run_no
        WHERE t.no = at.thread_no),
    seen AS MATERIALIZED (
        SELECT coalesce(own ->> '$.context_from', common ->> '$.context_from', 0) AS first,
               coalesce(own -> '$.without', common -> '$.without', '[]') AS without FROM call),
    log AS MATERIALIZED (
        SELECT s.position, s.type, s.reply_to, s.call_index, s.calls, s.message, s.data FROM main.stitch_rows s
        WHERE s.thread_no = at.thread_no AND s.position < at.position AND s.lane IS at.lane
          AND (s.message IS NOT NULL OR s.type IN ('fork', 'compaction'))
        UNION ALL
        SELECT s.position, s.type, s.reply_to, s.call_index, s.calls, s.message, s.data
        FROM call CROSS JOIN lens_archived s
        WHERE s.thread_id = call.thread_id AND s.first_position < at.position AND s.position < at.position
          AND s.lane IS at.lane
        UNION ALL
        SELECT json_extract(i.value, '$.position'), 'input', NULL, NULL, NULL,
               json_object('role', 'user', 'content', json_extract(i.value, '$.agent') || ' answered:' || char(10, 10)
                   || coalesce((SELECT x.answer FROM lens_texts x WHERE x.thread_id = call.thread_id
                                  AND x.position = json_extract(i.value, '$.position')),
                               (SELECT x.answer FROM lens_archived_texts x WHERE x.thread_id = call.thread_id
                                  AND x.first_position <= json_extract(i.value, '$.position')
                                  AND x.last_position >= json_extract(i.value, '$.position')
                                  AND x.position = json_extract(i.value, '$.position')), '')), NULL
        FROM call CROSS JOIN json_each(coalesce(call.injected, '[]')) i WHERE at.lane IS NOT NULL),
    visible AS MATERIALIZED (
        SELECT log.* FROM log, seen WHERE log.position >= seen.first AND NOT EXISTS (
            SELECT 1 FROM json_each(seen.without) w
            WHERE log.position BETWEEN json_extract(w.value, '$[0]') AND json_extract(w.value, '$[1]'))),
    start AS MATERIALIZED (
        SELECT position, type, data FROM visible
        WHERE type = 'fork' OR (type = 'compaction' AND data -> '$.applied' = 'true')
        ORDER BY position DESC LIMIT 1),
    part AS (
        SELECT v.*, CASE start.type WHEN 'compaction' THEN start.data -> ('$.replace."' || v.position || '"') END AS new
        FROM visible v LEFT JOIN start
        WHERE start.position IS NULL OR v.position > start.position
           OR (v.position = start.position AND v.type = 'fork')
           OR (start.type = 'compaction' AND (
                  start.data -> ('$.replace."' || v.position || '"') IS NOT NULL
                  OR EXISTS (SELECT 1 FROM json_each(start.data, '$.keep') k
                             WHERE v.position BETWEEN json_extract(k.value, '$[0]')
                                                  AND json_extract(k.value, '$[1]'))))),
    placed AS (
        SELECT CASE type WHEN 'tool_call' THEN reply_to ELSE position END AS place, call_index,
               type <> 'tool_call' AS is_entry, CASE type WHEN 'llm_call' THEN coalesce(calls, 0) ELSE 0 END AS calls,
               CASE WHEN type = 'tool_call' THEN NULL
                    WHEN new IS NOT NULL THEN
                        CASE substr(new, 1, 1) WHEN '[' THEN nullif(substr(new, 2, length(new) - 2), '') ELSE new END
                    WHEN type = 'fork' THEN
                        nullif(substr(data -> '$.messages', 2, length(data -> '$.messages') - 2), '')
                    ELSE message END AS message,
               CASE WHEN type = 'tool_call' AND message IS NOT NULL THEN coalesce(new, message) END AS block
        FROM part ORDER BY place, call_index),
    entries AS (
        SELECT place, max(calls) AS calls, max(is_entry) AS is_entry, max(message) AS message, count(block) AS results,
               group_concat(block, ',') AS blocks
        FROM placed WHERE place IS NOT NULL GROUP BY place ORDER BY place),
    messages AS (
        SELECT CASE WHEN results >= calls AND results > 0
                    THEN coalesce(message || ',', '') || '{"role":"user","content":[' || blocks || ']}'
                    ELSE message END AS said
        FROM entries WHERE is_entry)
    SELECT '{'
        || coalesce(nullif(substr(parameters, 2, length(parameters) - 2), '') || ',', '')
        || coalesce((SELECT '"system":' || json_quote(CAST(b.content AS TEXT)) || ',' FROM main.blobs b
                     WHERE b.sha256 = coalesce(own ->> '$.system', common ->> '$.system')), '')
        || coalesce((SELECT '"tools":' || CAST(b.content AS TEXT) || ',' FROM main.blobs b
                     WHERE b.sha256 = coalesce(own ->> '$.tools', common ->> '$.tools')
                       AND CAST(b.content AS TEXT) <> '[]'), '')
        || '"messages":[' || coalesce((SELECT group_concat(said, ',') FROM messages WHERE said IS NOT NULL), '') || ']}'
    FROM (SELECT own, common, coalesce(own -> '$.parameters', common -> '$.parameters', '{}') AS parameters FROM call)
    ) AS request
FROM main.stitch_rows at WHERE at.type = 'llm_call' AND at.data -> '$.request' IS NOT NULL;
