-- The function of postgres.sql that is not written in SQL there.
CREATE MACRO object_of(content) AS list_transform([content], lambda found: CASE
    WHEN json_type(found) = 'OBJECT' THEN found
    WHEN json_type(found) = 'VARCHAR' AND regexp_matches(json_extract_string(found, '$'), '^\s*\{')
    THEN coalesce(TRY_CAST(json_extract_string(found, '$') AS JSON), json_object('value', found))
    WHEN found IS NOT NULL THEN json_object('value', found)
    ELSE '{"value": null}'::JSON END)[1];
