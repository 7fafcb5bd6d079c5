-- Example queries of the SQL page, as in docs/reference/lenses/agno.md. Words that start with a colon are placeholders for ids.

-- example: List all sessions
SELECT session_id, session_type, team_id, agent_id, created_at
FROM agno_sessions
ORDER BY created_at DESC;

-- example: Count runs in a session
SELECT jsonb_array_length(runs) as num_runs
FROM agno_sessions
WHERE session_id = :session_id;

-- example: Show run summary for a session (sqlite)
SELECT
  r.value->>'run_id' as run_id,
  r.value->>'team_id' as team_id,
  r.value->>'agent_id' as agent_id,
  r.value->>'status' as status,
  substr(r.value->>'input', 1, 80) as input_truncated,
  substr(r.value->>'content', 1, 100) as content_truncated,
  CAST(r.value->>'created_at' AS TEXT) as created_at
FROM agno_sessions,
     json_each(runs) AS r
WHERE session_id = :session_id
ORDER BY r.key;

-- example: Show run summary for a session (postgres)
SELECT
  r->>'run_id' as run_id,
  r->>'team_id' as team_id,
  r->>'agent_id' as agent_id,
  r->>'status' as status,
  left(r->>'input', 80) as input_truncated,
  left(r->>'content', 100) as content_truncated,
  r->>'created_at' as created_at
FROM agno_sessions,
     jsonb_array_elements(runs) WITH ORDINALITY AS runs (r, place)
WHERE session_id = :session_id
ORDER BY place;
