-- Functions that lenses share: access to content, and message lists. They are in the schema `lockstitch`.

-- Content as jsonb. NUL and lone surrogates, which jsonb cannot represent, become U+FFFD. Escaped backslashes are
-- replaced temporarily, so that \\u0000, which is a backslash and a word, is not changed.
CREATE OR REPLACE FUNCTION lockstitch.safe_jsonb(value json) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN strpos(value::text, '\u0000') = 0 AND strpos(value::text, '\ud') = 0
                     AND strpos(value::text, '\uD') = 0
                THEN value::jsonb
           ELSE replace(regexp_replace(regexp_replace(replace(replace(
                    value::text, '\\', chr(1)), '\u0000', '\ufffd'),
                    '\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})', '\\ufffd', 'g'),
                    '(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}', '\\ufffd', 'g'),
                    chr(1), '\\')::jsonb END
$$;

-- The elements of an array. No rows for any other value.
CREATE OR REPLACE FUNCTION lockstitch.elements(value jsonb, OUT element jsonb, OUT place bigint)
RETURNS SETOF record LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 10 AS $$
    SELECT * FROM jsonb_array_elements(CASE jsonb_typeof(value) WHEN 'array' THEN value ELSE '[]' END) WITH ORDINALITY
$$;

-- A number in a JSON object of any writer, as a column of that type.
CREATE OR REPLACE FUNCTION lockstitch.whole(value jsonb, otherwise integer) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN jsonb_typeof(value) = 'number'
                THEN greatest(-2147483648, least(2147483647, trunc(value::numeric)))::integer ELSE otherwise END
$$;

-- A time as text in JSON. Immutable, unlike to_char in general: this pattern does not depend on a setting.
CREATE OR REPLACE FUNCTION lockstitch.told_time(moment timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;
-- agent_runs in the order of start_time.
CREATE INDEX IF NOT EXISTS runs_start_time ON lockstitch.runs (lockstitch.told_time(started_at))
WHERE parent_run_id IS NULL;

-- A stored text by its sha256, such as a system text. It ends at a NUL, which text cannot contain.
CREATE OR REPLACE FUNCTION lockstitch.kept_text(digest text) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE position('\x00'::bytea IN content) WHEN 0 THEN convert_from(content, 'UTF8')
           ELSE convert_from(substring(content FROM 1 FOR position('\x00'::bytea IN content) - 1), 'UTF8') || U&'\FFFD' END
    FROM lockstitch.blobs WHERE sha256 = digest
$$;

-- All text of a message; and the text after its last tool block, which is the answer in a final response.
CREATE OR REPLACE FUNCTION lockstitch.text_of(message jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE jsonb_typeof(message -> 'content') WHEN 'string' THEN message ->> 'content'
           ELSE (SELECT coalesce(string_agg(element ->> 'text', '' ORDER BY place), '')
                 FROM lockstitch.elements(message -> 'content') WHERE element ->> 'type' = 'text') END
$$;
CREATE OR REPLACE FUNCTION lockstitch.answer_of(message jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE jsonb_typeof(message -> 'content') WHEN 'string' THEN message ->> 'content'
           ELSE (SELECT coalesce(string_agg(element ->> 'text', '' ORDER BY place), '')
                 FROM lockstitch.elements(message -> 'content')
                 WHERE element ->> 'type' = 'text' AND place > (
                     SELECT coalesce(max(place), 0) FROM lockstitch.elements(message -> 'content')
                     WHERE element ->> 'type' LIKE '%tool\_use' OR element ->> 'type' LIKE '%tool\_result')) END
$$;

-- The stitches of an archive: one line of JSON each.
CREATE OR REPLACE FUNCTION lockstitch.unpacked(content bytea) RETURNS SETOF lockstitch.stitches
LANGUAGE sql STABLE PARALLEL SAFE ROWS 20 AS $$
    SELECT s.* FROM string_to_table(rtrim(convert_from(content, 'UTF8'), E'\n'), E'\n') AS line,
         json_populate_record(NULL::lockstitch.stitches, line::json) AS s
$$;
-- The stitches of the archive that contains a position. An archive whose rows are not deleted yet is not shown: its
-- stitches would be there twice.
CREATE OR REPLACE FUNCTION lockstitch.archived(thread uuid, place bigint) RETURNS SETOF lockstitch.stitches
LANGUAGE sql STABLE PARALLEL SAFE ROWS 20 AS $$
    SELECT s.* FROM lockstitch.archives a, lockstitch.unpacked(a.content) AS s
    WHERE a.thread_id = thread AND a.first_position <= place AND a.last_position >= place
      AND NOT EXISTS (SELECT 1 FROM lockstitch.stitches live
                      WHERE live.thread_id = thread AND live.position = a.first_position)
$$;

-- The message at a position of a thread, archived or not.
CREATE OR REPLACE FUNCTION lockstitch.message_at(thread uuid, place bigint) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT lockstitch.safe_jsonb(coalesce(
        (SELECT s.message FROM lockstitch.stitches s WHERE s.thread_id = thread AND s.position = place),
        (SELECT s.message FROM lockstitch.archived(thread, place) s WHERE s.position = place)))
$$;
-- The texts of the message at a position, if it is not archived.
CREATE OR REPLACE FUNCTION lockstitch.text_at(thread uuid, place bigint) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT lockstitch.text_of(lockstitch.safe_jsonb(s.message)) FROM lockstitch.stitches s
    WHERE s.thread_id = thread AND s.position = place AND s.message IS NOT NULL
$$;
CREATE OR REPLACE FUNCTION lockstitch.answer_at(thread uuid, place bigint) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT lockstitch.answer_of(lockstitch.safe_jsonb(s.message)) FROM lockstitch.stitches s
    WHERE s.thread_id = thread AND s.position = place AND s.message IS NOT NULL
$$;

-- The object that the text of a tool result contains, or the content. IS JSON needs PostgreSQL 16.
CREATE OR REPLACE FUNCTION lockstitch.result_value(content jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF jsonb_typeof(content) = 'string' AND content #>> '{}' LIKE '{%' THEN
        RETURN (content #>> '{}')::jsonb;
    END IF;
    RETURN content;
EXCEPTION WHEN data_exception OR statement_too_complex OR program_limit_exceeded THEN
    RETURN content;
END
$$;
-- The tool_use block with an index among those of a response.
CREATE OR REPLACE FUNCTION lockstitch.call_of(message jsonb, index bigint) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT element FROM lockstitch.elements(message -> 'content')
    WHERE element ->> 'type' = 'tool_use' ORDER BY place OFFSET index LIMIT 1
$$;
-- The tool_use block that a tool result answers. Only the response contains it.
CREATE OR REPLACE FUNCTION lockstitch.call_at(thread uuid, response bigint, index bigint) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT lockstitch.call_of(lockstitch.safe_jsonb(s.message), index) FROM lockstitch.stitches s
    WHERE s.thread_id = thread AND s.position = response
$$;

-- Two objects as one, in which the members of the second replace those of the first; or two arrays as one.
CREATE OR REPLACE FUNCTION lockstitch.merged(first jsonb, second jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT first || second $$;

-- The number of times that each name occurs, as an object.
CREATE OR REPLACE FUNCTION lockstitch.counted(names text[]) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(jsonb_object_agg(name, number), '{}')
    FROM (SELECT name, count(*) AS number FROM unnest(names) AS name WHERE name IS NOT NULL GROUP BY name) AS numbers
$$;

-- The context for the next model call, or at a position: it starts at `since`, the last compaction or fork. The same
-- rules as in model/context.py: a stitch contributes at its position, tool results at the position of their response,
-- all together and only when all are present.
CREATE OR REPLACE FUNCTION lockstitch.context(thread uuid, since bigint, until bigint DEFAULT 9223372036854775807)
RETURNS json LANGUAGE sql STABLE PARALLEL SAFE AS $$
    WITH compaction AS MATERIALIZED (
        SELECT lockstitch.safe_jsonb(s.data) AS data FROM lockstitch.stitches s
        WHERE s.thread_id = thread AND s.position = since AND s.lane IS NULL AND s.type = 'compaction'
          AND lockstitch.safe_jsonb(s.data) -> 'applied' = 'true'),
    replaced AS MATERIALIZED (
        SELECT new.key::bigint AS position, new.value FROM compaction,
             jsonb_each(CASE jsonb_typeof(data -> 'replace') WHEN 'object' THEN data -> 'replace' ELSE '{}' END) AS new),
    kept AS (
        SELECT (range.element ->> 0)::bigint AS first, (range.element ->> 1)::bigint AS last
        FROM compaction, lockstitch.elements(data -> 'keep') AS range
        UNION ALL SELECT position, position FROM replaced),
    part AS MATERIALIZED (
        SELECT s.position, s.type, s.reply_to, s.call_index, s.calls, s.message, s.data FROM lockstitch.stitches s
        WHERE s.thread_id = thread AND s.position >= since AND s.position <= until AND s.lane IS NULL
          AND (s.message IS NOT NULL OR s.type = 'fork' OR s.position IN (SELECT position FROM replaced))
        UNION ALL
        SELECT s.position, s.type, s.reply_to, s.call_index, s.calls, s.message, s.data
        FROM (SELECT DISTINCT one.position FROM kept JOIN lockstitch.stitches one
                  ON one.thread_id = thread AND one.position BETWEEN kept.first AND kept.last
              WHERE one.position < since) AS early
        JOIN lockstitch.stitches s ON s.thread_id = thread AND s.position = early.position AND s.lane IS NULL),
    said AS (
        SELECT p.position, 0 AS kind, 0::bigint AS place, p.message
        FROM part p LEFT JOIN replaced r USING (position)
        WHERE p.type <> 'tool_call' AND p.type <> 'fork' AND r.position IS NULL AND p.message IS NOT NULL
        UNION ALL
        SELECT p.position, 0, new.place, new.element::json
        FROM part p JOIN replaced r USING (position), lockstitch.elements(
             CASE jsonb_typeof(r.value) WHEN 'array' THEN r.value ELSE jsonb_build_array(r.value) END) AS new
        WHERE p.type <> 'tool_call'
        UNION ALL
        SELECT p.position, 0, carried.place, carried.element::json
        FROM part p LEFT JOIN replaced r USING (position),
             lockstitch.elements(lockstitch.safe_jsonb(p.data) -> 'messages') AS carried
        WHERE p.type = 'fork' AND r.position IS NULL
        UNION ALL
        -- Grouped by the position at which they enter, not joined with it: the planner cannot know how many there are,
        -- and would compare each result with each response.
        SELECT p.entry, 1, 0,
               json_build_object('role', 'user', 'content',
                   json_agg(coalesce(r.value::json, p.message) ORDER BY p.call_index)
                   FILTER (WHERE p.type = 'tool_call' AND p.message IS NOT NULL))
        FROM (SELECT *, CASE type WHEN 'tool_call' THEN reply_to ELSE position END AS entry FROM part) AS p
        LEFT JOIN replaced r USING (position)
        GROUP BY p.entry
        HAVING bool_or(p.type <> 'tool_call')
           AND count(*) FILTER (WHERE p.type = 'tool_call' AND p.message IS NOT NULL)
               >= greatest(1, max(CASE p.type WHEN 'llm_call' THEN coalesce(p.calls, 0) ELSE 0 END)))
    SELECT coalesce(json_agg(message ORDER BY position, kind, place), '[]') FROM said
$$;

-- All original messages of a run, without compactions and injected messages. An earlier input that caused the run is
-- included.
CREATE OR REPLACE FUNCTION lockstitch.history(run uuid) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE AS $$
    WITH part AS MATERIALIZED (
        SELECT s.position, s.type, s.reply_to, s.call_index, s.message FROM lockstitch.stitches s
        WHERE s.run_id = run AND s.message IS NOT NULL
          AND s.type IN ('input', 'llm_call', 'tool_call', 'thread_result', 'max_steps_reached',
                         'final_answer_validation_failed', 'wait_timed_out')
        UNION ALL
        SELECT s.position, s.type, NULL, NULL, s.message
        FROM lockstitch.runs r
        JOIN lockstitch.stitches s ON s.thread_id = r.thread_id AND s.position = r.input_position
        WHERE r.id = run AND r.input_position < r.first_position AND s.run_id IS DISTINCT FROM run
          AND s.type = 'input' AND s.message IS NOT NULL
        UNION ALL
        SELECT s.position, s.type, s.reply_to, s.call_index, s.message
        FROM lockstitch.runs r, lockstitch.archived(r.thread_id, r.first_position) AS s
        WHERE r.id = run AND s.run_id = run AND s.message IS NOT NULL
          AND s.type IN ('input', 'llm_call', 'tool_call', 'thread_result', 'max_steps_reached',
                         'final_answer_validation_failed', 'wait_timed_out')
        UNION ALL
        SELECT s.position, s.type, NULL, NULL, s.message
        FROM lockstitch.runs r, lockstitch.archived(r.thread_id, r.input_position) AS s
        WHERE r.id = run AND r.input_position < r.first_position AND s.run_id IS DISTINCT FROM run
          AND s.position = r.input_position AND s.type = 'input' AND s.message IS NOT NULL),
    said AS (
        SELECT position, 0 AS kind, message FROM part WHERE type <> 'tool_call'
        UNION ALL
        SELECT entry, 1,
               json_build_object('role', 'user', 'content',
                   json_agg(message ORDER BY call_index) FILTER (WHERE type = 'tool_call'))
        FROM (SELECT *, CASE type WHEN 'tool_call' THEN reply_to ELSE position END AS entry FROM part) AS gathered
        GROUP BY entry
        HAVING bool_or(type <> 'tool_call') AND bool_or(type = 'tool_call'))
    SELECT coalesce(json_agg(message ORDER BY position, kind), '[]') FROM said
$$;

-- The part that all requests of a run have in common. The run_started of the run stores it once.
CREATE OR REPLACE FUNCTION lockstitch.run_request(run uuid) RETURNS jsonb LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT lockstitch.safe_jsonb(s.data) -> 'request' FROM lockstitch.runs r
    JOIN lockstitch.stitches s ON s.thread_id = r.thread_id
                              AND s.position BETWEEN r.first_position AND r.first_position + 1
    WHERE r.id = run AND s.run_id = run AND s.type = 'run_started'
    LIMIT 1
$$;

-- The context of the thread's own lane before a position.
CREATE OR REPLACE FUNCTION lockstitch.context_before(thread uuid, before bigint) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT lockstitch.context(thread, coalesce((
        SELECT s.position FROM lockstitch.stitches s
        WHERE s.thread_id = thread AND s.position < before AND s.lane IS NULL
          AND (s.type = 'fork' OR (s.type = 'compaction' AND lockstitch.safe_jsonb(s.data) -> 'applied' = 'true'))
        ORDER BY s.position DESC LIMIT 1), 0), before - 1)
$$;

-- The whole request of a model call, by the id of its stitch: parameters, instructions, tools and messages. NULL if the
-- stitch is not a model call of a run's loop, or is archived. As in store/queries/log.py, the messages are the context of
-- the call's lane before it, without the positions that the run does not see, and with the answers of other members that
-- the run got. Media in blobs stay references. SQLite has a function of the same name.
CREATE OR REPLACE FUNCTION lockstitch.lockstitch_request(stitch uuid) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    WITH call AS MATERIALIZED (
        SELECT s.thread_id, s.position, s.lane, s.data -> 'request' AS own, common.request AS common,
               CASE WHEN s.lane IS NOT NULL THEN lockstitch.safe_jsonb(r.state) -> 'injected' END AS injected
        FROM lockstitch.stitches s LEFT JOIN lockstitch.runs r ON r.id = s.run_id
        LEFT JOIN LATERAL (
            SELECT started.data -> 'request' AS request FROM lockstitch.stitches started
            WHERE started.thread_id = r.thread_id AND started.run_id = r.id AND started.type = 'run_started'
              AND started.position BETWEEN r.first_position AND r.first_position + 1 LIMIT 1) AS common ON true
        WHERE s.id = stitch AND s.type = 'llm_call' AND s.data -> 'request' IS NOT NULL),
    hidden AS MATERIALIZED (
        SELECT (range.element ->> 0)::bigint AS first, (range.element ->> 1)::bigint AS last FROM call,
             lockstitch.elements(lockstitch.safe_jsonb(coalesce(own -> 'without', common -> 'without'))) AS range
        UNION ALL
        SELECT 0, coalesce(own ->> 'context_from', common ->> 'context_from')::bigint - 1 FROM call),
    log AS MATERIALIZED (
        SELECT s.position, s.type, s.reply_to, s.call_index, s.calls, s.message, s.data
        FROM call JOIN lockstitch.stitches s ON s.thread_id = call.thread_id AND s.position < call.position
        WHERE s.lane IS NOT DISTINCT FROM call.lane AND (s.message IS NOT NULL OR s.type IN ('fork', 'compaction'))
        UNION ALL
        SELECT s.position, s.type, s.reply_to, s.call_index, s.calls, s.message, s.data
        FROM call JOIN lockstitch.archives a ON a.thread_id = call.thread_id AND a.first_position < call.position,
             lockstitch.unpacked(a.content) AS s
        WHERE s.position < call.position AND s.lane IS NOT DISTINCT FROM call.lane
          AND NOT EXISTS (SELECT 1 FROM lockstitch.stitches live
                          WHERE live.thread_id = a.thread_id AND live.position = a.first_position)
        UNION ALL
        SELECT (answer.element ->> 'position')::bigint, 'input', NULL, NULL, NULL,
               json_build_object('role', 'user', 'content', concat(answer.element ->> 'agent', E' answered:\n\n',
                   lockstitch.answer_of(lockstitch.message_at(call.thread_id,
                                                              (answer.element ->> 'position')::bigint)))), NULL
        FROM call, lockstitch.elements(call.injected) AS answer),
    visible AS MATERIALIZED (
        SELECT * FROM log WHERE NOT EXISTS (SELECT 1 FROM hidden WHERE log.position BETWEEN first AND last)),
    start AS MATERIALIZED (
        SELECT position, type, CASE type WHEN 'compaction' THEN lockstitch.safe_jsonb(data) END AS data FROM visible
        WHERE type = 'fork' OR (type = 'compaction' AND lockstitch.safe_jsonb(data) -> 'applied' = 'true')
        ORDER BY position DESC LIMIT 1),
    part AS MATERIALIZED (
        SELECT v.*, start.data -> 'replace' -> v.position::text AS new
        FROM visible v LEFT JOIN start ON true
        WHERE start.position IS NULL OR v.position > start.position
           OR (v.position = start.position AND v.type = 'fork')
           OR start.data -> 'replace' -> v.position::text IS NOT NULL
           OR EXISTS (SELECT 1 FROM lockstitch.elements(start.data -> 'keep') AS range
                      WHERE v.position BETWEEN (range.element ->> 0)::bigint AND (range.element ->> 1)::bigint)),
    said AS (
        SELECT position, 0 AS kind, 0::bigint AS place, message FROM part
        WHERE type NOT IN ('tool_call', 'fork') AND new IS NULL AND message IS NOT NULL
        UNION ALL
        SELECT p.position, 0, new.place, new.element::json FROM part p, lockstitch.elements(
             CASE jsonb_typeof(p.new) WHEN 'array' THEN p.new ELSE jsonb_build_array(p.new) END) AS new
        WHERE p.type <> 'tool_call' AND p.new IS NOT NULL
        UNION ALL
        SELECT p.position, 0, carried.place, carried.element::json
        FROM part p, lockstitch.elements(lockstitch.safe_jsonb(p.data) -> 'messages') AS carried
        WHERE p.type = 'fork' AND p.new IS NULL
        UNION ALL
        SELECT entry, 1, 0, json_build_object('role', 'user', 'content',
                   json_agg(coalesce(new::json, message) ORDER BY call_index)
                   FILTER (WHERE type = 'tool_call' AND message IS NOT NULL))
        FROM (SELECT *, CASE type WHEN 'tool_call' THEN reply_to ELSE position END AS entry FROM part) AS gathered
        GROUP BY entry
        HAVING bool_or(type <> 'tool_call')
           AND count(*) FILTER (WHERE type = 'tool_call' AND message IS NOT NULL)
               >= greatest(1, max(CASE type WHEN 'llm_call' THEN coalesce(calls, 0) ELSE 0 END)))
    SELECT concat('{', nullif(substr(parameters, 2, length(parameters) - 2), '') || ',',
                  '"system":' || to_json(lockstitch.kept_text(coalesce(own ->> 'system', common ->> 'system'))) || ',',
                  '"tools":' || nullif(lockstitch.kept_text(coalesce(own ->> 'tools', common ->> 'tools')), '[]') || ',',
                  '"messages":', (SELECT coalesce(json_agg(message ORDER BY position, kind, place), '[]') FROM said),
                  '}')::json
    FROM (SELECT own, common, coalesce(own -> 'parameters', common -> 'parameters', '{}')::text AS parameters
          FROM call) AS stored
$$;
