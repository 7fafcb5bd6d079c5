-- name: session_forgotten
UPDATE prioritizer_sessions SET trace_kept = false WHERE thread_id = :thread;

-- name: sessions_expired
-- Sessions with expired reasoning that is still in the log, unless the retention of their thread lasts longer.
SELECT {columns} FROM prioritizer_sessions p
WHERE p.project = :project AND p.trace_kept AND p.trace_expires_at <= :moment AND p.status <> 'running'
  AND EXISTS (SELECT 1 FROM threads t WHERE t.id = p.thread_id AND t.worker_id IS NULL
              AND (t.expires_at IS NULL OR t.expires_at <= :moment))
ORDER BY p.trace_expires_at LIMIT :at_most;
