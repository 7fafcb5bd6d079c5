-- Example queries of the SQL page on the record. They work in both databases unless a dialect is named.

-- example: Threads by status
SELECT kind, status, count(*) AS threads
FROM threads
GROUP BY kind, status
ORDER BY threads DESC;

-- example: Cost per model
SELECT model, count(*) AS runs, sum(input_tokens + output_tokens) AS tokens, sum(total_cost) AS cost
FROM runs
GROUP BY model
ORDER BY cost DESC;

-- example: Slowest tools
SELECT name, count(*) AS calls, avg(duration_ms) AS average_ms, max(duration_ms) AS slowest_ms
FROM stitches
WHERE type = 'tool_call' AND duration_ms IS NOT NULL
GROUP BY name
ORDER BY average_ms DESC, name;

-- example: Errors, latest 50
SELECT at, type, name, thread_id, run_id, position, data
FROM stitches
WHERE type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error')
ORDER BY log_id DESC
LIMIT 50;

-- example: Tokens per day (sqlite)
SELECT substr(started_at, 1, 10) AS day, count(*) AS runs, sum(input_tokens) AS input, sum(output_tokens) AS output
FROM runs
GROUP BY day
ORDER BY day DESC;

-- example: Tokens per day (postgres)
SELECT started_at::date AS day, count(*) AS runs, sum(input_tokens) AS input, sum(output_tokens) AS output
FROM runs
GROUP BY day
ORDER BY day DESC;

-- example: Runs that retried
SELECT run_id, thread_id, count(*) AS retries, max(at) AS last_at
FROM stitches
WHERE type = 'api_retry'
GROUP BY run_id, thread_id
ORDER BY retries DESC
LIMIT 50;

-- example: Steps of a thread
SELECT position, type, name, status, duration_ms, input_tokens, output_tokens, at
FROM stitches
WHERE thread_id = :thread_id
ORDER BY position;
