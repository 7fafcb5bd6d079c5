-- Figures of a thread, for lists: those of its runs that have ended.
ALTER TABLE threads ADD COLUMN model TEXT;
ALTER TABLE threads ADD COLUMN latency_ms INTEGER;
ALTER TABLE threads ADD COLUMN total_tokens INTEGER;
ALTER TABLE threads ADD COLUMN total_cost REAL;
ALTER TABLE threads ADD COLUMN last_error TEXT;
-- total() returns a real number. sum() fails above the largest integer.
UPDATE threads SET total_tokens = ended.tokens, total_cost = ended.cost
FROM (SELECT thread_no, CAST(min(total(input_tokens) + total(output_tokens), 9.2e18) AS INTEGER) AS tokens,
             sum(total_cost) AS cost
      FROM run_rows WHERE status IN ('completed', 'failed', 'cancelled') GROUP BY thread_no) AS ended
WHERE ended.thread_no = threads.no;
UPDATE threads SET model = r.model, latency_ms = max(0, r.elapsed / 1000)
FROM run_rows r
WHERE r.thread_no = threads.no AND r.no = (
    SELECT last.no FROM run_rows last
    WHERE last.thread_no = threads.no AND last.parent_run_id IS NULL
      AND last.status IN ('completed', 'failed', 'cancelled')
    ORDER BY last.started_at DESC, last.sequence DESC LIMIT 1);
UPDATE threads SET last_error = (
    SELECT substr(coalesce(nullif(r.error, ''), 'failed'), 1, 500) FROM run_rows r
    WHERE r.thread_no = threads.no AND r.status = 'failed' ORDER BY r.sequence DESC LIMIT 1)
WHERE no IN (SELECT thread_no FROM run_rows WHERE status = 'failed');
CREATE INDEX threads_latency ON threads (project, latency_ms, id) WHERE latency_ms IS NOT NULL;
CREATE INDEX threads_tokens ON threads (project, total_tokens, id) WHERE total_tokens IS NOT NULL;
CREATE INDEX threads_cost ON threads (project, total_cost, id) WHERE total_cost IS NOT NULL;
-- All columns that lists filter by. A filter that few threads meet reads this index to its end, but not the rows. Lists
-- without filters use it, too.
CREATE INDEX threads_listed ON threads (project, recent_at, id, depth, kind, status, agent, version, user_id, model,
                                        total_cost, latency_ms, total_tokens);
CREATE INDEX threads_failures ON threads (project, recent_at, id) WHERE last_error IS NOT NULL;

-- The tags and the plain metadata of the runs of a thread, each once. A tag has no name. Long values are left out.
-- `labels_of` in `model/figures.py` has the same rules.
CREATE TABLE thread_labels (
    name      TEXT NOT NULL,
    value     TEXT NOT NULL,
    thread_no INTEGER NOT NULL REFERENCES threads (no) ON DELETE CASCADE,
    PRIMARY KEY (name, value, thread_no)
) WITHOUT ROWID;
CREATE INDEX thread_labels_thread ON thread_labels (thread_no);
CREATE VIEW run_labels AS
SELECT r.no AS run_no, r.thread_no, '' AS name, CAST(tag.value AS TEXT) AS value
FROM run_rows r, json_each(r.tags) AS tag
WHERE r.tags <> '[]' AND length(r.tags) <= 65536 AND tag.type = 'text' AND length(tag.value) <= 255
UNION ALL
SELECT r.no, r.thread_no, item.key, CASE item.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false'
                                    ELSE CAST(item.value AS TEXT) END
FROM run_rows r, json_each(r.metadata) AS item
WHERE r.metadata <> '{}' AND length(r.metadata) <= 65536 AND item.type IN ('text', 'integer', 'true', 'false') AND item.key <> ''
  AND length(item.key) <= 255 AND length(item.value) <= 255;
CREATE TRIGGER thread_labels_insert AFTER INSERT ON run_rows WHEN NEW.tags <> '[]' OR NEW.metadata <> '{}' BEGIN
    INSERT OR IGNORE INTO thread_labels (name, value, thread_no)
    SELECT name, value, thread_no FROM run_labels WHERE run_no = NEW.no;
END;
CREATE TRIGGER thread_labels_update AFTER UPDATE OF tags, metadata ON run_rows
WHEN NEW.tags <> OLD.tags OR NEW.metadata <> OLD.metadata BEGIN
    INSERT OR IGNORE INTO thread_labels (name, value, thread_no)
    SELECT name, value, thread_no FROM run_labels WHERE run_no = NEW.no;
END;
INSERT OR IGNORE INTO thread_labels (name, value, thread_no) SELECT name, value, thread_no FROM run_labels;

-- Views of the list of threads: filters, columns and order, by name.
CREATE TABLE saved_views (
    project TEXT NOT NULL, name TEXT NOT NULL, filters TEXT NOT NULL, columns TEXT NOT NULL, sort TEXT NOT NULL,
    ascending INTEGER NOT NULL, is_default INTEGER NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
    PRIMARY KEY (project, name)
);
