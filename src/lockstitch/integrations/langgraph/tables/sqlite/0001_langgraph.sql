CREATE TABLE langgraph_checkpoints (
    thread_id     TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    ns            TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    project       TEXT NOT NULL,
    parent_id     TEXT,
    run_id        TEXT,
    encoding      TEXT NOT NULL,
    content       BLOB NOT NULL,
    metadata      TEXT NOT NULL,
    PRIMARY KEY (thread_id, ns, checkpoint_id)
) WITHOUT ROWID;

CREATE INDEX langgraph_checkpoints_run ON langgraph_checkpoints (run_id) WHERE run_id IS NOT NULL;

CREATE TABLE langgraph_successors (
    thread_id     TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    ns            TEXT NOT NULL,
    parent_id     TEXT NOT NULL,
    PRIMARY KEY (thread_id, ns, parent_id)
) WITHOUT ROWID;

CREATE TABLE langgraph_values (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    ns        TEXT NOT NULL,
    channel   TEXT NOT NULL,
    version   TEXT NOT NULL,
    encoding  TEXT NOT NULL,
    base      TEXT,
    root      TEXT NOT NULL,
    depth     INTEGER NOT NULL,
    skip      INTEGER NOT NULL,
    common    INTEGER NOT NULL,
    head      INTEGER NOT NULL,
    content   BLOB NOT NULL,
    PRIMARY KEY (thread_id, ns, channel, version)
) WITHOUT ROWID;

CREATE TABLE langgraph_writes (
    thread_id     TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    ns            TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    id            TEXT NOT NULL,
    task_id       TEXT NOT NULL,
    task_path     TEXT NOT NULL,
    content       BLOB NOT NULL,
    PRIMARY KEY (thread_id, ns, checkpoint_id, id)
) WITHOUT ROWID;

CREATE TABLE langgraph_items (
    project    TEXT NOT NULL,
    namespace  TEXT NOT NULL,
    key        TEXT NOT NULL,
    value      TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (project, namespace, key)
) WITHOUT ROWID;
