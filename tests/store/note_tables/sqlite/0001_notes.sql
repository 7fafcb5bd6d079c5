CREATE TABLE notes (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    name      TEXT NOT NULL,
    body      TEXT NOT NULL,
    content   BLOB NOT NULL,
    PRIMARY KEY (thread_id, name)
);
CREATE TABLE note_marks (
    label     TEXT PRIMARY KEY,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE
);
