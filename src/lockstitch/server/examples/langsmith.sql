-- Example queries of the SQL page, as in docs/reference/lenses/langsmith.md. Words that start with a colon are placeholders for ids.

-- example: Runs, newest first
SELECT run_id, start_time, status, model_name, total_tokens, total_cost
FROM agent_runs
ORDER BY start_time DESC
LIMIT 20;

-- example: One run with its calls (sqlite)
SELECT l.step_index, l.llm_call_id, l.model_name, l.llm_output_text, t.tool_name, t.tool_args, t.tool_status
FROM agent_runs r
JOIN llm_calls l ON l.run_id = r.run_id
LEFT JOIN (SELECT * FROM tool_calls WHERE run_id = :run_id) t ON t.llm_call_id = l.llm_call_id
WHERE r.run_id = :run_id
ORDER BY l.step_index, t.tool_call_id;

-- example: One run with its calls (postgres)
SELECT l.step_index, l.llm_call_id, l.model_name, l.llm_output_text, t.tool_name, t.tool_args, t.tool_status
FROM agent_runs r
JOIN llm_calls l ON l.run_id = r.run_id
LEFT JOIN tool_calls t ON t.run_id = l.run_id AND t.llm_call_id = l.llm_call_id
WHERE r.run_id = :run_id
ORDER BY l.step_index, t.tool_call_id;

-- example: Runs with an error
SELECT run_id, start_time, error FROM agent_runs WHERE status = 'error' ORDER BY start_time DESC;

-- example: Slowest tools
SELECT tool_name, count(*) AS calls, avg(execution_latency_ms) AS average_ms, max(execution_latency_ms) AS slowest_ms
FROM tool_calls
WHERE execution_latency_ms IS NOT NULL
GROUP BY tool_name
ORDER BY average_ms DESC, tool_name;

-- example: Error rate of tools
SELECT tool_name, count(*) AS calls, avg(1.0 * is_tool_error) AS error_rate
FROM tool_calls
WHERE tool_status IS NOT NULL
GROUP BY tool_name
ORDER BY error_rate DESC, tool_name;

-- example: Tokens and cost per model, day and session
SELECT model_name, substr(start_time, 1, 10) AS day, session_id, sum(total_tokens) AS tokens, sum(total_cost) AS cost
FROM agent_runs
GROUP BY model_name, substr(start_time, 1, 10), session_id
ORDER BY day, model_name, session_id;

-- example: Tokens per model call
SELECT model_name, count(*) AS calls, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens
FROM llm_calls
GROUP BY model_name
ORDER BY model_name;

-- example: Model calls of the last seven days (sqlite)
SELECT model_name, count(*) AS calls, sum(output_tokens) AS output_tokens
FROM llm_calls
WHERE created_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-7 days')
GROUP BY model_name
ORDER BY model_name;

-- example: Model calls of the last seven days (postgres)
SELECT model_name, count(*) AS calls, sum(output_tokens) AS output_tokens
FROM llm_calls
WHERE created_at > now() - interval '7 days'
GROUP BY model_name
ORDER BY model_name;
