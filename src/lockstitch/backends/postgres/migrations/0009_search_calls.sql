-- A search also finds tool calls, tool results and errors. The next search fills the index again.
-- `model/searched_text.py` has the same rules as these functions.
CREATE FUNCTION block_text(block jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN block ->> 'type' = 'text' THEN block ->> 'text'
                WHEN block ->> 'type' LIKE '%tool_use' THEN concat_ws(' ', block ->> 'name', left(
                    (SELECT string_agg(item #>> '{}', ' ')
                     FROM jsonb_path_query(block -> 'input', 'strict $.**') AS item
                     WHERE jsonb_typeof(item) IN ('string', 'number')), 8192))
                WHEN block ->> 'type' LIKE '%tool_result' THEN left(
                    CASE jsonb_typeof(block -> 'content')
                    WHEN 'string' THEN block ->> 'content'
                    WHEN 'array' THEN (SELECT string_agg(part ->> 'text', ' ')
                                       FROM jsonb_array_elements(block -> 'content') AS part)
                    END, 8192)
           END
$$;
CREATE FUNCTION stitch_text(type text, message json, data json) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    -- A tsvector is limited to a megabyte. 256 KB of text, counted in bytes, never exceed it.
    SELECT lockstitch.search_words(left(said, CASE WHEN octet_length(left(said, 262144)) > 262144
                                              THEN 65536 ELSE 262144 END))
    FROM (SELECT CASE
        WHEN message IS NULL THEN
            CASE WHEN type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error')
                 THEN lockstitch.safe_jsonb(data) ->> 'message' END
        ELSE (SELECT CASE
                  WHEN m ? 'type' AND NOT m ? 'role' THEN lockstitch.block_text(m)
                  WHEN jsonb_typeof(m -> 'content') = 'string' THEN m ->> 'content'
                  WHEN jsonb_typeof(m -> 'content') = 'array' THEN
                      (SELECT string_agg(lockstitch.block_text(block), ' ')
                       FROM jsonb_array_elements(m -> 'content') AS block)
                  END
              FROM lockstitch.safe_jsonb(message) AS m)
        END AS said) AS text
$$;
CREATE FUNCTION stitch_words(type text, message json, data json) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT to_tsvector('simple', coalesce(lockstitch.stitch_text(type, message, data), ''))
$$;
CREATE OR REPLACE FUNCTION text_search_replace() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7167303524108317285);
    DELETE FROM lockstitch.text_search WHERE thread_id = new.thread_id AND position = new.position;
    INSERT INTO lockstitch.text_search (thread_id, position, log_id, words)
    SELECT new.thread_id, new.position, new.log_id, lockstitch.stitch_words(new.type, new.message, new.data)
    FROM lockstitch.search_mark AS mark
    WHERE new.log_id <= mark.log_id
      AND (new.message IS NOT NULL
           OR new.type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error'));
    RETURN NULL;
END $$;
DROP TRIGGER text_search_replace ON stitches;
CREATE TRIGGER text_search_replace AFTER UPDATE OF type, message, data ON stitches FOR EACH ROW
    WHEN (old.message IS NOT NULL OR new.message IS NOT NULL
          OR new.type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error')
          OR old.type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error'))
    EXECUTE FUNCTION lockstitch.text_search_replace();
TRUNCATE text_search;
UPDATE search_mark SET log_id = 0;
