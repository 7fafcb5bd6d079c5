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
-- Timers that have come make their threads ready; wake_at stays, so they keep the place their timer gave them. When very
-- many have come at once, each claim does a part of it.
UPDATE threads SET status = 'pending'
WHERE id IN (SELECT id FROM threads{due}
             WHERE status = 'waiting' AND wake_at IS NOT NULL AND wake_at <= {now} ORDER BY wake_at LIMIT 1000);

-- name: limits_lock
-- By name, so that two who claim under several limits cannot wait for each other in a circle.
SELECT {columns} FROM limits WHERE name IN ({names}) ORDER BY name;

-- name: held
-- Under the limits' lock: whoever else claims under them has committed, or waits. It reads what is held, no more.
SELECT coalesce(agent, ''), count(*) FROM threads{held} WHERE worker_id IS NOT NULL{others} GROUP BY 1;

-- name: thread_hold
-- The thread's agent, as it stays until the claim.
SELECT coalesce(agent, '') FROM threads WHERE id = :id;

-- name: claim_agents
SELECT value FROM json_each(:agents);

-- name: claim_any_agent
-- From one agent to the next along the index, so it costs what there are agents, not threads. The last row is NULL.
SELECT (SELECT coalesce(t.agent, '') FROM threads t{ready} WHERE t.status = 'pending'
        ORDER BY coalesce(t.agent, '') LIMIT 1)
UNION ALL
SELECT (SELECT coalesce(t.agent, '') FROM threads t{ready}
        WHERE t.status = 'pending' AND coalesce(t.agent, '') > known.name
        ORDER BY coalesce(t.agent, '') LIMIT 1)
FROM known WHERE known.name IS NOT NULL

-- name: ready_agents
WITH RECURSIVE known (name) AS ({agents})
SELECT name FROM known WHERE name IS NOT NULL;

-- name: claim_project
SELECT known.name, CAST(:project AS text), 1, 0 FROM known WHERE known.name IS NOT NULL

-- name: claim_turns
-- Of each agent the projects that take turns: the next behind the last one, at the end again from the front, until the
-- one that began. Row 0 stands where it begins; NULL ends it. A project counts once something of it is due, and when
-- enough have been found it stops: a million threads, or projects, behind them are not looked at. No EXISTS: PostgreSQL
-- may answer many of those by reading all that is ready.
SELECT known.name, CAST(:after AS text), 0, 0 FROM known WHERE known.name IS NOT NULL
UNION ALL
SELECT lane.agent,
       coalesce(
           (SELECT CASE WHEN lane.number = 0 OR lane.project {binary} > :after OR t.project {binary} <= :after
                   THEN t.project END
            FROM threads t{ready}
            WHERE t.status = 'pending' AND coalesce(t.agent, '') = lane.agent AND t.project {binary} > lane.project
            ORDER BY t.project {binary} LIMIT 1),
           (SELECT CASE WHEN t.project {binary} <= :after THEN t.project END
            FROM threads t{ready}
            WHERE t.status = 'pending' AND coalesce(t.agent, '') = lane.agent
              AND (lane.number = 0 OR lane.project {binary} > :after)
            ORDER BY t.project {binary} LIMIT 1)),
       lane.number + 1,
       lane.found + CASE WHEN lane.number > 0 THEN coalesce(
           (SELECT 1 FROM threads t{ready}
            WHERE t.status = 'pending' AND coalesce(t.agent, '') = lane.agent AND t.project {binary} = lane.project
              AND t.wake_at <= {now}
            ORDER BY t.priority DESC, t.wake_at LIMIT 1), 0) ELSE 0 END
FROM lane WHERE lane.project IS NOT NULL AND lane.found < {most}

-- name: claim
-- Differs on PostgreSQL, where many transactions choose at once; here there is only one writer, so whoever chooses has
-- chosen. Of every lane no more rows are read than are wanted in all.
WITH RECURSIVE known (name) AS ({agents}),
lane (agent, project, number, found) AS ({lanes}),
ready AS (
    SELECT t.id, t.project,
           row_number() OVER (PARTITION BY t.project ORDER BY t.priority DESC, t.wake_at, t.id) AS turn
    FROM lane CROSS JOIN threads t
    WHERE lane.number > 0
      AND t.id IN (
          SELECT id FROM threads{ready}
          WHERE status = 'pending' AND coalesce(agent, '') = lane.agent AND project = lane.project AND wake_at <= {now}
          ORDER BY priority DESC, wake_at, id
          LIMIT {most}))
UPDATE threads
SET status = 'running', fence = fence + 1, worker_id = :worker_id, crashes = crashes + 1, updated_at = {now}
WHERE id IN (SELECT id FROM ready ORDER BY turn, project <= :after, project LIMIT :limit)
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
