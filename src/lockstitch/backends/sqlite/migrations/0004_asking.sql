-- Since when a thread waits for a person: those are few among many, and somebody wants to see them first.
ALTER TABLE threads ADD COLUMN asks_since TEXT;
UPDATE threads SET asks_since = (
    SELECT min(w.value ->> 'since') FROM json_each(threads.waiting_for) w
    WHERE w.value ->> 'kind' IN ('approval', 'doubt', 'frontend_tools')
       OR (w.value ->> 'kind' = 'input' AND w.value ->> 'id' IS NOT NULL)
)
WHERE status = 'waiting';
CREATE INDEX threads_asking ON threads (project, asks_since, id) WHERE asks_since IS NOT NULL;
