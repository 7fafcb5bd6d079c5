CREATE TABLE openai_agents_states (
    thread_id TEXT NOT NULL PRIMARY KEY REFERENCES threads (id) ON DELETE CASCADE,
    position  INTEGER NOT NULL,
    content   BLOB NOT NULL
) WITHOUT ROWID;
