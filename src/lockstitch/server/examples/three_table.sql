-- Example queries of the SQL page, as in docs/reference/lenses/three_table.md. Words that start with a colon are placeholders for ids.

-- example: Pattern 1: resume an agent
SELECT * FROM agent_config WHERE agent_uuid = :agent_uuid;

-- example: Pattern 2: a page of the conversation
SELECT conversation_id, user_message, final_response, started_at,
       generated_files, total_steps
FROM conversation_history
WHERE agent_uuid = :agent_uuid
ORDER BY sequence_number DESC
LIMIT 20 OFFSET 0;

-- example: Pattern 3: debug a run
SELECT timestamp, step_number, action_type, action_data, duration_ms
FROM agent_runs
WHERE run_id = :run_id
ORDER BY timestamp ASC;

-- example: Pattern 4: average tokens per run (sqlite)
SELECT agent_uuid, AVG(input_tokens + output_tokens) as avg_tokens
FROM conversation_history
WHERE started_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-7 days')
GROUP BY agent_uuid;

-- example: Pattern 4: average tokens per run (postgres)
SELECT agent_uuid, AVG(input_tokens + output_tokens) as avg_tokens
FROM conversation_history
WHERE started_at > NOW() - INTERVAL '7 days'
GROUP BY agent_uuid;

-- example: Pattern 5: find errors
SELECT agent_uuid, run_id, timestamp, action_data
FROM agent_runs
WHERE action_type = 'error'
ORDER BY timestamp DESC
LIMIT 50;

-- example: The conversation of a fork
SELECT v.sequence_number, v.inherited_from, c.user_message, CASE WHEN NOT v.cut THEN c.final_response END AS final_response
FROM visible_turns v JOIN conversation_history c USING (run_id)
WHERE v.agent_uuid = :agent_uuid
ORDER BY v.sequence_number DESC
LIMIT 20;
