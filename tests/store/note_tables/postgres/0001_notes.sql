CREATE TABLE notes (
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    name      text NOT NULL,
    body      json NOT NULL,
    content   bytea NOT NULL,
    PRIMARY KEY (thread_id, name)
);
CREATE TABLE note_marks (
    label     text PRIMARY KEY,
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE
);
