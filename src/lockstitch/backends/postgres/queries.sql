-- Queries that only PostgreSQL needs. Many transactions run at once here, so rows are locked explicitly. Statements are
-- combined to save round trips. Tables get their schema name when this file is loaded.

-- own: change
-- The compare-and-set, with everything that a change writes in one statement. The update reads the row again once it
-- has the lock, so of two writers that saw the same head exactly one finds it. If it finds none, nothing is inserted.
-- Foreign keys are checked at the end of the statement, so a stitch may refer to a run of the same statement.
WITH head AS (
    UPDATE threads SET position = :position{changes}
    WHERE id = :thread_id AND fence = :seen_fence AND position = :seen_position
      AND worker_id IS NOT DISTINCT FROM :seen_worker{compared}
    RETURNING id, delivered, cancel_requested){parts}
SELECT delivered, cancel_requested FROM head;

-- own: new_thread
-- A new thread with everything that its first change writes, in one statement. No other writer has seen the thread, so
-- nothing is compared. An insert that finds its id or its key in use fails, and with it the statement.
WITH head AS (
    INSERT INTO threads ({columns}) VALUES ({values}) RETURNING id, delivered, cancel_requested){parts}
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

-- own: change_deliveries
, taken AS (
    UPDATE inbox SET position = taken.position, entry = NULL
    FROM head, (VALUES {rows}) AS taken (id, position)
    WHERE inbox.id = taken.id AND inbox.thread_id = head.id);

-- own: change_uses
, uses AS (
    INSERT INTO blob_uses (thread_id, sha256)
    SELECT head.id, used.sha256 FROM head, (VALUES {rows}) AS used (sha256)
    ON CONFLICT DO NOTHING);

-- name: delete
-- Differs: it returns the number of rows.
WITH gone AS (DELETE FROM {table}{where} RETURNING 1) SELECT count(*) FROM gone;

-- name: thread_lock
-- Differs: NO KEY UPDATE, because FOR UPDATE would block the foreign-key checks of inserts.
SELECT {columns} FROM threads WHERE id = :id FOR NO KEY UPDATE;

-- own: ranges
-- Several ranges of one log in one snapshot. The planner does not flatten the ordered subquery, so the cost of a range
-- depends on its size, not on the length of the log.
SELECT {columns}
FROM unnest(:firsts::bigint[], :lasts::bigint[]) AS part (first, last)
CROSS JOIN LATERAL (
    SELECT * FROM stitches
    WHERE thread_id = :thread_id AND position >= part.first AND position <= part.last
    ORDER BY position) AS stitch
ORDER BY position;

-- own: worker_hold
-- Locked until the claim ends: a `release` of the same worker waits, and then finds the claimed threads. If the release
-- comes first, this statement waits, and the claim finds a dead worker. Heartbeats wait for a moment. The planner
-- overestimates the recursive index scan, and compiling it would take a hundred times longer than running it, so JIT is
-- off. Planning takes longer than the claim, too, so the session keeps a plan that does not depend on the values.
SELECT set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)
FROM workers WHERE id = :worker_id FOR SHARE;

-- name: thread_hold
-- Differs: locked. The next statement has a new snapshot, so it sees a claim that committed while this statement
-- waited.
SELECT coalesce(agent, '') FROM threads WHERE id = :id FOR NO KEY UPDATE;

-- name: limits_lock
-- Differs: locked. Held threads are counted after this, so all earlier claims with the same limits are visible.
SELECT {columns} FROM limits WHERE name IN ({names}) ORDER BY name FOR UPDATE;

-- name: claim_agents
-- Differs: the name of the function.
SELECT json_array_elements_text(:agents::json);

-- name: claim_due
-- Differs: rows that another transaction is writing are skipped. An array, because the planner assumes a few elements:
-- it cannot know how few waiting threads have a timer, and would read all threads.
UPDATE threads SET status = 'pending'
WHERE id = ANY (ARRAY(
    SELECT id FROM threads WHERE status = 'waiting' AND wake_at IS NOT NULL AND wake_at <= {now}
    ORDER BY wake_at LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED));

-- name: claim
-- Differs: many transactions select at once, and each skips rows that another one has locked. So it looks at more
-- candidates than wanted. They are passed as an array, because the planner assumes a few elements and looks them up by
-- key. They are checked again once locked. The first column is the number of candidates, also if none was claimed.
WITH RECURSIVE known (name) AS ({agents}),
lane (agent, project, number, found) AS ({lanes}),
ready AS (
    SELECT head.id, lane.project,
           row_number() OVER (PARTITION BY lane.project ORDER BY head.priority DESC, head.wake_at, head.id) AS turn
    FROM lane CROSS JOIN LATERAL (
        SELECT t.id, t.priority, t.wake_at FROM threads t
        WHERE t.status = 'pending' AND coalesce(t.agent, '') = lane.agent AND t.project {binary} = lane.project
          AND t.wake_at <= {now} {suspects}
        ORDER BY t.priority DESC, t.wake_at, t.id
        LIMIT {most}) AS head
    WHERE lane.number > 0),
candidate AS MATERIALIZED (
    SELECT array(SELECT id FROM ready
                 ORDER BY turn, project {binary} <= :after, project {binary} LIMIT {most}) AS ids),
chosen AS MATERIALIZED (
    SELECT id AS chosen_id FROM threads
    WHERE id = ANY ((SELECT ids FROM candidate)::uuid[]) AND status = 'pending' AND wake_at <= {now} {suspects}
      AND EXISTS (SELECT 1 FROM workers WHERE id = :worker_id AND NOT dead)
    ORDER BY array_position((SELECT ids FROM candidate), id)
    LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED),
taken AS (
    UPDATE threads
    SET status = 'running', fence = fence + 1, worker_id = :worker_id, alone = false, updated_at = {now}
    FROM chosen WHERE id = chosen_id
    RETURNING {columns})
SELECT cardinality(candidate.ids), taken.* FROM candidate LEFT JOIN taken ON true;

-- name: claim_suspect
-- Differs: a suspect that another transaction has locked is skipped.
WITH chosen AS MATERIALIZED (
    SELECT id AS chosen_id FROM threads
    WHERE status = 'pending' AND lost_by IS NOT NULL AND wake_at <= {now}{chosen}
      AND EXISTS (SELECT 1 FROM workers WHERE id = :worker_id AND NOT dead)
    ORDER BY losses DESC, priority DESC, wake_at, id LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED)
UPDATE threads
SET status = 'running', fence = fence + 1, worker_id = :worker_id, alone = {alone}, updated_at = {now}
FROM chosen WHERE id = chosen_id
RETURNING {columns};

-- name: worker_threads
-- Differs: locked, in the order of all writers.
SELECT id FROM threads WHERE worker_id = :worker_id ORDER BY depth DESC, id FOR UPDATE;

-- name: threads_lock
-- Differs: locked, in the order of all writers.
SELECT id, worker_id FROM threads WHERE id IN ({ids}) ORDER BY depth DESC, id FOR UPDATE;

-- own: incoming
-- Only columns, no constraints: the target table has those. Dropped with its transaction.
CREATE TEMPORARY TABLE incoming ON COMMIT DROP AS SELECT {columns} FROM {table} WITH NO DATA;

-- own: copy
COPY {into} ({columns}) FROM STDIN;

-- own: incoming_upsert
INSERT INTO {table} ({columns}) SELECT {columns} FROM incoming ON CONFLICT ({key}) DO {action};

-- own: notify
-- Workers listen only for work, so that not every stitch wakes every worker. After the commit, never inside it: NOTIFY takes a lock that all committing transactions share. A lost notification
-- does no harm, so it does not wait for the disk.
SELECT pg_notify(CASE payload WHEN 'work' THEN 'lockstitch_work' ELSE 'lockstitch' END, payload),
       set_config('synchronous_commit', 'off', true)
FROM unnest(string_to_array(:payloads, ' ')) AS payload;

-- own: notify_within
-- Inside the transaction, because it belongs to the caller, who does not report its end. The server sends it when the
-- caller commits. The lock that committing transactions share is taken once per started thread, never per step. The
-- caller decides whether the commit waits for the disk.
SELECT pg_notify(CASE payload WHEN 'work' THEN 'lockstitch_work' ELSE 'lockstitch' END, payload)
FROM unnest(string_to_array(:payloads, ' ')) AS payload;

-- own: place
-- The start time identifies a server, the oid a database in it: names and addresses may differ.
SELECT pg_postmaster_start_time(), oid::bigint FROM pg_catalog.pg_database WHERE datname = current_database();

-- own: horizon
-- The current end of the log, the oldest transaction that still writes and, if the log has grown, a transaction that is
-- younger than all that drew their numbers before that end: this one, which gets its id after it has read the end. The
-- end of the snapshot is not enough: transactions that started after the last one that ended are beyond it.
SELECT log_end, pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
       CASE WHEN log_end > :known THEN pg_current_xact_id()::text::bigint END
FROM (SELECT coalesce(max(log_id), 0) AS log_end FROM stitches) AS log;

-- own: search
-- Titles, with the same expression as in their index, so that the index is used; texts up to the mark with their index;
-- later texts word by word. Matches are found before their projects are read, or the planner might scan all threads of a
-- project. Only the newest matches are ranked. If there are many, they are not sorted: the texts are read from the newest
-- one until enough match. The CASE hides from the planner that the index of words could find them.
-- The limits are part of the text, and the sum hides the index of log_id. Otherwise a prepared statement, which is planned
-- without the values of its parameters, reads all texts.
WITH found AS MATERIALIZED (
    SELECT thread_id, position, log_id
    FROM text_search, plainto_tsquery('simple', lockstitch.search_words(:text)) AS query
    WHERE words @@ query AND log_id + 0 <= :mark
    LIMIT {many}),
newest AS MATERIALIZED (
    SELECT thread_id, position, words FROM text_search JOIN (
        SELECT found.thread_id, found.position
        FROM found JOIN threads t ON t.id = found.thread_id AND t.project = :project
        WHERE (SELECT count(*) FROM found) < {many}
        ORDER BY found.log_id DESC LIMIT {ranked}) AS last USING (thread_id, position)
    UNION ALL
    (SELECT text.thread_id, text.position, text.words
     FROM text_search text JOIN threads t ON t.id = text.thread_id AND t.project = :project
     WHERE CASE WHEN text.words @@ (SELECT plainto_tsquery('simple', lockstitch.search_words(:text))) THEN true END
       AND text.log_id <= :mark AND (SELECT count(*) FROM found) >= {many}
     ORDER BY text.log_id DESC LIMIT {ranked})),
recent AS MATERIALIZED (
    SELECT thread_id, position, lockstitch.stitch_words(type, message, data) AS words FROM stitches
    WHERE log_id > :mark
      AND (message IS NOT NULL OR type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error'))
    ORDER BY log_id DESC LIMIT {recent})
SELECT thread_id, position, score FROM (
    SELECT titled.id AS thread_id, NULL::bigint AS position,
           ts_rank(to_tsvector('simple', lockstitch.search_words(titled.title)), query) AS score
    FROM (SELECT t.id, t.title, query
          FROM threads t, plainto_tsquery('simple', lockstitch.search_words(:text)) AS query
          WHERE t.title IS NOT NULL AND to_tsvector('simple', lockstitch.search_words(t.title)) @@ query
            AND t.project = :project
          ORDER BY t.id DESC LIMIT {titles}) AS titled
    UNION ALL
    SELECT newest.thread_id, newest.position, ts_rank(newest.words, query)
    FROM newest, plainto_tsquery('simple', lockstitch.search_words(:text)) AS query
    UNION ALL
    SELECT recent.thread_id, recent.position, ts_rank(recent.words, query)
    FROM recent JOIN threads t ON t.id = recent.thread_id AND t.project = :project,
         plainto_tsquery('simple', lockstitch.search_words(:text)) AS query
    WHERE recent.words @@ query) AS hit
ORDER BY score DESC, thread_id, position NULLS FIRST
LIMIT {limit};

-- own: days_lock
-- One transaction settles days at a time.
SELECT pg_try_advisory_xact_lock(7167303524108317286);

-- own: days_limit
-- The clock of the server, as in the triggers.
SELECT to_char(now() AT TIME ZONE 'UTC' - interval '1 day', 'YYYY-MM-DD');

-- own: days_settled
-- A day is settled until a transaction changes it that is not part of the snapshot of its totals.
SELECT d.day, d.number FROM settled_days d
WHERE NOT EXISTS (
    SELECT 1 FROM changed_days c WHERE c.day = d.day AND NOT pg_visible_in_snapshot(c.changed_by, d.snapshot));

-- own: days_settle
-- The totals are computed after this. They may contain later changes, but then the day is not settled. Changes that
-- the snapshot contains are no longer needed.
WITH settled AS (
    INSERT INTO settled_days (day, snapshot) VALUES (:day, pg_current_snapshot()) RETURNING day, snapshot)
DELETE FROM changed_days c USING settled
WHERE c.day = settled.day AND pg_visible_in_snapshot(c.changed_by, settled.snapshot)
RETURNING c.day;

-- own: days_unsettle
INSERT INTO changed_days (day)
SELECT DISTINCT to_char(started_at AT TIME ZONE 'UTC', 'YYYY-MM-DD') FROM runs WHERE id IN ({ids});

-- own: search_mark
SELECT log_id FROM search_mark;

-- own: search_left
SELECT greatest(0, coalesce((SELECT max(log_id) FROM stitches), 0) - (SELECT log_id FROM search_mark));

-- own: search_lock
-- One transaction fills the index at a time, while no other transaction replaces the stitches that it reads. A search
-- that waits too long continues without filling. A lost fill can be repeated, so it does not wait for the disk.
SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true),
       pg_advisory_xact_lock(7167303524108317285);

-- own: search_fill
-- Safe while the lock is held. The stitches are locked as their foreign key locks them: one that is deleted
-- concurrently is skipped before the limit, so fewer rows mean that no stitches are left.
WITH next AS MATERIALIZED (
    SELECT thread_id, position, log_id, type, message, data FROM stitches
    WHERE log_id > :mark AND log_id <= :complete
      AND (message IS NOT NULL OR type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error'))
    ORDER BY log_id
    LIMIT :limit
    FOR KEY SHARE),
filled AS (
    INSERT INTO text_search (thread_id, position, log_id, words)
    SELECT thread_id, position, log_id, lockstitch.stitch_words(type, message, data) FROM next)
UPDATE search_mark
SET log_id = (SELECT CASE WHEN count(*) < :limit::bigint THEN :complete::bigint ELSE max(next.log_id) END FROM next)
RETURNING log_id;

-- own: search_share
-- The mark of the index does not move until the transaction ends.
SELECT pg_advisory_xact_lock_shared(7167303524108317285);

-- own: search_restore
INSERT INTO text_search (thread_id, position, log_id, words)
SELECT s.thread_id, s.position, s.log_id, lockstitch.stitch_words(s.type, s.message, s.data)
FROM stitches s JOIN search_mark mark ON s.log_id <= mark.log_id
WHERE s.thread_id = :thread_id AND s.position BETWEEN :first AND :last
  AND (s.message IS NOT NULL OR s.type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error'));

-- own: disk
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'lockstitch' AND c.relkind IN ('r', 'm');

-- own: schema_lock
-- One process migrates at a time. The number is used only by this project.
SELECT pg_advisory_xact_lock(7167303524108317284);

-- own: schema_known
SELECT to_regclass('lockstitch.schema_versions') IS NOT NULL, to_regnamespace('lockstitch') IS NOT NULL;

-- own: version
-- The version, the newest migration that older code cannot work with, and True if the tables are those of the migrations.
SELECT max(version), max(version) FILTER (WHERE name LIKE '%^_contract' ESCAPE '^'),
       to_regclass('lockstitch.daily_metrics') IS NOT NULL
FROM schema_versions;

-- own: schema_create
CREATE SCHEMA lockstitch;

-- own: schema_path
SET LOCAL search_path TO lockstitch;

-- own: versions_create
CREATE TABLE schema_versions (version bigint PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL);

-- own: lenses_known
-- The schemas with these names, their comments, their ownership and their number of views; if this user can create
-- schemas; if the role for reading is missing and can be created; and if the extensions can be read.
SELECT n.nspname::text, obj_description(n.oid, 'pg_namespace'), pg_has_role(n.nspowner, 'USAGE'),
       (SELECT count(*) FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relkind = 'v')
FROM pg_catalog.pg_namespace n WHERE n.nspname = ANY (string_to_array(:names, ' '))
UNION ALL
SELECT '', NULL, has_database_privilege(current_database(), 'CREATE'), 0
UNION ALL
SELECT '', 'reader', NOT EXISTS (
    SELECT 1 FROM pg_catalog.pg_roles r JOIN pg_catalog.pg_namespace n ON n.nspname = 'lockstitch'
    WHERE r.rolname = 'lockstitch_reader' AND has_schema_privilege(r.oid, n.oid, 'USAGE'))
    AND (rolsuper OR (rolcreaterole
    AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'lockstitch_reader'))), 0
FROM pg_catalog.pg_roles WHERE rolname = current_user
UNION ALL
SELECT '', 'extensions', to_regclass('lockstitch.extension_versions') IS NOT NULL, 0;

-- own: lens_patience
-- A reader with a long transaction prevents changes of a lens, but must not prevent opening the store.
SELECT set_config('lock_timeout', '3s', true);

-- own: lens_views
SELECT c.oid::regclass::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = :name AND c.relkind = 'v';

-- own: query_begin
BEGIN READ ONLY;

-- own: query_limits
SELECT set_config('statement_timeout', :milliseconds, true), set_config('search_path', :path, true);

-- own: reader_known
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'lockstitch_reader' AND NOT rolsuper
               AND pg_has_role(oid, 'MEMBER'));

-- own: reader_possible
-- True if this connection can create a login that is a member of the reading role: the role exists and has rights on
-- this store, and this user can create roles and grant membership in it.
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_roles r JOIN pg_catalog.pg_namespace n ON n.nspname = 'lockstitch'
               WHERE r.rolname = 'lockstitch_reader' AND NOT r.rolsuper AND has_schema_privilege(r.oid, n.oid, 'USAGE')),
       me.rolsuper OR (me.rolcreaterole AND (
           current_setting('server_version_num')::int < 160000 OR EXISTS (
               SELECT 1 FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles r ON r.oid = m.roleid
               WHERE r.rolname = 'lockstitch_reader' AND m.admin_option AND pg_has_role(m.member, 'USAGE')))),
       me.rolsuper
FROM pg_catalog.pg_roles me WHERE me.rolname = current_user;

-- own: reader_until
SELECT now() + CAST(:valid AS interval);

-- own: reader_expired
-- Logins of processes that ended without removing them.
SELECT rolname::text FROM pg_catalog.pg_roles WHERE rolname ~ '^lockstitch_sql_[0-9a-f]{16}$' AND rolvaliduntil < now();

-- own: reader_faults
-- Rights of a login beyond reading. Empty if it can be used for SQL of users.
SELECT concat_ws(', ',
    CASE WHEN session_user <> current_user THEN 'has another session user' END,
    CASE WHEN me.rolsuper THEN 'is a superuser' END,
    CASE WHEN me.rolcreaterole THEN 'may create roles' END,
    CASE WHEN me.rolcreatedb THEN 'may create databases' END,
    CASE WHEN me.rolreplication THEN 'may replicate' END,
    CASE WHEN me.rolbypassrls THEN 'bypasses row security' END,
    (SELECT 'is a member of ' || string_agg(r.rolname::text, ', ') FROM pg_catalog.pg_roles r
     WHERE r.oid <> me.oid AND pg_has_role(me.oid, r.oid, 'MEMBER')
       AND (r.rolsuper OR r.rolcreaterole OR r.rolreplication OR r.rolname IN (
           'pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program', 'pg_signal_backend',
           'pg_signal_autovacuum_worker', 'pg_write_all_data', 'pg_maintain', 'pg_checkpoint', 'pg_create_subscription',
           'pg_use_reserved_connections'))),
    (SELECT 'owns ' || string_agg(n.nspname::text, ', ') FROM pg_catalog.pg_namespace n
     WHERE pg_has_role(me.oid, n.nspowner, 'MEMBER') AND n.nspname = 'lockstitch'),
    CASE WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                      WHERE n.nspname = 'lockstitch' AND c.relkind IN ('r', 'p', 'v', 'm')
                        AND has_table_privilege(me.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE'))
         THEN 'may write to tables of lockstitch' END,
    CASE WHEN has_schema_privilege(me.oid, 'lockstitch', 'CREATE') THEN 'may create in the schema lockstitch' END)
FROM pg_catalog.pg_roles me WHERE me.rolname = session_user;

-- own: labeled
id IN (SELECT label.thread_id FROM thread_labels label
       WHERE label.name = :{mark}_name AND label.value = :{mark}_value);

-- own: labeled_each
-- Of threads that are selected by id. The planner does not join a scalar subquery, so the labels of these threads are
-- read, not all threads with the label.
(SELECT true FROM thread_labels label
 WHERE label.name = :{mark}_name AND label.value = :{mark}_value AND label.thread_id = threads.id);

-- own: contains
strpos(lower({field}), lower(:{mark})) > 0;

-- own: json_present
-- Of a place in a JSON field: not null if there is a value.
jsonb_typeof({place}) <> 'null'

-- own: json_text
CASE jsonb_typeof({place}) WHEN 'string' THEN {place} #>> '{}' END COLLATE "C"

-- own: json_number
CASE jsonb_typeof({place}) WHEN 'number' THEN ({place} #>> '{}')::numeric END

-- own: json_boolean
CASE jsonb_typeof({place}) WHEN 'boolean' THEN ({place} #>> '{}')::boolean END
