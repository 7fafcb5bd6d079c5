-- What PostgreSQL says in its own way: many transactions run at once here, so rows are locked by name, and everything
-- that a round trip can be saved on is one statement. Tables get their schema when this file is loaded.

-- own: change
-- The compare-and-set, and all that a change writes hangs on it in one statement. The update re-reads the row once
-- it has its lock, so of two who saw the same head exactly one finds it; where it finds none, nothing is inserted.
-- Foreign keys are checked when the statement ends, so a stitch may refer to a run that came with it.
WITH head AS (
    UPDATE threads SET position = :position{changes}
    WHERE id = :thread_id AND fence = :seen_fence AND position = :seen_position
      AND worker_id IS NOT DISTINCT FROM :seen_worker{compared}
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

-- own: change_uses
, uses AS (
    INSERT INTO blob_uses (thread_id, sha256)
    SELECT head.id, used.sha256 FROM head, (VALUES {rows}) AS used (sha256)
    ON CONFLICT DO NOTHING);

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
-- round, this waits, and the claim after it finds a dead worker. Beats wait for a moment. The planner takes a walk along
-- an index for more than it is, and compiling it would cost a hundred times what it takes.
SELECT set_config('jit', 'off', true) FROM workers WHERE id = :worker_id FOR SHARE;

-- name: thread_hold
-- Differs: locked. The claim after this looks with fresh eyes, so a worker who came and claimed while this waited is
-- seen.
SELECT coalesce(agent, '') FROM threads WHERE id = :id FOR NO KEY UPDATE;

-- name: limits_lock
-- Differs: locked. What is held is counted after this, so that all who claimed under the same limits are seen.
SELECT {columns} FROM limits WHERE name IN ({names}) ORDER BY name FOR UPDATE;

-- name: claim_agents
-- Differs: the function's name.
SELECT json_array_elements_text(:agents::json);

-- name: claim_due
-- Differs: rows that somebody is writing are left for the next time. An array, which the planner takes for a few: it
-- cannot know how few of those that wait have a timer, and would read all threads.
UPDATE threads SET status = 'pending'
WHERE id = ANY (ARRAY(
    SELECT id FROM threads WHERE status = 'waiting' AND wake_at IS NOT NULL AND wake_at <= {now}
    ORDER BY wake_at LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED));

-- name: claim
-- Differs: many choose at once, and each skips what another is choosing; so some more candidates are looked at than are
-- wanted. They go as an array, which the planner takes for a few, so that it looks them up by their key; they are
-- looked at again under their lock. The first column says how many candidates there were, also where none was taken.
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
-- Differs: a suspect that another transaction is choosing is skipped.
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

-- own: notify_within
-- The one that stands inside: the transaction is somebody else's, who does not tell us of its end. The server sends it
-- at their commit, and not at all if there is none. The lock that committers share is taken once per thread that is
-- started so, never per step. Whether their commit waits for the disk is theirs to say.
SELECT pg_notify('lockstitch', payload) FROM unnest(string_to_array(:payloads, ' ')) AS payload;

-- own: place
-- A server is known by the moment it began, a database in it by its number: names and addresses may differ.
SELECT pg_postmaster_start_time(), oid::bigint FROM pg_catalog.pg_database WHERE datname = current_database();

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

-- own: lenses_known
-- The schemas with these names, what their comments say, whether we own them and how many views they have; whether we may
-- make more; whether the role that reads for people is missing where it could be made; and whether it can be asked for
-- what applications have added.
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
-- Whoever reads through a lens without end keeps it as it is; they do not keep a store from being opened.
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
-- Whether this connection may make a login that is a member of the role that reads: there is such a role with rights on
-- this store, and we may create roles and admit members to it.
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
-- Logins of processes that ended without removing theirs.
SELECT rolname::text FROM pg_catalog.pg_roles WHERE rolname ~ '^lockstitch_sql_[0-9a-f]{16}$' AND rolvaliduntil < now();

-- own: reader_faults
-- What a login could do besides reading; nothing if it may ask SQL of users.
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
