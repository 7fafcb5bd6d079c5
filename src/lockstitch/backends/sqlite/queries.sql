-- Queries that only SQLite needs. Most differences are in its schema, which refers to rows by number.

-- own: version
-- The version, the newest migration that older code cannot work with, and 1 if the tables are those of the migrations.
SELECT max(version), max(version) FILTER (WHERE name LIKE '%^_contract' ESCAPE '^'),
       EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'daily_metrics')
FROM schema_versions;

-- own: head_seen
-- The comparison of the compare-and-set. No row means a conflict. The transaction started IMMEDIATE, so the row cannot
-- change until it ends.
SELECT no, delivered, cancel_requested, tip_id, (SELECT position FROM stitch_rows WHERE id = tip_id) FROM threads
WHERE id = ? AND fence = ? AND position = ? AND worker_id IS ?;

-- own: head_move
-- Safe only after head_seen in the same transaction. Deliveries may lower pending_children in between, so this adds to
-- it.
UPDATE threads SET position = ?, pending_children = pending_children + ?{changes} WHERE no = ?;

-- own: run_update
-- Only the holder of the thread writes its runs, in the commit in which the compare-and-set succeeded.
UPDATE run_rows SET {changes} WHERE id = ? AND thread_no = ?;

-- own: pack
INSERT INTO packed_data (thread_no, first_position, last_position, content) VALUES (? + {first}, ?, ?, ?);

-- own: pack_named
INSERT INTO packed_data (thread_no, first_position, last_position, content)
VALUES ((SELECT no FROM threads WHERE id = :thread_id), :first_position, :last_position, :content);

-- own: packed_at
SELECT DISTINCT packed FROM stitch_rows
WHERE thread_no = (SELECT no FROM threads WHERE id = :thread_id) AND position IN ({positions}) AND packed IS NOT NULL;

-- own: packed_set
UPDATE stitch_rows SET packed = last_insert_rowid()
WHERE thread_no = (SELECT no FROM threads WHERE id = :thread_id) AND position IN ({positions});

-- own: packed_sweep
-- Contents that no stitch uses any longer.
DELETE FROM packed_data
WHERE no IN ({numbers}) AND NOT EXISTS (
    SELECT 1 FROM stitch_rows s
    WHERE s.thread_no = packed_data.thread_no AND s.packed = packed_data.no
      AND s.position BETWEEN packed_data.first_position AND packed_data.last_position);

-- own: stitch_position
SELECT position FROM stitch_rows WHERE id = ?;

-- own: work
-- 1 if a thread may be ready. Reads only a few rows: if many threads wait for a later time, the result may be 1 without
-- need.
SELECT (SELECT count(*) = 100 OR coalesce(min(wake_at) <= {now}, 0)
        FROM (SELECT wake_at FROM threads{ready} WHERE status = 'pending' LIMIT 100))
    OR EXISTS (SELECT 1 FROM threads{due}
               WHERE status = 'waiting' AND wake_at IS NOT NULL AND wake_at <= {now});

-- own: search
-- The full-text index comes first, so that rare words are fast, and only the newest matches are read, so that frequent
-- words are, too. CROSS JOIN sets the order of the tables.
SELECT thread_id, position, score FROM (
    SELECT * FROM (
        SELECT t.id AS thread_id, NULL AS position, bm25(title_search) AS score
        FROM title_search CROSS JOIN threads t ON t.no = title_search.rowid
        WHERE title_search MATCH :query AND t.project = :project
        ORDER BY title_search.rowid DESC LIMIT :ranked)
    UNION ALL
    SELECT * FROM (
        SELECT t.id, s.position, bm25(text_search)
        FROM text_search CROSS JOIN stitch_rows s ON s.log_id = text_search.rowid
        CROSS JOIN threads t ON t.no = s.thread_no
        WHERE text_search MATCH :query AND t.project = :project
        ORDER BY text_search.rowid DESC LIMIT :ranked))
ORDER BY score, thread_id, position
LIMIT :limit;

-- name: calls_of_periods
-- The order of the tables is set: SQLite would read all calls first.
FROM run_rows r CROSS JOIN threads t ON t.no = r.thread_no CROSS JOIN stitch_rows s ON s.run_no = r.no;

-- name: all_tool_calls
-- Without a filter of runs, the index of tools is read from its start to its end. It has all columns of the calls.
FROM stitch_rows s CROSS JOIN run_rows r ON r.no = s.run_no CROSS JOIN threads t ON t.no = r.thread_no;

-- name: runs_listed
-- Differs: the table has the column `elapsed`.
SELECT {columns} FROM run_rows r JOIN threads t ON t.no = r.thread_no
WHERE {filters} ORDER BY {order} LIMIT :row_limit;

-- name: runs_bound
-- Differs: the table has the column `elapsed`.
SELECT CAST({key} AS text) FROM run_rows r WHERE {filters} ORDER BY {key} DESC LIMIT 1 OFFSET :walked;

-- name: runs_walked
-- Differs: the index and the order of the tables are set. SQLite would read all runs of the project.
SELECT {columns} FROM run_rows r INDEXED BY {index} CROSS JOIN threads t ON t.no = r.thread_no
WHERE {key} >= :bound AND {filters} ORDER BY {order} LIMIT :row_limit;

-- own: days_lock
-- There is one writer.
SELECT 1;

-- own: days_limit
SELECT date('now', '-1 day');

-- own: days_settled
SELECT d.day, d.number FROM settled_days d WHERE true;

-- own: days_settle
INSERT INTO settled_days (day) VALUES (:day);

-- own: days_unsettle
DELETE FROM settled_days WHERE day IN (SELECT substr(started_at, 1, 10) FROM run_rows WHERE id IN ({ids}));

-- own: search_mark
SELECT log_id FROM search_mark;

-- own: search_left
SELECT coalesce((SELECT max(log_id) FROM stitch_rows), 0) - (SELECT log_id FROM search_mark);

-- own: search_next
SELECT log_id, type, message, iif(message IS NULL, data, NULL) FROM stitch_rows
WHERE log_id > :mark
ORDER BY log_id
LIMIT :limit;

-- own: search_add
INSERT INTO text_search (rowid, text) VALUES (:log_id, :text);

-- own: search_move
UPDATE search_mark SET log_id = :mark;

-- own: search_of_threads
SELECT s.log_id, s.type, s.message, iif(s.message IS NULL, s.data, NULL)
FROM stitch_rows s JOIN threads t ON t.no = s.thread_no
WHERE t.id IN ({ids}) AND s.position >= :first AND s.position <= :last
  AND s.log_id <= (SELECT log_id FROM search_mark);

-- own: search_filled
-- A stitch at or before the mark.
SELECT s.log_id, s.type, s.message, iif(s.message IS NULL, s.data, NULL)
FROM stitch_rows s JOIN threads t ON t.no = s.thread_no
WHERE t.id = :thread_id AND s.position = :position AND s.log_id <= :mark;

-- own: search_remove
INSERT INTO text_search (text_search, rowid, text) VALUES ('delete', :log_id, :text);

-- own: disk
SELECT page_count * page_size FROM pragma_page_count, pragma_page_size;

-- own: previous_keep
-- The following stitches store the id of a stitch that is about to be deleted.
UPDATE stitch_rows
SET previous_id = (SELECT p.id FROM stitch_rows p
                    WHERE p.thread_no = stitch_rows.thread_no AND p.position = stitch_rows.previous)
WHERE thread_no = (SELECT no FROM threads WHERE id = :thread_id) AND previous <= :last AND position > :last;

-- own: previous_cut
UPDATE stitch_rows SET previous = NULL
WHERE thread_no = (SELECT no FROM threads WHERE id = :thread_id) AND previous_id IS NOT NULL;

-- own: stitches_delete
DELETE FROM stitch_rows
WHERE thread_no = (SELECT no FROM threads WHERE id = :thread_id) AND position <= :last AND position >= :first;

-- own: select_listed
-- A page of a list of threads. The inner query reads an index with all columns of the conditions, except the key.
SELECT {columns} FROM {table}
WHERE no IN (SELECT no FROM {table} INDEXED BY {index}{where}{order}{limit}){order};

-- own: labeled
-- The plus prevents SQLite from reading the threads in the order of their labels, which would need a sort.
+no IN (SELECT label.thread_no FROM thread_labels label WHERE label.name = :{mark}_name AND label.value = :{mark}_value);

-- own: labeled_each
-- Of threads that are selected by id. Their labels are read, not all threads with the label.
EXISTS (SELECT 1 FROM thread_labels label
        WHERE label.name = :{mark}_name AND label.value = :{mark}_value AND label.thread_no = threads.no);

-- own: contains
instr(lower({field}), lower(:{mark})) > 0;

-- own: json_present
-- Of a place in a JSON field: not null if there is a value.
json_type({place}) <> 'null'

-- own: json_text
CASE json_type({place}) WHEN 'text' THEN json_extract({place}) END

-- own: json_number
CASE WHEN json_type({place}) IN ('integer', 'real') THEN json_extract({place}) END

-- own: json_boolean
CASE json_type({place}) WHEN 'true' THEN 1 WHEN 'false' THEN 0 END
