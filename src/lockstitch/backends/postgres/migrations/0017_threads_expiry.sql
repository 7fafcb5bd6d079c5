-- A purge of a project reads only its expired threads. Without the project, SQLite prefers an index of all threads.
CREATE INDEX threads_expiry ON threads (project, expires_at, id) WHERE expires_at IS NOT NULL;
