-- Notebooks on SQLite: their sources, passages, chats and citations. A chat is a thread of the record.

CREATE TABLE notebooks (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    project      TEXT NOT NULL DEFAULT 'default',
    title        VARCHAR(255) NOT NULL DEFAULT 'Untitled notebook' CHECK (title <> '' AND length(title) <= 255),
    description  TEXT,
    instructions TEXT,
    created_at   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'),
    updated_at   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z')
);
CREATE INDEX notebooks_recent ON notebooks (project, updated_at, id);

-- An update without an `updated_at` sets it to the current time.
CREATE TRIGGER notebooks_updated AFTER UPDATE ON notebooks WHEN new.updated_at = old.updated_at BEGIN
    UPDATE notebooks SET updated_at = max(strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z', old.updated_at)
    WHERE id = new.id;
END;

-- Links a thread to its notebook. The link is created in the transaction of its thread and deleted with the thread.
CREATE TABLE notebook_sessions (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    project     TEXT NOT NULL,
    notebook_id INTEGER NOT NULL REFERENCES notebooks (id) ON DELETE CASCADE,
    session_id  VARCHAR(255) NOT NULL CHECK (length(session_id) <= 255),
    thread_id   TEXT NOT NULL UNIQUE REFERENCES threads (id) ON DELETE CASCADE,
    created_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z'),
    -- The key of a thread is unique within a project.
    UNIQUE (session_id, project)
);
CREATE INDEX notebook_sessions_notebook ON notebook_sessions (notebook_id, id);

CREATE TABLE notebook_sources (
    id          TEXT PRIMARY KEY,
    project     TEXT NOT NULL,
    notebook_id INTEGER NOT NULL REFERENCES notebooks (id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('text', 'markdown', 'html', 'pdf')),
    title       TEXT,
    url         TEXT,
    sha256      TEXT NOT NULL,
    size        INTEGER NOT NULL,
    characters  INTEGER NOT NULL,
    pages       INTEGER,
    passages    INTEGER NOT NULL,
    embedder    TEXT,
    created_at  TEXT NOT NULL,
    UNIQUE (notebook_id, sha256)
);

-- The passages of a source, in order, are its text. The text is not stored elsewhere.
-- Differs from PostgreSQL: the full-text index refers to a passage by `no`.
CREATE TABLE notebook_passages (
    no        INTEGER PRIMARY KEY,
    source_id TEXT NOT NULL REFERENCES notebook_sources (id) ON DELETE CASCADE,
    number    INTEGER NOT NULL,
    start_at  INTEGER NOT NULL,
    end_at    INTEGER NOT NULL CHECK (end_at > start_at),
    lead_at   INTEGER NOT NULL CHECK (lead_at <= start_at),
    line      INTEGER NOT NULL,
    page      INTEGER,
    last_page INTEGER,
    heading   TEXT,
    text      TEXT NOT NULL,
    UNIQUE (source_id, number)
);
CREATE VIRTUAL TABLE notebook_words USING fts5 (heading, text, content = 'notebook_passages', content_rowid = 'no');
CREATE TRIGGER notebook_words_insert AFTER INSERT ON notebook_passages BEGIN
    INSERT INTO notebook_words (rowid, heading, text) VALUES (new.no, new.heading, new.text);
END;
CREATE TRIGGER notebook_words_update AFTER UPDATE ON notebook_passages BEGIN
    INSERT INTO notebook_words (notebook_words, rowid, heading, text) VALUES ('delete', old.no, old.heading, old.text);
    INSERT INTO notebook_words (rowid, heading, text) VALUES (new.no, new.heading, new.text);
END;
CREATE TRIGGER notebook_words_delete AFTER DELETE ON notebook_passages BEGIN
    INSERT INTO notebook_words (notebook_words, rowid, heading, text) VALUES ('delete', old.no, old.heading, old.text);
END;

CREATE TABLE notebook_vectors (
    source_id TEXT NOT NULL,
    number    INTEGER NOT NULL,
    vector    BLOB NOT NULL,
    PRIMARY KEY (source_id, number),
    FOREIGN KEY (source_id, number) REFERENCES notebook_passages (source_id, number) ON DELETE CASCADE
);

-- A number is used once in a thread. It stays after its source is deleted, so that an old answer never cites another
-- passage.
CREATE TABLE notebook_findings (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    number    INTEGER NOT NULL,
    source_id TEXT REFERENCES notebook_sources (id) ON DELETE SET NULL,
    passage   INTEGER NOT NULL,
    run_id    TEXT,
    query     TEXT NOT NULL,
    found_by  TEXT NOT NULL,
    rank      INTEGER NOT NULL,
    among     INTEGER NOT NULL,
    at        TEXT NOT NULL,
    PRIMARY KEY (thread_id, number),
    UNIQUE (thread_id, source_id, passage)
);
CREATE INDEX notebook_findings_source ON notebook_findings (source_id) WHERE source_id IS NOT NULL;

CREATE TABLE notebook_citations (
    run_id    TEXT NOT NULL,
    place     INTEGER NOT NULL,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    number    INTEGER NOT NULL,
    PRIMARY KEY (run_id, place),
    FOREIGN KEY (thread_id, number) REFERENCES notebook_findings (thread_id, number) ON DELETE CASCADE
);
CREATE INDEX notebook_citations_thread ON notebook_citations (thread_id, number);
