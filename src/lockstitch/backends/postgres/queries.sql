-- What PostgreSQL says in its own way: many transactions run at once here, so rows are locked by name, and everything
-- that a round trip can be saved on is one statement. Tables get their schema when this file is loaded.

-- own: change
-- The compare-and-set, and all that a change writes hangs on it in one statement. The update re-reads the row once
-- it has its lock, so of two who saw the same head exactly one finds it; where it finds none, nothing is inserted.
-- Foreign keys are checked when the statement ends, so a stitch may refer to a run that came with it.
WITH head AS (
    UPDATE threads SET position = :position, crashes = 0{changes}
    WHERE id = :thread_id AND fence = :seen_fence AND position = :seen_position
      AND worker_id IS NOT DISTINCT FROM :seen_worker{delivered}
    RETURNING id, delivered, cancel_requested){parts}
SELECT delivered, cancel_requested FROM head;

-- own: change_new_runs
, new_runs AS (
    INSERT INTO runs ({columns}) SELECT new.* FROM head, (VALUES {rows}) AS new);

-- own: change_run
, run_{number} AS (
    UPDATE runs SET {changes} FROM head WHERE runs.id = :run{number}_id AND runs.thread_id = head.id);

-- own: change_stitches
-- log_id is drawn after the head is locked, so within a thread it rises with the position.
, new_stitches AS (
    INSERT INTO stitches ({columns}) SELECT new.* FROM head, (VALUES {rows}) AS new);

-- own: change_letters
, taken AS (
    UPDATE inbox SET position = letter.position, entry = NULL
    FROM head, (VALUES {rows}) AS letter (id, position)
    WHERE inbox.id = letter.id AND inbox.thread_id = head.id);

-- name: delete
-- Differs: the number comes with it.
WITH gone AS (DELETE FROM {table}{where} RETURNING 1) SELECT count(*) FROM gone;

-- name: thread_lock
-- Differs: NO KEY UPDATE, since FOR UPDATE would block the foreign-key checks of inserts.
SELECT {columns} FROM threads WHERE id = :id FOR NO KEY UPDATE;

-- own: ranges
-- Several ranges of one log in one snapshot. The ordered subquery is not pulled up, so each range costs what it holds
-- however long the log is.
SELECT {columns}
FROM unnest(:firsts::bigint[], :lasts::bigint[]) AS part (first, last)
CROSS JOIN LATERAL (
    SELECT * FROM stitches
    WHERE thread_id = :thread_id AND position >= part.first AND position <= part.last
    ORDER BY position) AS stitch
ORDER BY position;

-- own: worker_hold
-- Held to the end of a claim: `release` of the same worker waits, and then finds what was claimed. The other way
-- round, this waits, and the claim after it finds a dead worker. Beats wait for a moment.
SELECT 1 FROM workers WHERE id = :worker_id FOR SHARE;

-- own: thread_hold
-- The claim after this looks with fresh eyes, so a worker who came and claimed while this waited is seen.
SELECT 1 FROM threads WHERE id = :id FOR NO KEY UPDATE;

-- name: claim_due
-- Differs: rows that somebody is writing are left for the next time.
UPDATE threads SET status = 'pending'
WHERE id IN (SELECT id FROM threads WHERE status = 'waiting' AND wake_at <= {now} FOR NO KEY UPDATE SKIP LOCKED);

-- name: claim
-- Differs: many choose at once. Each skips what another is choosing; the CTE is computed once, or the planner might
-- lock more rows than the limit.
WITH chosen AS MATERIALIZED (
    SELECT id AS chosen_id FROM threads
    WHERE status = 'pending' AND wake_at <= {now}{filters}
      AND EXISTS (SELECT 1 FROM workers WHERE id = :worker_id AND NOT dead)
    ORDER BY priority DESC, wake_at, id
    LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED)
UPDATE threads
SET status = 'running', fence = fence + 1, worker_id = :worker_id, crashes = crashes + 1, updated_at = {now}
FROM chosen WHERE id = chosen_id
RETURNING {columns};

-- name: worker_threads
-- Differs: locked, in the order of every writer.
SELECT id FROM threads WHERE worker_id = :worker_id ORDER BY depth DESC, id FOR UPDATE;

-- name: threads_lock
-- Differs: locked, in the order of every writer.
SELECT id, worker_id FROM threads WHERE id IN ({ids}) ORDER BY depth DESC, id FOR UPDATE;

-- own: incoming
-- Columns alone, no rules: the table that the rows go to has those. Gone with its transaction.
CREATE TEMPORARY TABLE incoming ON COMMIT DROP AS SELECT {columns} FROM {table} WITH NO DATA;

-- own: copy
COPY {into} ({columns}) FROM STDIN;

-- own: incoming_upsert
INSERT INTO {table} ({columns}) SELECT {columns} FROM incoming ON CONFLICT ({key}) DO {action};

-- own: notify
-- After the commit it tells of, never inside: NOTIFY takes a lock that all committers share. Nothing is lost with it,
-- so it does not wait for the disk.
SELECT pg_notify('lockstitch', payload), set_config('synchronous_commit', 'off', true)
FROM unnest(string_to_array(:payloads, ' ')) AS payload;

-- own: horizon
-- The end of the log as it is seen now, the oldest transaction that still writes and, where the log has grown, one that
-- is younger than all that drew their numbers before that end: this one, which gets its number after it has looked.
-- The end of the snapshot would not do: transactions that began after the last one that ended lie beyond it.
SELECT log_end, pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
       CASE WHEN log_end > :known THEN pg_current_xact_id()::text::bigint END
FROM (SELECT coalesce(max(log_id), 0) AS log_end FROM stitches) AS log;

-- own: search
-- Titles, with the same expression as in their index, or it would not be used; texts up to the mark by theirs; and what
-- came after it word by word. The mark is a value, so that the planner sees how little that is. Places are found before
-- their projects are asked for, or the planner might go through all threads of a project.
WITH known AS MATERIALIZED (
    SELECT thread_id, position, ts_rank(words, query) AS score
    FROM text_search, plainto_tsquery('simple', lockstitch.search_words(:text)) AS query
    WHERE words @@ query AND log_id <= :mark),
recent AS MATERIALIZED (
    SELECT thread_id, position, lockstitch.message_words(message) AS words FROM stitches
    WHERE log_id > :mark AND (type = 'input' OR (type = 'llm_call' AND status IS DISTINCT FROM 'tool_use')))
SELECT thread_id, position, score FROM (
    SELECT t.id AS thread_id, NULL::bigint AS position,
           ts_rank(to_tsvector('simple', lockstitch.search_words(t.title)), query) AS score
    FROM threads t, plainto_tsquery('simple', lockstitch.search_words(:text)) AS query
    WHERE t.title IS NOT NULL AND to_tsvector('simple', lockstitch.search_words(t.title)) @@ query
      AND t.project = :project
    UNION ALL
    SELECT known.thread_id, known.position, known.score
    FROM known JOIN threads t ON t.id = known.thread_id AND t.project = :project
    UNION ALL
    SELECT recent.thread_id, recent.position, ts_rank(recent.words, query)
    FROM recent JOIN threads t ON t.id = recent.thread_id AND t.project = :project,
         plainto_tsquery('simple', lockstitch.search_words(:text)) AS query
    WHERE recent.words @@ query) AS hit
ORDER BY score DESC, thread_id, position NULLS FIRST
LIMIT :limit;

-- own: search_mark
SELECT log_id FROM search_mark;

-- own: search_lock
-- One fills at a time, while nobody replaces what may just be filled. Whoever waits too long searches without. What is
-- lost can be filled again, so nothing waits for the disk.
SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true),
       pg_advisory_xact_lock(7167303524108317285);

-- own: search_fill
-- Safe under its lock. The stitches are locked as their foreign key locks them: one that is deleted meanwhile is passed
-- over, and before the limit, so that fewer rows mean that there are no more.
WITH next AS MATERIALIZED (
    SELECT thread_id, position, log_id, message FROM stitches
    WHERE log_id > :mark AND log_id <= :complete AND message IS NOT NULL
      AND (type = 'input' OR (type = 'llm_call' AND status IS DISTINCT FROM 'tool_use'))
    ORDER BY log_id
    LIMIT :limit
    FOR KEY SHARE),
filled AS (
    INSERT INTO text_search (thread_id, position, log_id, words)
    SELECT thread_id, position, log_id, lockstitch.message_words(message) FROM next)
UPDATE search_mark
SET log_id = (SELECT CASE WHEN count(*) < :limit::bigint THEN :complete::bigint ELSE max(next.log_id) END FROM next)
RETURNING log_id;

-- own: disk
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'lockstitch' AND c.relkind IN ('r', 'm');

-- own: schema_lock
-- One process migrates at a time; the number is this project's alone.
SELECT pg_advisory_xact_lock(7167303524108317284);

-- own: schema_known
SELECT to_regclass('lockstitch.schema_versions') IS NOT NULL, to_regnamespace('lockstitch') IS NOT NULL;

-- own: schema_create
CREATE SCHEMA lockstitch;

-- own: schema_path
SET LOCAL search_path TO lockstitch;

-- own: versions_create
CREATE TABLE schema_versions (version bigint PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL);

-- own: query_begin
BEGIN READ ONLY;

-- own: query_limits
SELECT set_config('statement_timeout', :milliseconds, true), set_config('search_path', 'lockstitch, public', true);

-- own: query_role
-- A superuser may read files and run programs; what it asks here, it asks as one that may read tables.
SELECT set_config('role', 'pg_read_all_data', true) FROM pg_roles WHERE rolname = current_user AND rolsuper;
