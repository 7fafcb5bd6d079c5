-- Queries that both databases use unchanged. {now} is the store's clock.

-- name: insert
INSERT INTO {table} ({columns}) VALUES ({values});

-- name: restore
-- An archived stitch, with the number that the store gave it. The store assigns each number once, so no other row has it.
INSERT INTO {table} (log_id, {columns}) VALUES (:log_id, {values});

-- name: upsert
INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT ({key}) DO UPDATE SET {changes};

-- name: keep
-- All columns of the record are part of its key, so there is nothing to replace.
INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT ({key}) DO NOTHING;

-- name: figures_add
-- Add to the stored totals of the day, because other transactions may add at the same time. Tokens stop at the largest
-- integer.
INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT ({key}) DO UPDATE SET
    runs = daily_metrics.runs + excluded.runs,
    failed_runs = daily_metrics.failed_runs + excluded.failed_runs,
    input_tokens = CASE WHEN daily_metrics.input_tokens > 9223372036854775807 - excluded.input_tokens THEN 9223372036854775807
        ELSE daily_metrics.input_tokens + excluded.input_tokens END,
    output_tokens = CASE WHEN daily_metrics.output_tokens > 9223372036854775807 - excluded.output_tokens THEN 9223372036854775807
        ELSE daily_metrics.output_tokens + excluded.output_tokens END,
    cache_read_tokens = CASE WHEN daily_metrics.cache_read_tokens > 9223372036854775807 - excluded.cache_read_tokens THEN 9223372036854775807
        ELSE daily_metrics.cache_read_tokens + excluded.cache_read_tokens END,
    cache_write_tokens = CASE WHEN daily_metrics.cache_write_tokens > 9223372036854775807 - excluded.cache_write_tokens THEN 9223372036854775807
        ELSE daily_metrics.cache_write_tokens + excluded.cache_write_tokens END,
    total_cost = daily_metrics.total_cost + excluded.total_cost,
    unpriced = daily_metrics.unpriced + excluded.unpriced;

-- name: select
SELECT {columns} FROM {table}{where}{order}{limit};

-- name: count
SELECT count(*) FROM {table}{where};

-- name: count_some
-- Stops at the limit.
SELECT count(*) FROM (SELECT 1 FROM {table}{by_index}{where} LIMIT :row_limit) AS counted;

-- name: delete
DELETE FROM {table}{where};

-- name: record_change
-- A concurrent change of the row is waited for, and the condition is then tested again. So one of two writers finds none.
UPDATE {table} SET {changes}{where} RETURNING 1;

-- name: head_edit
-- Needs no lock: no decision depends on these fields.
UPDATE threads SET {changes}, updated_at = {now} WHERE id = :id RETURNING id;

-- name: head_update
-- Safe only while the row is locked: the caller has just locked or compared the row.
UPDATE threads SET {changes} WHERE id = :id;

-- name: letter_take
UPDATE inbox SET position = :position, entry = NULL WHERE id = :id AND thread_id = :thread_id;

-- name: thread_lock
-- NO KEY UPDATE on PostgreSQL, because FOR UPDATE would block the foreign-key checks of inserts.
SELECT {columns} FROM threads WHERE id = :id;

-- name: beat
-- A worker that was declared dead stays dead: no row is returned, and the worker must stop.
INSERT INTO workers ({columns}) VALUES ({values})
ON CONFLICT (id) DO UPDATE SET beat_at = {now}, uptime = excluded.uptime, doing = excluded.doing
WHERE NOT workers.dead
RETURNING id;

-- name: claim_due
-- Threads with expired timers become ready. They keep wake_at, and with it their place in the queue. If very many
-- timers have expired, each claim handles a part of them.
UPDATE threads SET status = 'pending'
WHERE id IN (SELECT id FROM threads{due}
             WHERE status = 'waiting' AND wake_at IS NOT NULL AND wake_at <= {now} ORDER BY wake_at LIMIT 1000);

-- name: limits_lock
-- Ordered by name, so that two claims with several limits cannot deadlock.
SELECT {columns} FROM limits WHERE name IN ({names}) ORDER BY name;

-- name: held
-- Runs while the limits are locked: every other claim with these limits has committed, or waits.
SELECT coalesce(agent, ''), count(*) FROM threads{held} WHERE worker_id IS NOT NULL{others} GROUP BY 1;

-- name: thread_hold
-- The agent of the thread. It cannot change before the claim.
SELECT coalesce(agent, '') FROM threads WHERE id = :id;

-- name: claim_agents
SELECT value FROM json_each(:agents);

-- name: claim_any_agent
-- Steps along the index from one agent to the next, so the cost depends on the number of agents, not threads. The last
-- row is NULL.
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

-- name: until_ready
-- The time at which the next thread of these agents may be ready, and the present time. Reads a few rows of each agent: if
-- it has very many pending threads, one of them counts as ready. Expired timers of all agents count, because a claim of
-- any worker handles them.
WITH known (name) AS ({agents})
SELECT min(ready_at), {now} FROM (
    SELECT (SELECT CASE WHEN count(*) = 100 THEN {now} ELSE min(first_rows.wake_at) END
            FROM (SELECT t.wake_at FROM threads t{ready}
                  WHERE t.status = 'pending' AND coalesce(t.agent, '') = known.name {project} LIMIT 100) AS first_rows)
           AS ready_at FROM known
    UNION ALL
    SELECT (SELECT t.wake_at FROM threads t{due}
            WHERE t.status = 'waiting' AND t.wake_at IS NOT NULL AND t.wake_at <= {now} ORDER BY t.wake_at LIMIT 1)
    UNION ALL
    SELECT (SELECT t.wake_at FROM threads t{due}
            WHERE t.status = 'waiting' AND t.wake_at IS NOT NULL AND t.agent IN (SELECT name FROM known)
            ORDER BY t.wake_at LIMIT 1)) AS times;

-- name: claim_project
SELECT known.name, CAST(:project AS text), 1, 0 FROM known WHERE known.name IS NOT NULL

-- name: claim_turns
-- For each agent, the projects that take turns: the next name after the last one, at the end again from the front,
-- until the first one. Row 0 is the start; NULL ends it. A project counts once one of its threads is due. The query
-- stops when it has found enough, so it does not read a million further threads or projects. No EXISTS: PostgreSQL may
-- answer many of those by reading all ready threads.
SELECT known.name, CAST(:after AS text), 0, 0 FROM known WHERE known.name IS NOT NULL
UNION ALL
SELECT lane.agent,
       coalesce(
           (SELECT CASE WHEN lane.number = 0 OR lane.project {binary} > :after OR t.project {binary} <= :after
                   THEN t.project END
            FROM threads t{ready}
            WHERE t.status = 'pending' AND coalesce(t.agent, '') = lane.agent AND t.project {binary} > lane.project
              {suspects}
            ORDER BY t.project {binary} LIMIT 1),
           (SELECT CASE WHEN t.project {binary} <= :after THEN t.project END
            FROM threads t{ready}
            WHERE t.status = 'pending' AND coalesce(t.agent, '') = lane.agent
              AND (lane.number = 0 OR lane.project {binary} > :after) {suspects}
            ORDER BY t.project {binary} LIMIT 1)),
       lane.number + 1,
       lane.found + CASE WHEN lane.number > 0 THEN coalesce(
           (SELECT 1 FROM threads t{ready}
            WHERE t.status = 'pending' AND coalesce(t.agent, '') = lane.agent AND t.project {binary} = lane.project
              AND t.wake_at <= {now} {suspects}
            ORDER BY t.priority DESC, t.wake_at LIMIT 1), 0) ELSE 0 END
FROM lane WHERE lane.project IS NOT NULL AND lane.found < {most}

-- name: claim
-- Differs on PostgreSQL, where many transactions select at once. Here there is only one writer. From every lane at most
-- as many rows are read as are wanted in total.
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
            {suspects}
          ORDER BY priority DESC, wake_at, id
          LIMIT {most}))
UPDATE threads
SET status = 'running', fence = fence + 1, worker_id = :worker_id, alone = false, updated_at = {now}
WHERE id IN (SELECT id FROM ready ORDER BY turn, project <= :after, project LIMIT :limit)
  AND EXISTS (SELECT 1 FROM workers WHERE id = :worker_id AND NOT dead)
RETURNING {columns};

-- name: claim_suspect
-- Differs on PostgreSQL, where many transactions select at once. Suspects are few; those lost most often come first.
UPDATE threads
SET status = 'running', fence = fence + 1, worker_id = :worker_id, alone = {alone}, updated_at = {now}
WHERE id = (SELECT id FROM threads{suspect}
            WHERE status = 'pending' AND lost_by IS NOT NULL AND wake_at <= {now}{chosen}
            ORDER BY losses DESC, priority DESC, wake_at, id LIMIT 1)
  AND EXISTS (SELECT 1 FROM workers WHERE id = :worker_id AND NOT dead)
RETURNING {columns};

-- name: claim_thread
-- The lock of the row decides between two concurrent claims: the second one sees the worker_id of the first.
UPDATE threads
SET status = 'running', fence = fence + 1, worker_id = :worker_id, alone = false, updated_at = {now},
    -- A holder with an expired lease loses the thread, as in `release`.
    lost_by = coalesce(worker_id, lost_by),
    losses = losses + CASE WHEN worker_id IS NULL THEN 0 ELSE 1 END,
    crashes = crashes + CASE
        WHEN alone AND (SELECT count(*) FROM threads o WHERE o.worker_id = threads.worker_id) = 1 THEN 1 ELSE 0 END
WHERE id = :id
  AND status NOT IN ('completed', 'failed', 'cancelled')
  AND (worker_id IS NULL
       OR NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = threads.worker_id AND NOT w.dead AND NOT {expired}))
  AND EXISTS (SELECT 1 FROM workers WHERE id = :worker_id AND NOT dead)
RETURNING {columns};

-- name: worker_end
UPDATE workers SET dead = true, end_cause = :cause WHERE id = :worker_id AND NOT dead{expired_only} RETURNING id;

-- name: worker_threads
-- Locks descendants first, like all writers.
SELECT id FROM threads WHERE worker_id = :worker_id ORDER BY depth DESC, id;

-- name: give_back
-- wake_at is unchanged, so a thread that lost its worker keeps its place in the queue. The fence rises, so the worker
-- that lost the thread cannot write to it, even if it is still alive.
UPDATE threads
SET status = 'pending', worker_id = NULL, fence = fence + 1, updated_at = {now}, wake_at = coalesce(wake_at, {now}),
    alone = false{lost}
WHERE worker_id = :worker_id
  AND EXISTS (SELECT 1 FROM workers WHERE id = :worker_id AND dead)
RETURNING id;

-- name: lost
-- The worker did not release the threads itself: each of them may be the reason why it ended.
, lost_by = worker_id, losses = losses + 1

-- name: crashed
-- Only if the worker held no other thread: then it executed this thread alone until its process ended.
, crashes = crashes + CASE WHEN alone THEN 1 ELSE 0 END

-- name: descendants
-- The ids include the given threads.
WITH RECURSIVE tree AS (
    SELECT id FROM threads WHERE id IN ({ids})
    UNION
    SELECT t.id FROM threads t JOIN tree ON t.parent_id = tree.id)
SELECT id FROM tree;

-- name: threads_lock
-- Descendants before ancestors, then by id: the order of all writers.
SELECT id, worker_id FROM threads WHERE id IN ({ids}) ORDER BY depth DESC, id;

-- name: threads_delete
DELETE FROM threads WHERE id IN ({ids});

-- name: blobs_used
SELECT DISTINCT sha256 FROM blob_uses WHERE thread_id IN ({ids});

-- name: blobs_sweep
DELETE FROM blobs WHERE sha256 IN ({hashes}) AND NOT EXISTS (SELECT 1 FROM blob_uses u WHERE u.sha256 = blobs.sha256);

-- name: live_delete
DELETE FROM live_deltas WHERE thread_id IN ({ids});

-- name: average_tokens
SELECT r.thread_id, count(*) AS runs, avg(CAST(r.input_tokens AS numeric) + r.output_tokens) AS average
FROM runs r JOIN threads t ON t.id = r.thread_id
WHERE t.project = :project AND r.parent_run_id IS NULL AND r.started_at > :since
GROUP BY r.thread_id ORDER BY r.thread_id;

-- name: usage_runs
-- Costs are added in whole parts of a dollar, so the order of runs makes no difference.
WITH RECURSIVE {roots}chosen AS (
    SELECT 1 AS runs, CASE WHEN r.status = 'failed' THEN 1 ELSE 0 END AS failed_runs, r.input_tokens, r.output_tokens,
           r.cache_read_tokens, r.cache_write_tokens, {run_parts} AS parts, {run_unpriced} AS unpriced{keys}
    FROM runs r JOIN threads t ON t.id = r.thread_id{tree}
    WHERE {filters}{totals});

-- name: usage
{chosen}
SELECT {groups}{sum}(runs), {sum}(failed_runs), {sum}(input_tokens), {sum}(output_tokens), {sum}(cache_read_tokens),
       {sum}(cache_write_tokens), CASE WHEN count(parts) > 0 THEN {sum}(parts) END, {sum}(unpriced)
FROM chosen{grouping}{most};

-- name: usage_of_largest
-- Only the users with the highest cost have their own rows. A chart of many users reads few rows.
{chosen},
sums AS (
    SELECT {span} AS span, nullif(by_user, '') AS name, {sum}(runs) AS runs, {sum}(failed_runs) AS failed_runs,
           {sum}(input_tokens) AS input_tokens, {sum}(output_tokens) AS output_tokens,
           {sum}(cache_read_tokens) AS cache_read_tokens, {sum}(cache_write_tokens) AS cache_write_tokens,
           CASE WHEN count(parts) > 0 THEN {sum}(parts) END AS parts, {sum}(unpriced) AS unpriced
    FROM chosen GROUP BY {span}, nullif(by_user, '')),
named AS (SELECT name, coalesce({sum}(parts), 0) AS parts FROM sums WHERE name IS NOT NULL GROUP BY name),
largest AS (SELECT name FROM named ORDER BY parts DESC, name {binary} LIMIT :largest),
shown AS (
    SELECT sums.*, CASE WHEN sums.name IS NOT NULL AND largest.name IS NULL THEN 'rest' END AS rest
    FROM sums LEFT JOIN largest ON largest.name = sums.name)
SELECT span, CASE WHEN rest IS NULL THEN name END, rest, {sum}(runs), {sum}(failed_runs), {sum}(input_tokens),
       {sum}(output_tokens), {sum}(cache_read_tokens), {sum}(cache_write_tokens),
       CASE WHEN count(parts) > 0 THEN {sum}(parts) END, {sum}(unpriced)
FROM shown GROUP BY span, CASE WHEN rest IS NULL THEN name END, rest;

-- name: usage_totals
UNION ALL
    SELECT {model}u.runs, u.failed_runs, u.input_tokens, u.output_tokens, u.cache_read_tokens, u.cache_write_tokens,
           u.parts, u.unpriced{keys}
    FROM {table} u WHERE {total_filters};

-- name: user_totals_add
INSERT INTO user_totals (day, project, agent, status, model, user_id, version, tags, root, runs, failed_runs,
                         input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, parts, unpriced);

-- name: usage_totals_add
INSERT INTO usage_totals (day, project, agent, status, model, runs, failed_runs, input_tokens, output_tokens,
                          cache_read_tokens, cache_write_tokens, parts, unpriced)
SELECT day, project, agent, status, model, {sum}(runs), {sum}(failed_runs), {sum}(input_tokens), {sum}(output_tokens),
       {sum}(cache_read_tokens), {sum}(cache_write_tokens), CASE WHEN count(parts) > 0 THEN {sum}(parts) END,
       {sum}(unpriced)
FROM user_totals WHERE day IN ({days}) GROUP BY day, project, agent, status, model;

-- name: usage_by_model
-- A run may use several models. Tokens are those of its calls and embeddings. If the run counts more than its calls, for
-- example because they are archived, the difference goes to the run's own model. Thus the sums over models equal the
-- sums over runs. Most runs use only their own model. Their calls are not read.
{into}WITH RECURSIVE {roots}chosen AS MATERIALIZED (
    SELECT r.id, coalesce(r.model, '') AS own, r.status AS ending, r.input_tokens, r.output_tokens,
           r.cache_read_tokens, r.cache_write_tokens, {run_parts} AS parts, {run_unpriced} AS unpriced{keys}
    FROM runs r JOIN threads t ON t.id = r.thread_id{tree}
    WHERE {filters}),
-- The OFFSET makes PostgreSQL look for each chosen run. A join of some ten thousand runs would read all stitches.
mixed AS MATERIALIZED (
    SELECT c.id, c.own FROM chosen c
    WHERE EXISTS (
        SELECT 1 FROM stitches s
        WHERE s.run_id = c.id AND (s.type = 'llm_call' OR (s.type = 'span' AND s.input_tokens IS NOT NULL))
          AND s.name <> c.own
        LIMIT 1 OFFSET 0)),
calls AS (
    SELECT s.run_id AS id, coalesce(s.name, mixed.own) AS name, {sum}(coalesce(s.input_tokens, 0)) AS input_tokens,
           {sum}(coalesce(s.output_tokens, 0)) AS output_tokens,
           {sum}(coalesce(s.cache_read_tokens, 0)) AS cache_read_tokens,
           {sum}(coalesce(s.cache_write_tokens, 0)) AS cache_write_tokens
    FROM mixed JOIN stitches s ON s.run_id = mixed.id
    WHERE s.type = 'llm_call' OR (s.type = 'span' AND s.input_tokens IS NOT NULL)
    GROUP BY s.run_id, coalesce(s.name, mixed.own)),
sums AS (
    SELECT id, count(*) AS models, {sum}(input_tokens) AS input_tokens, {sum}(output_tokens) AS output_tokens,
           {sum}(cache_read_tokens) AS cache_read_tokens, {sum}(cache_write_tokens) AS cache_write_tokens
    FROM calls GROUP BY id),
told AS (
    SELECT sums.*, c.own FROM sums JOIN chosen c ON c.id = sums.id
    WHERE sums.input_tokens <= c.input_tokens AND sums.output_tokens <= c.output_tokens
      AND sums.cache_read_tokens <= c.cache_read_tokens AND sums.cache_write_tokens <= c.cache_write_tokens),
prices AS (
    SELECT s.run_id AS id, coalesce(s.name, told.own) AS name, {call_parts} AS parts
    FROM told JOIN stitches s ON s.run_id = told.id
    WHERE told.models > 1 AND (s.type = 'llm_call' OR (s.type = 'span' AND s.input_tokens IS NOT NULL))),
priced AS (
    SELECT id, name, CASE WHEN count(parts) > 0 THEN {sum}(parts) END AS parts, count(*) - count(parts) AS unpriced
    FROM prices GROUP BY id, name),
rest AS (
    SELECT id, {sum}(coalesce(parts, 0)) AS parts, {sum}(unpriced) AS unpriced FROM priced GROUP BY id),
shares AS (
    SELECT c.own AS model, 1 AS runs, CASE WHEN c.ending = 'failed' THEN 1 ELSE 0 END AS failed_runs,
           c.input_tokens - coalesce(told.input_tokens, 0) AS input_tokens,
           c.output_tokens - coalesce(told.output_tokens, 0) AS output_tokens,
           c.cache_read_tokens - coalesce(told.cache_read_tokens, 0) AS cache_read_tokens,
           c.cache_write_tokens - coalesce(told.cache_write_tokens, 0) AS cache_write_tokens,
           CASE WHEN told.id IS NULL THEN c.parts WHEN told.models > 1 THEN nullif(c.parts - rest.parts, 0) END AS parts,
           CASE WHEN told.id IS NULL THEN c.unpriced WHEN told.models > 1 THEN c.unpriced - rest.unpriced ELSE 0 END
               AS unpriced{kept_keys}
    FROM chosen c LEFT JOIN told ON told.id = c.id LEFT JOIN rest ON rest.id = c.id
    UNION ALL
    SELECT calls.name, 0, 0, calls.input_tokens, calls.output_tokens, calls.cache_read_tokens,
           calls.cache_write_tokens,
           CASE WHEN told.models = 1 THEN c.parts WHEN c.parts IS NOT NULL THEN priced.parts END,
           CASE WHEN told.models = 1 THEN c.unpriced ELSE priced.unpriced END{kept_keys}
    FROM chosen c JOIN told ON told.id = c.id JOIN calls ON calls.id = c.id
    LEFT JOIN priced ON priced.id = c.id AND priced.name = calls.name{totals})
SELECT {groups}{sum}(runs), {sum}(failed_runs), {sum}(input_tokens), {sum}(output_tokens), {sum}(cache_read_tokens),
       {sum}(cache_write_tokens), CASE WHEN count(parts) > 0 THEN {sum}(parts) END, {sum}(unpriced)
FROM shares{of_model}{grouping}{most};

-- name: usage_roots
-- Every thread of the runs with its root.
ancestors (id, root, parent_id) AS (
    SELECT DISTINCT t.id, t.id, t.parent_id FROM runs r JOIN threads t ON t.id = r.thread_id WHERE {filters}
    UNION ALL
    SELECT below.id, t.id, t.parent_id FROM ancestors below JOIN threads t ON t.id = below.parent_id),
roots (id, root) AS (SELECT id, root FROM ancestors WHERE parent_id IS NULL),

-- name: latencies
-- Percentiles by nearest rank: the smallest duration that N percent of the calls do not exceed. Calls with the same
-- duration are counted first, because most calls share theirs. Calls without a duration are ranked separately, because
-- the databases sort NULL differently.
WITH calls AS (
    SELECT coalesce({called}, '') AS name, s.duration_ms, CASE WHEN s.{failed} THEN 1 ELSE 0 END AS failed,
           1 AS calls
    {calls}
    WHERE s.type {types} AND {filters}{totals}),
counted AS (
    SELECT name, duration_ms, CAST(sum(failed) AS bigint) AS failed, CAST(sum(calls) AS bigint) AS calls
    FROM calls GROUP BY name, duration_ms),
ranked AS (
    SELECT name, duration_ms, failed, calls,
           CAST(sum(CASE WHEN duration_ms IS NULL THEN 0 ELSE calls END) OVER (PARTITION BY name) AS bigint) AS timed,
           CAST(sum(calls) OVER (PARTITION BY name, duration_ms IS NULL ORDER BY duration_ms) AS bigint) AS place
    FROM counted)
SELECT name, sum(calls), sum(failed), max(timed), {sum}(duration_ms * calls),
       min(CASE WHEN place >= (timed * 50 + 99) / 100 THEN duration_ms END),
       min(CASE WHEN place >= (timed * 95 + 99) / 100 THEN duration_ms END),
       min(CASE WHEN place >= (timed * 99 + 99) / 100 THEN duration_ms END),
       max(duration_ms)
FROM ranked GROUP BY name;

-- name: call_totals
UNION ALL
    SELECT coalesce({shown}, ''), u.duration_ms, u.failed, u.calls
    FROM call_totals u WHERE u.kind = :kind AND {total_filters};

-- name: call_totals_add
INSERT INTO call_totals (kind, day, project, agent, status, model, name, duration_ms, failed, calls)
SELECT :kind, {day}, t.project, r.agent, r.status, r.model, {called}, s.duration_ms,
       sum(CASE WHEN s.{failed} THEN 1 ELSE 0 END), count(*)
{calls}
WHERE s.type {types} AND {filters}
GROUP BY {day}, t.project, r.agent, r.status, r.model, {called}, s.duration_ms;

-- name: days_of_runs
-- The days of these runs, with the number of open native runs and of all runs.
SELECT {day}, {sum}(CASE WHEN r.source = 'native' AND r.status IN ('pending', 'running', 'waiting') THEN 1 ELSE 0 END),
       count(*)
FROM runs r WHERE {filters} GROUP BY {day};

-- name: days_forget_usage
DELETE FROM usage_totals WHERE day IN ({days});

-- name: days_forget_users
DELETE FROM user_totals WHERE day IN ({days});

-- name: days_forget_calls
DELETE FROM call_totals WHERE day IN ({days});

-- name: days_forget
DELETE FROM settled_days WHERE day IN ({days});

-- name: calls_of_runs
FROM runs r JOIN threads t ON t.id = r.thread_id JOIN stitches s ON s.run_id = r.id;

-- name: calls_of_periods
-- The runs of some periods, with their calls.
FROM runs r JOIN threads t ON t.id = r.thread_id JOIN stitches s ON s.run_id = r.id;

-- name: all_tool_calls
FROM runs r JOIN threads t ON t.id = r.thread_id JOIN stitches s ON s.run_id = r.id;

-- name: runs_listed
SELECT {columns} FROM runs r JOIN threads t ON t.id = r.thread_id
WHERE {filters} ORDER BY {order} LIMIT :row_limit;

-- name: runs_bound
-- The key at which a walk along the index of an order ends. No row if there are fewer runs.
SELECT CAST({key} AS text) FROM runs r WHERE {filters} ORDER BY {key} DESC LIMIT 1 OFFSET :walked;

-- name: runs_walked
-- Read along the index of the order until enough runs match.
SELECT {columns} FROM runs r JOIN threads t ON t.id = r.thread_id
WHERE {key} >= :bound AND {filters} ORDER BY {order} LIMIT :row_limit;

-- name: days_with_runs
-- The settled days, the newest first: the numbers of all runs, of those of the project, and of those that match.
SELECT u.day, sum(u.runs), sum(CASE WHEN {of_project} THEN u.runs ELSE 0 END),
       sum(CASE WHEN {matching} THEN u.runs ELSE 0 END)
FROM usage_totals u WHERE {total_filters} GROUP BY u.day ORDER BY u.day DESC;

-- name: runs_mirrored
-- Uses the index of the id that a lens shows.
SELECT {columns} FROM runs r JOIN threads t ON t.id = r.thread_id
WHERE {shown_id} = :foreign_id AND r.foreign_id IS NOT NULL AND t.project = :project
ORDER BY r.started_at, r.id LIMIT 1;

-- name: outline
-- Reads neither message nor data, which are large. Of calls it reads a few values from data.
SELECT {columns}, CASE WHEN s.type IN ({types}) OR s.input_tokens IS NOT NULL THEN {told} END
  FROM stitches s WHERE s.run_id = :run_id ORDER BY s.position;

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

-- name: version_set
INSERT INTO schema_versions (version, name, applied_at) VALUES (:version, :name, {now});

-- name: extension_version
-- The version, and the newest migration that older code cannot work with.
SELECT max(version), max(CASE WHEN name LIKE '%^_contract' ESCAPE '^' THEN version END)
FROM extension_versions WHERE extension = :extension;

-- name: extension_set
INSERT INTO extension_versions (extension, version, name, applied_at) VALUES (:extension, :version, :name, {now});

-- name: extensions
SELECT DISTINCT extension FROM extension_versions ORDER BY extension;

-- name: sightings
SELECT thread_id, max(position), max(log_id) FROM stitches WHERE log_id > :mark GROUP BY thread_id;
