-- Figures of a thread, for lists: those of its runs that have ended.
ALTER TABLE threads ADD COLUMN model text;
ALTER TABLE threads ADD COLUMN latency_ms bigint;
ALTER TABLE threads ADD COLUMN total_tokens bigint;
ALTER TABLE threads ADD COLUMN total_cost double precision;
ALTER TABLE threads ADD COLUMN last_error text;
-- One statement, so that each row is written once.
UPDATE threads t SET
    total_tokens = ended.tokens, total_cost = ended.cost, model = last.model,
    latency_ms = greatest(0, extract(epoch FROM last.completed_at - last.started_at) * 1000)::bigint,
    last_error = failed.error
FROM (SELECT thread_id, least(sum(input_tokens::numeric + output_tokens), 9223372036854775807)::bigint AS tokens,
             sum(total_cost) AS cost
      FROM runs WHERE status IN ('completed', 'failed', 'cancelled') GROUP BY thread_id) AS ended
LEFT JOIN (SELECT DISTINCT ON (thread_id) thread_id, model, started_at, completed_at FROM runs
           WHERE parent_run_id IS NULL AND status IN ('completed', 'failed', 'cancelled')
           ORDER BY thread_id, started_at DESC, sequence DESC) AS last USING (thread_id)
LEFT JOIN (SELECT DISTINCT ON (thread_id) thread_id, left(coalesce(nullif(error, ''), 'failed'), 500) AS error FROM runs
           WHERE status = 'failed' ORDER BY thread_id, sequence DESC) AS failed USING (thread_id)
WHERE ended.thread_id = t.id;
CREATE INDEX threads_latency ON threads (project, latency_ms, id) WHERE latency_ms IS NOT NULL;
CREATE INDEX threads_tokens ON threads (project, total_tokens, id) WHERE total_tokens IS NOT NULL;
CREATE INDEX threads_cost ON threads (project, total_cost, id) WHERE total_cost IS NOT NULL;
CREATE INDEX threads_agent ON threads (project, agent, recent_at, id);
CREATE INDEX threads_model ON threads (project, model, recent_at, id) WHERE model IS NOT NULL;
CREATE INDEX threads_failures ON threads (project, recent_at, id) WHERE last_error IS NOT NULL;

-- The tags and the plain metadata of the runs of a thread, each once. A tag has no name. Long values are left out.
-- `labels_of` in `model/figures.py` has the same rules.
CREATE TABLE thread_labels (
    name      text NOT NULL,
    value     text NOT NULL,
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    PRIMARY KEY (name, value, thread_id)
);
CREATE INDEX thread_labels_thread ON thread_labels (thread_id);
CREATE FUNCTION labels_of(tags json, metadata json) RETURNS TABLE (name text, value text)
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    -- Very long numbers cannot be converted, and the text of a label is short.
    SELECT '', item #>> '{}' FROM jsonb_array_elements(lockstitch.safe_jsonb(
        CASE WHEN length(tags::text) <= 65536 THEN tags ELSE '[]' END)) AS item
    WHERE jsonb_typeof(item) = 'string' AND length(item #>> '{}') <= 255
    UNION
    SELECT item.key, item.value #>> '{}' FROM jsonb_each(lockstitch.safe_jsonb(
        CASE WHEN length(metadata::text) <= 65536 THEN metadata ELSE '{}' END)) AS item
    WHERE item.key <> '' AND length(item.key) <= 255 AND length(item.value #>> '{}') <= 255
      AND (jsonb_typeof(item.value) IN ('string', 'boolean')
           OR (jsonb_typeof(item.value) = 'number' AND item.value #>> '{}' ~ '^-?[0-9]{1,18}$'))
$$;
CREATE FUNCTION label_thread() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lockstitch.thread_labels (name, value, thread_id)
    SELECT label.name, label.value, new.thread_id FROM lockstitch.labels_of(new.tags, new.metadata) AS label
    ORDER BY label.name, label.value
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER thread_labels_insert AFTER INSERT ON runs FOR EACH ROW
    WHEN (new.tags::text <> '[]' OR new.metadata::text <> '{}') EXECUTE FUNCTION label_thread();
CREATE TRIGGER thread_labels_update AFTER UPDATE OF tags, metadata ON runs FOR EACH ROW
    WHEN (new.tags::text <> old.tags::text OR new.metadata::text <> old.metadata::text)
    EXECUTE FUNCTION label_thread();
INSERT INTO thread_labels (name, value, thread_id)
SELECT label.name, label.value, r.thread_id FROM runs r, lockstitch.labels_of(r.tags, r.metadata) AS label
WHERE r.tags::text <> '[]' OR r.metadata::text <> '{}'
ON CONFLICT DO NOTHING;

-- Views of the list of threads: filters, columns and order, by name.
CREATE TABLE saved_views (
    project text NOT NULL, name text NOT NULL, filters json NOT NULL, columns json NOT NULL, sort text NOT NULL,
    ascending boolean NOT NULL, is_default boolean NOT NULL, created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (project, name)
);
