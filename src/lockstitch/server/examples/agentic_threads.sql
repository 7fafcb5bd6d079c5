-- Example queries of the SQL page, as in docs/reference/lenses/agentic_threads.md. Words that start with a colon are placeholders for ids.

-- example: Find last stitch in a thread
SELECT * FROM stitches s
WHERE thread_id = :thread_id
AND NOT EXISTS (
    SELECT 1 FROM stitches
    WHERE thread_id = :thread_id AND previous_stitch_id = s.id
);

-- example: Get thread execution history
WITH RECURSIVE thread_history AS (
    SELECT stitches.*, 1 AS depth FROM stitches WHERE thread_id = :thread_id AND previous_stitch_id IS NULL
    UNION ALL
    SELECT s.*, th.depth + 1 FROM stitches s
    JOIN thread_history th ON s.previous_stitch_id = th.id
)
SELECT * FROM thread_history ORDER BY depth;

-- example: Show the whole request of each model call
SELECT id, lockstitch_request(id) AS llm_request FROM stitches
WHERE thread_id = :thread_id AND stitch_type = 'llm_call';
