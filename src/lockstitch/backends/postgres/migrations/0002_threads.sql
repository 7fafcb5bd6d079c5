-- Claims in turns, limits on what is held, and notices to people outside.

-- What is ready, by who can drive it and then by whose turn it is: a claim reads the beginning of a few lanes, however
-- many threads are ready in them or beside them. Projects by their bytes, the order of every backend.
DROP INDEX threads_ready;
CREATE INDEX threads_ready ON threads (coalesce(agent, ''), project COLLATE "C", priority DESC, wake_at, id)
    WHERE status = 'pending';

CREATE TABLE limits (name text PRIMARY KEY, at_most bigint NOT NULL, agents json NOT NULL);

CREATE TABLE notices (
    id uuid PRIMARY KEY,
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    hook text NOT NULL, event text NOT NULL, body json NOT NULL, tries bigint NOT NULL,
    due_at timestamptz NOT NULL, at timestamptz NOT NULL
);
CREATE INDEX notices_due ON notices (due_at);
CREATE INDEX notices_thread ON notices (thread_id);
