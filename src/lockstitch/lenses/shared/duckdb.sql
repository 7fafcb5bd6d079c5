-- The functions of shared/postgres.sql as macros of DuckDB, and those functions of PostgreSQL that its lenses call. The
-- schema `lockstitch` has the tables of a lake. A lake has no archives: the stitches of archived turns are rows.

CREATE MACRO jsonb_typeof(value) AS CASE json_type(value)
    WHEN 'OBJECT' THEN 'object' WHEN 'ARRAY' THEN 'array' WHEN 'VARCHAR' THEN 'string' WHEN 'BOOLEAN' THEN 'boolean'
    WHEN 'UBIGINT' THEN 'number' WHEN 'BIGINT' THEN 'number' WHEN 'HUGEINT' THEN 'number' WHEN 'DOUBLE' THEN 'number'
    WHEN 'NULL' THEN 'null' END;
CREATE MACRO jsonb_strip_nulls(value) AS json_merge_patch('{}', value);

-- The text of a lake is valid JSON: a sync has replaced NUL and lone surrogates.
CREATE MACRO lockstitch.safe_jsonb(value) AS value::JSON;

CREATE MACRO lockstitch.elements(value) AS TABLE
    SELECT element, place FROM unnest(json_extract(value, '$[*]')) WITH ORDINALITY AS parts (element, place);

CREATE MACRO lockstitch.whole(value, otherwise) AS CASE WHEN jsonb_typeof(value) = 'number'
    THEN greatest(-2147483648, least(2147483647, trunc(json_extract_string(value, '$')::DOUBLE)))::INTEGER
    ELSE otherwise END;

CREATE MACRO lockstitch.told_time(moment) AS strftime(moment, '%Y-%m-%dT%H:%M:%S.%fZ');

CREATE MACRO lockstitch.kept_text(digest) AS (
    SELECT CASE instr(decode(content), chr(0)) WHEN 0 THEN decode(content)
           ELSE left(decode(content), instr(decode(content), chr(0)) - 1) || chr(65533) END
    FROM lockstitch.blobs WHERE sha256 = digest);

-- The path of a member of an object.
CREATE MACRO lockstitch.member(key) AS '$."' || replace(replace(key, '\', '\\'), '"', '\"') || '"';

-- Lists instead of subqueries: no rows are joined, and blocks stay in order. The list of one message is
-- there because a macro repeats the text of its argument, which can be a subquery.
CREATE MACRO lockstitch.blocks(message) AS json_extract(message, '$.content[*]');
CREATE MACRO lockstitch.texts(blocks) AS coalesce(array_to_string(list_transform(
    list_filter(blocks, lambda block: json_extract_string(block, '$.type') = 'text'),
    lambda block: json_extract_string(block, '$.text')), ''), '');
CREATE MACRO lockstitch.text_of(message) AS list_transform([message], lambda said: CASE
    WHEN json_type(said, '$.content') = 'VARCHAR' THEN json_extract_string(said, '$.content')
    ELSE lockstitch.texts(lockstitch.blocks(said)) END)[1];
-- The place of the last tool block of a message.
CREATE MACRO lockstitch.last_tool(blocks) AS coalesce(list_max(list_transform(blocks, lambda block, place:
    CASE WHEN json_extract_string(block, '$.type') LIKE '%tool!_use' ESCAPE '!'
           OR json_extract_string(block, '$.type') LIKE '%tool!_result' ESCAPE '!' THEN place ELSE 0 END)), 0);
CREATE MACRO lockstitch.answer_of(message) AS list_transform([message], lambda said: CASE
    WHEN json_type(said, '$.content') = 'VARCHAR' THEN json_extract_string(said, '$.content')
    ELSE lockstitch.texts(lockstitch.blocks(said)[1 + lockstitch.last_tool(lockstitch.blocks(said)):]) END)[1];

CREATE MACRO lockstitch.call_of(message, index) AS list_filter(lockstitch.blocks(message),
    lambda block: json_extract_string(block, '$.type') = 'tool_use')[index + 1];

-- A subquery, because the arguments may be expressions that a lambda cannot contain.
CREATE MACRO lockstitch.merged(former, latter) AS (
    SELECT CASE json_type(old)
        WHEN 'ARRAY'
        THEN '[' || array_to_string(list_concat(json_extract(old, '$[*]'), json_extract(new, '$[*]')), ',') || ']'
        WHEN 'OBJECT'
        THEN '{' || array_to_string(list_concat(
                 list_transform(list_filter(json_keys(old), lambda key: NOT list_contains(json_keys(new), key)),
                                lambda key: to_json(key) || ':' || json_extract(old, lockstitch.member(key))),
                 list_transform(json_keys(new),
                                lambda key: to_json(key) || ':' || json_extract(new, lockstitch.member(key)))), ',')
             || '}' END::JSON
    FROM (SELECT former::JSON AS old, latter::JSON AS new) AS objects);

CREATE MACRO lockstitch.counted(names) AS coalesce(
    to_json(list_aggregate(list_filter(names, lambda name: name IS NOT NULL), 'histogram')), '{}'::JSON);

CREATE MACRO lockstitch.result_value(content) AS list_transform([content], lambda found: CASE
    WHEN json_type(found) = 'VARCHAR' AND json_extract_string(found, '$') LIKE '{%'
    THEN coalesce(TRY_CAST(json_extract_string(found, '$') AS JSON), found) ELSE found END)[1];

CREATE MACRO lockstitch.unpacked(content) AS TABLE SELECT * FROM lockstitch.stitches WHERE content IS NOT NULL AND false;
CREATE MACRO lockstitch.archived(thread, place) AS TABLE
    SELECT * FROM lockstitch.stitches WHERE thread = place::VARCHAR AND false;

-- The sums of turns with several runs. A sum in a correlated subquery would first collect the turns of all runs.
CREATE VIEW lockstitch.team_turns AS
SELECT thread_id, turn, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
       sum(total_cost) AS total_cost
FROM lockstitch.runs
WHERE (thread_id, turn) IN (SELECT thread_id, turn FROM lockstitch.runs WHERE parent_run_id IS NOT NULL)
GROUP BY thread_id, turn;
