-- The queries both databases run as they stand. {now} is the store's clock.

-- name: insert
INSERT INTO {table} ({columns}) VALUES ({values});

-- name: upsert
INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT ({key}) DO UPDATE SET {changes};

-- name: keep
-- A record that is all key has nothing to replace.
INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT ({key}) DO NOTHING;

-- name: select
SELECT {columns} FROM {table}{where}{order}{limit};

-- name: count
SELECT count(*) FROM {table}{where};

-- name: delete
DELETE FROM {table}{where};

-- name: head_edit
-- Needs no lock: no decision rests on these fields.
UPDATE threads SET {changes}, updated_at = {now} WHERE id = :id RETURNING id;

-- name: head_update
-- Safe only under the row's lock: whoever runs it has just locked or compared the row.
UPDATE threads SET {changes} WHERE id = :id;

-- name: letter_take
UPDATE inbox SET position = :position, entry = NULL WHERE id = :id AND thread_id = :thread_id;

-- name: thread_lock
-- NO KEY UPDATE on PostgreSQL, since FOR UPDATE would block the foreign-key checks of inserts.
SELECT {columns} FROM threads WHERE id = :id;

-- name: beat
-- A worker that was declared dead stays dead: no row comes back and it must stop.
INSERT INTO workers ({columns}) VALUES ({values})
ON CONFLICT (id) DO UPDATE SET beat_at = {now}, doing = excluded.doing WHERE NOT workers.dead
RETURNING id;

-- name: claim_due
-- Timers that have come make their threads ready; wake_at stays, so they keep the place their timer gave them.
UPDATE threads SET status = 'pending' WHERE status = 'waiting' AND wake_at <= {now};

-- name: claim
-- Differs on PostgreSQL, where many transactions choose at once; here there is only one writer.
UPDATE threads
SET status = 'running', fence = fence + 1, worker_id = :worker_id, crashes = crashes + 1, updated_at = {now}
WHERE id IN (
    SELECT id FROM threads
    WHERE status = 'pending' AND wake_at <= {now}{filters}
    ORDER BY priority DESC, wake_at, id
    LIMIT :limit)
  AND EXISTS (SELECT 1 FROM workers WHERE id = :worker_id AND NOT dead)
RETURNING {columns};

-- name: claim_one
-- The row's own lock decides between two who claim at once: the second sees the first one's worker_id.
UPDATE threads
SET status = 'running', fence = fence + 1, worker_id = :worker_id, crashes = crashes + 1, updated_at = {now}
WHERE id = :id
  AND status NOT IN ('completed', 'failed', 'cancelled')
  AND (worker_id IS NULL
       OR NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = threads.worker_id AND NOT w.dead AND NOT {expired}))
  AND EXISTS (SELECT 1 FROM workers WHERE id = :worker_id AND NOT dead)
RETURNING {columns};

-- name: worker_end
UPDATE workers SET dead = true WHERE id = :worker_id AND NOT dead{expired_only} RETURNING id;

-- name: worker_threads
-- Locks are taken descendants first, like everywhere.
SELECT id FROM threads WHERE worker_id = :worker_id ORDER BY depth DESC, id;

-- name: give_back
-- wake_at stays, so a thread that lost its worker keeps its place in the queue. The fence rises, so the worker that
-- lost it can write no more, even if it still lives.
UPDATE threads
SET status = 'pending', worker_id = NULL, fence = fence + 1, updated_at = {now}, wake_at = coalesce(wake_at, {now})
WHERE worker_id = :worker_id
  AND EXISTS (SELECT 1 FROM workers WHERE id = :worker_id AND dead)
RETURNING id;

-- name: descendants
-- Of these threads, themselves included.
WITH RECURSIVE tree AS (
    SELECT id FROM threads WHERE id IN ({ids})
    UNION
    SELECT t.id FROM threads t JOIN tree ON t.parent_id = tree.id)
SELECT id FROM tree;

-- name: threads_lock
-- Descendants before ancestors, then by id: the order of every writer.
SELECT id, worker_id FROM threads WHERE id IN ({ids}) ORDER BY depth DESC, id;

-- name: threads_delete
DELETE FROM threads WHERE id IN ({ids});

-- name: blobs_used
SELECT DISTINCT sha256 FROM blob_uses WHERE thread_id IN ({ids});

-- name: blobs_sweep
DELETE FROM blobs WHERE sha256 IN ({hashes}) AND NOT EXISTS (SELECT 1 FROM blob_uses u WHERE u.sha256 = blobs.sha256);

-- name: live_delete
DELETE FROM live WHERE thread_id IN ({ids});

-- name: average_tokens
SELECT r.thread_id, count(*) AS runs, avg(CAST(r.input_tokens AS numeric) + r.output_tokens) AS average
FROM runs r JOIN threads t ON t.id = r.thread_id
WHERE t.project = :project AND r.parent_run_id IS NULL AND r.started_at > :since
GROUP BY r.thread_id ORDER BY r.thread_id;

-- name: size_of_thread
SELECT
    (SELECT coalesce(sum({head_bytes}), 0) FROM threads WHERE id = :thread_id),
    (SELECT coalesce(sum({run_bytes}), 0) FROM runs WHERE thread_id = :thread_id),
    (SELECT coalesce(sum({stitch_bytes}), 0) FROM stitches WHERE thread_id = :thread_id),
    (SELECT coalesce(sum(b.size), 0) FROM blobs b JOIN blob_uses u ON u.sha256 = b.sha256
      WHERE u.thread_id = :thread_id),
    (SELECT coalesce(sum(length(content)), 0) FROM archives WHERE thread_id = :thread_id);

-- name: size_of_store
SELECT
    (SELECT coalesce(sum({head_bytes}), 0) FROM threads),
    (SELECT coalesce(sum({run_bytes}), 0) FROM runs),
    (SELECT coalesce(sum({stitch_bytes}), 0) FROM stitches),
    (SELECT coalesce(sum(size), 0) FROM blobs),
    (SELECT coalesce(sum(length(content)), 0) FROM archives);

-- name: version
SELECT max(version) FROM schema_versions;

-- name: version_set
INSERT INTO schema_versions (version, name, applied_at) VALUES (:version, :name, {now});

-- name: sightings
SELECT thread_id, max(position), max(log_id) FROM stitches WHERE log_id > :mark GROUP BY thread_id;
