-- Claims in turns, limits on what is held, and notices to people outside.

-- What is ready, by who can drive it and then by whose turn it is: a claim reads the beginning of a few lanes, however
-- many threads are ready in them or beside them.
DROP INDEX threads_ready;
CREATE INDEX threads_ready ON threads (coalesce(agent, ''), project, priority DESC, wake_at, id)
    WHERE status = 'pending';

CREATE TABLE limits (name TEXT PRIMARY KEY, at_most INTEGER NOT NULL, agents TEXT NOT NULL);

CREATE TABLE notices (
    id TEXT PRIMARY KEY,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    hook TEXT NOT NULL, event TEXT NOT NULL, body TEXT NOT NULL, tries INTEGER NOT NULL,
    due_at TEXT NOT NULL, at TEXT NOT NULL
);
CREATE INDEX notices_due ON notices (due_at);
CREATE INDEX notices_thread ON notices (thread_id);
