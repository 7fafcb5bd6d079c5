-- The same functions in PL/pgSQL, which plans their expressions once for each session. PostgreSQL evaluated the text of a
-- stitch three times in SQL, and planned the text of each block. `model/searched_text.py` has the same rules.
CREATE OR REPLACE FUNCTION block_text(block jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    kind text := block ->> 'type';
BEGIN
    IF kind = 'text' THEN
        RETURN block ->> 'text';
    ELSIF kind LIKE '%tool_use' THEN
        RETURN concat_ws(' ', block ->> 'name', left(
            (SELECT string_agg(item #>> '{}', ' ') FROM jsonb_path_query(block -> 'input', 'strict $.**') AS item
             WHERE jsonb_typeof(item) IN ('string', 'number')), 8192));
    ELSIF kind LIKE '%tool_result' THEN
        IF jsonb_typeof(block -> 'content') = 'string' THEN
            RETURN left(block ->> 'content', 8192);
        ELSIF jsonb_typeof(block -> 'content') = 'array' THEN
            RETURN left((SELECT string_agg(part ->> 'text', ' ')
                         FROM jsonb_array_elements(block -> 'content') AS part), 8192);
        END IF;
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION stitch_text(type text, message json, data json) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    content jsonb;
    said text;
BEGIN
    IF message IS NULL THEN
        IF type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error') THEN
            said := lockstitch.safe_jsonb(data) ->> 'message';
        END IF;
    ELSE
        content := lockstitch.safe_jsonb(message);
        IF content ? 'type' AND NOT content ? 'role' THEN
            said := lockstitch.block_text(content);
        ELSIF jsonb_typeof(content -> 'content') = 'string' THEN
            said := content ->> 'content';
        ELSIF jsonb_typeof(content -> 'content') = 'array' THEN
            said := (SELECT string_agg(lockstitch.block_text(block), ' ')
                     FROM jsonb_array_elements(content -> 'content') AS block);
        END IF;
    END IF;
    -- A tsvector is limited to a megabyte. 256 KB of text, counted in bytes, never exceed it.
    said := left(said, 262144);
    IF octet_length(said) > 262144 THEN
        said := left(said, 65536);
    END IF;
    RETURN lockstitch.search_words(said);
END $$;
