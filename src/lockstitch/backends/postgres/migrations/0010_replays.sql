-- Threads of the kind replay. NOT VALID: the existing rows satisfy the narrower constraint that this one replaces.
ALTER TABLE threads DROP CONSTRAINT threads_kind_check;
ALTER TABLE threads ADD CONSTRAINT threads_kind_check CHECK (kind IN ('chat', 'goal', 'task', 'trace', 'replay')) NOT VALID;
CREATE INDEX threads_replays ON threads (project, recent_at, id) WHERE kind = 'replay';
