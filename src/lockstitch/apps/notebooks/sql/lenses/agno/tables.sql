-- The two notebook tables of the document, in the exported file.

CREATE TABLE IF NOT EXISTS notebooks (
    id INTEGER PRIMARY KEY,
    title VARCHAR(255) NOT NULL,
    description TEXT,
    instructions TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    project TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS notebook_sessions (
    id INTEGER PRIMARY KEY,
    notebook_id INTEGER NOT NULL REFERENCES notebooks (id) ON DELETE CASCADE,
    session_id VARCHAR(255) NOT NULL,
    created_at TEXT NOT NULL,
    project TEXT NOT NULL,
    UNIQUE (session_id, project)
);
CREATE INDEX IF NOT EXISTS notebook_sessions_notebook_id ON notebook_sessions (notebook_id);
