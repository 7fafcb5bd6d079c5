-- Example queries of the SQL page, as in docs/reference/lenses/reasoning.md. Words that start with a colon are placeholders for ids.

-- example: A session
SELECT * FROM agent_sessions WHERE id = :session_id;

-- example: The trace of a session
SELECT s.id, s.status, t.steps, t.total_duration_ms, t.total_steps
FROM agent_sessions s
JOIN reasoning_traces t ON t.session_id = s.id
WHERE s.id = :session_id;

-- example: Steps of a trace, one per row (sqlite)
SELECT CAST(step.value->>'step_number' AS TEXT) AS step_number, step.value->>'tool_name' AS tool_name,
       step.value->>'status' AS status
FROM reasoning_traces, json_each(steps) AS step
WHERE session_id = :session_id
ORDER BY step.key;

-- example: Steps of a trace, one per row (postgres)
SELECT step->>'step_number' AS step_number, step->>'tool_name' AS tool_name, step->>'status' AS status
FROM reasoning_traces, unnest(steps) WITH ORDINALITY AS one (step, place)
WHERE session_id = :session_id
ORDER BY place;
