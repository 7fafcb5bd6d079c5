-- The record on SQLite.
-- Unlike on PostgreSQL, threads, runs and stitches refer to each other by row number, not by the text of a UUID. With
-- stitches of 1 KB, this halves the space that is used besides the content. The views `runs` and `stitches` have the
-- same columns as the tables there. Only inserts and updates use the tables behind them.

CREATE TABLE threads (
    no                  INTEGER PRIMARY KEY,
    id                  TEXT NOT NULL UNIQUE,
    key                 TEXT,
    project             TEXT NOT NULL,
    user_id             TEXT,
    kind                TEXT NOT NULL CHECK (kind IN ('chat', 'goal', 'task', 'trace')),
    agent               TEXT,
    version             INTEGER,
    parent_id           TEXT REFERENCES threads (id) ON DELETE CASCADE,
    branching_stitch_id TEXT,
    depth               INTEGER NOT NULL,
    goal                TEXT CHECK (goal <> ''),
    title               TEXT,
    tasks               TEXT NOT NULL,
    status              TEXT NOT NULL
        CHECK (status IN ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
    waiting_for         TEXT NOT NULL,
    result              TEXT,
    state               TEXT NOT NULL,
    settings            TEXT NOT NULL,
    extras              TEXT NOT NULL,
    position            INTEGER NOT NULL,
    tip_id              TEXT,
    context_from        INTEGER NOT NULL,
    first_position      INTEGER NOT NULL,
    last_sequence       INTEGER NOT NULL,
    last_turn           INTEGER NOT NULL,
    total_runs          INTEGER NOT NULL,
    worker_id           TEXT,
    fence               INTEGER NOT NULL,
    delivered           INTEGER NOT NULL,
    pending_children    INTEGER NOT NULL,
    cancel_requested    INTEGER NOT NULL,
    wake_at             TEXT,
    priority            INTEGER NOT NULL,
    crashes             INTEGER NOT NULL,
    created_at          TEXT NOT NULL,
    updated_at          TEXT NOT NULL,
    last_run_at         TEXT,
    expires_at          TEXT,
    recent_at           TEXT GENERATED ALWAYS AS (coalesce(last_run_at, created_at)) VIRTUAL,
    -- The time since when the thread waits for a person. Few threads do, and people want to see them first.
    awaiting_person_since TEXT,
    -- A dead worker held the thread. Each such thread is executed alone before it counts as the cause of the death.
    losses              INTEGER NOT NULL DEFAULT 0,
    lost_by             TEXT,
    alone               INTEGER NOT NULL DEFAULT 0,
    CHECK (parent_id IS NULL OR parent_id <> id),
    CHECK (kind NOT IN ('goal', 'task') OR goal IS NOT NULL),
    CHECK (kind NOT IN ('goal', 'task') OR status = 'cancelled'
           OR (status IN ('completed', 'failed')) = (result IS NOT NULL))
);
CREATE UNIQUE INDEX threads_key ON threads (project, key) WHERE key IS NOT NULL;
CREATE INDEX threads_status ON threads (status, id);
-- The threads that are ready, in lanes of agent and project. A claim reads the first rows of a few lanes. The number of
-- ready threads in these and in other lanes does not matter.
CREATE INDEX threads_ready ON threads (coalesce(agent, ''), project, priority DESC, wake_at, id)
    WHERE status = 'pending';
CREATE INDEX threads_due ON threads (wake_at) WHERE status = 'waiting' AND wake_at IS NOT NULL;
CREATE INDEX threads_held ON threads (worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX threads_children ON threads (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX threads_branching ON threads (branching_stitch_id) WHERE branching_stitch_id IS NOT NULL;
CREATE INDEX threads_user ON threads (user_id, id) WHERE user_id IS NOT NULL;
CREATE INDEX threads_expiring ON threads (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX threads_awaiting_person ON threads (project, awaiting_person_since, id)
    WHERE awaiting_person_since IS NOT NULL;
CREATE INDEX threads_suspects ON threads (losses DESC, priority DESC, wake_at, id)
    WHERE status = 'pending' AND lost_by IS NOT NULL;
-- The id and the status under which a lens shows a thread.
CREATE INDEX threads_shown ON threads (coalesce(key, id));
CREATE INDEX threads_shown_status ON threads (CASE status WHEN 'cancelled' THEN 'failed' ELSE status END);

CREATE TABLE run_rows (
    no                 INTEGER PRIMARY KEY,
    id                 TEXT NOT NULL UNIQUE,
    thread_no          INTEGER NOT NULL REFERENCES threads (no) ON DELETE CASCADE,
    sequence           INTEGER NOT NULL,
    turn               INTEGER NOT NULL,
    parent_run_id      TEXT,
    agent              TEXT,
    version            INTEGER,
    role               TEXT NOT NULL,
    status             TEXT NOT NULL
        CHECK (status IN ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
    stop_reason        TEXT,
    first_position     INTEGER NOT NULL,
    input_position     INTEGER,
    output_position    INTEGER,
    output             TEXT,
    state              TEXT NOT NULL,
    model              TEXT,
    provider           TEXT,
    input_tokens       INTEGER NOT NULL,
    output_tokens      INTEGER NOT NULL,
    cache_read_tokens  INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    cost               TEXT NOT NULL,
    total_cost         REAL,
    steps              INTEGER NOT NULL,
    error              TEXT,
    tags               TEXT NOT NULL,
    metadata           TEXT NOT NULL,
    extras             TEXT NOT NULL,
    source             TEXT NOT NULL,
    started_at         TEXT NOT NULL,
    completed_at       TEXT,
    foreign_id         TEXT,  -- the id of a mirrored run in the other system. A lens shows it instead of our id.
    shown_id           TEXT GENERATED ALWAYS AS (coalesce(foreign_id, id)) VIRTUAL,
    UNIQUE (thread_no, sequence)
);
-- A turn has a run and the runs of its members. One finished or open turn has one top-level run. The other runs have
-- their own sequence. The paged history uses this index, and so do lenses that show a turn as one row.
CREATE UNIQUE INDEX runs_turn ON run_rows (thread_no, turn, CASE WHEN parent_run_id IS NULL THEN 0 ELSE sequence END);
CREATE INDEX runs_started ON run_rows (started_at);
CREATE INDEX runs_parent ON run_rows (parent_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_shown ON run_rows (shown_id);
-- A lens shows the tool calls that an open run has requested. There are few open runs.
CREATE INDEX runs_open ON run_rows (thread_no, turn)
    WHERE status IN ('pending', 'running', 'waiting') AND source = 'native';

CREATE VIEW runs AS
SELECT r.id, t.id AS thread_id, r.sequence, r.turn, r.parent_run_id, r.agent, r.version, r.role, r.status,
       r.stop_reason, r.first_position, r.input_position, r.output_position, r.output, r.state, r.model, r.provider,
       r.input_tokens, r.output_tokens, r.cache_read_tokens, r.cache_write_tokens, r.cost, r.total_cost, r.steps,
       r.error, r.tags, r.metadata, r.extras, r.source, r.foreign_id, r.shown_id, r.started_at, r.completed_at
FROM run_rows r JOIN threads t ON t.no = r.thread_no;

CREATE TABLE stitch_rows (
    log_id             INTEGER PRIMARY KEY AUTOINCREMENT,
    thread_no          INTEGER NOT NULL REFERENCES threads (no) ON DELETE CASCADE,
    position           INTEGER NOT NULL,
    id                 TEXT NOT NULL,
    run_no             INTEGER REFERENCES run_rows (no),
    lane               TEXT,
    previous           INTEGER,  -- the position of the previous stitch, while that one is in this table
    previous_id        TEXT,     -- the id of the previous stitch, once that one is in an archive
    reply_to           INTEGER,
    call_index         INTEGER,
    calls              INTEGER,
    parent_id          TEXT,
    child_id           TEXT,
    fence              INTEGER NOT NULL,
    step_number        INTEGER,
    type               TEXT NOT NULL,
    name               TEXT,
    model              TEXT,     -- the model that answered, of a model call
    call_id            TEXT,
    status             TEXT,
    message            TEXT,
    data               TEXT,     -- NULL means {}
    input_tokens       INTEGER,
    output_tokens      INTEGER,
    cache_read_tokens  INTEGER,
    cache_write_tokens INTEGER,
    duration_ms        INTEGER,
    messages_count     INTEGER,
    estimated_tokens   INTEGER,
    at                 TEXT NOT NULL,
    -- The id under which a lens shows a model call.
    llm_call_id        TEXT GENERATED ALWAYS AS (CASE type WHEN 'llm_call' THEN coalesce(call_id, id) END) VIRTUAL,
    CHECK (previous < position),
    CHECK (previous_id <> id),
    CHECK (type <> 'thread_result' OR child_id IS NOT NULL),
    CHECK (type <> 'tool_call' OR (name IS NOT NULL AND call_id IS NOT NULL))
);
CREATE UNIQUE INDEX stitches_position ON stitch_rows (thread_no, position);
CREATE UNIQUE INDEX stitches_id ON stitch_rows (id);
CREATE INDEX stitches_run ON stitch_rows (run_no, position);
-- One list per thread: at most one stitch follows another, and at most one is the first.
-- Stitches of a mirror are below another stitch or below their run. They arrive in any order and are replaced in place,
-- so they are not in the list.
CREATE UNIQUE INDEX stitches_previous ON stitch_rows (thread_no, previous) WHERE previous IS NOT NULL;
CREATE UNIQUE INDEX stitches_first ON stitch_rows (thread_no)
    WHERE previous IS NULL AND previous_id IS NULL AND parent_id IS NULL
      AND type IN ('llm_call', 'tool_call', 'thread_result');
-- The condition has the same text as in the query: SQLite compares the text to choose a partial index.
CREATE INDEX stitches_errors ON stitch_rows (log_id)
    WHERE type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error');
-- Failed spans of imported traces, and those below a span.
CREATE INDEX stitches_failed_spans ON stitch_rows (log_id) WHERE parent_id IS NOT NULL AND status IN ('error');
CREATE INDEX stitches_failed_below ON stitch_rows (parent_id) WHERE parent_id IS NOT NULL AND status IN ('error');
CREATE INDEX stitches_child ON stitch_rows (child_id) WHERE child_id IS NOT NULL;
-- A lens finds model calls and tool calls by their ids. The other two indexes have all columns that figures per model
-- and per tool need, so that SQLite does not read the rows; `type` is in them because SQLite reads it otherwise.
CREATE INDEX stitches_llm_call_id ON stitch_rows (llm_call_id) WHERE llm_call_id IS NOT NULL;
CREATE INDEX stitches_tool_call_id ON stitch_rows (call_id) WHERE type = 'tool_call';
CREATE INDEX stitches_models ON stitch_rows (model, run_no, at, input_tokens, output_tokens, type)
    WHERE type = 'llm_call';
-- Finds the runs that use another model than their own.
CREATE INDEX stitches_calls ON stitch_rows (run_no, name, type, input_tokens)
    WHERE type = 'llm_call' OR (type = 'span' AND input_tokens IS NOT NULL);
CREATE INDEX stitches_tools ON stitch_rows (name, run_no, status, duration_ms, thread_no, reply_to, call_id, type)
    WHERE type = 'tool_call';

CREATE VIEW stitches AS
SELECT s.id, s.type, r.id AS run_id, s.lane, s.parent_id, s.child_id, s.reply_to, s.call_index, s.calls,
       s.step_number, s.name, s.model, s.call_id, s.status, s.message, coalesce(s.data, '{}') AS data, s.input_tokens,
       s.output_tokens,
       s.cache_read_tokens, s.cache_write_tokens, s.duration_ms, s.messages_count, s.estimated_tokens, s.at,
       t.id AS thread_id, s.position, coalesce(p.id, s.previous_id) AS previous_id, s.fence, s.log_id,
       s.llm_call_id
FROM stitch_rows s
JOIN threads t ON t.no = s.thread_no
LEFT JOIN run_rows r ON r.no = s.run_no
LEFT JOIN stitch_rows p ON p.thread_no = s.thread_no AND p.position = s.previous;

CREATE TABLE inbox (
    id        TEXT PRIMARY KEY,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    sender    TEXT NOT NULL,
    call_id   TEXT NOT NULL,
    kind      TEXT NOT NULL,
    entry     TEXT,
    position  INTEGER,
    at        TEXT NOT NULL,
    UNIQUE (thread_id, sender, call_id)
);
CREATE INDEX inbox_waiting ON inbox (thread_id, id) WHERE position IS NULL;

CREATE TABLE workers (
    id              TEXT PRIMARY KEY,
    host            TEXT NOT NULL,
    boot_id         TEXT NOT NULL,
    pid             INTEGER NOT NULL,
    process_started TEXT NOT NULL,
    lease_seconds   REAL NOT NULL,
    started_at      TEXT NOT NULL,
    beat_at         TEXT NOT NULL,
    dead            INTEGER NOT NULL,
    doing           TEXT NOT NULL,
    -- The namespaces belong to the proof that a worker is dead.
    pid_namespace   TEXT NOT NULL DEFAULT '',
    time_namespace  TEXT NOT NULL DEFAULT '',
    -- The time of the last heartbeat on the clock of this host.
    uptime          REAL,
    end_cause       TEXT
);
CREATE INDEX workers_alive ON workers (beat_at) WHERE dead = 0;

CREATE TABLE agents (
    project TEXT NOT NULL, name TEXT NOT NULL, role TEXT NOT NULL, version INTEGER NOT NULL, metadata TEXT NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
    PRIMARY KEY (project, name)
);
CREATE TABLE agent_versions (
    project TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, digest TEXT NOT NULL,
    definition TEXT NOT NULL, created_at TEXT NOT NULL,
    PRIMARY KEY (project, name, version)
);
CREATE TABLE agent_links (
    project TEXT NOT NULL, team TEXT NOT NULL, version INTEGER NOT NULL, place INTEGER NOT NULL,
    member TEXT NOT NULL, member_version INTEGER,
    PRIMARY KEY (project, team, version, place)
);
CREATE TABLE blobs (
    sha256 TEXT PRIMARY KEY, size INTEGER NOT NULL, media_type TEXT, content BLOB NOT NULL, created_at TEXT NOT NULL
);
CREATE TABLE blob_uses (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    sha256 TEXT NOT NULL REFERENCES blobs (sha256),
    PRIMARY KEY (thread_id, sha256)
) WITHOUT ROWID;
CREATE INDEX blob_uses_blob ON blob_uses (sha256);
CREATE TABLE files (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    file_id TEXT NOT NULL, filename TEXT NOT NULL, storage_path TEXT, size INTEGER, mime_type TEXT, step INTEGER,
    created_in_run TEXT, last_updated_run TEXT, created_at TEXT NOT NULL, last_updated_at TEXT NOT NULL,
    metadata TEXT NOT NULL,
    PRIMARY KEY (thread_id, file_id)
);
CREATE TABLE memories (
    id TEXT PRIMARY KEY, project TEXT NOT NULL, user_id TEXT, agent TEXT, thread_id TEXT, kind TEXT NOT NULL,
    text TEXT NOT NULL, tags TEXT NOT NULL, metadata TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL
);
CREATE INDEX memories_user ON memories (project, user_id, id);
CREATE TABLE knowledge (
    id TEXT PRIMARY KEY, project TEXT NOT NULL, name TEXT NOT NULL, description TEXT, type TEXT, size INTEGER,
    status TEXT, metadata TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL
);
CREATE TABLE evals (
    id TEXT PRIMARY KEY, project TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, agent TEXT, run_id TEXT,
    input TEXT NOT NULL, result TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL
);
CREATE TABLE feedback (
    id TEXT PRIMARY KEY, project TEXT NOT NULL,
    thread_id TEXT REFERENCES threads (id) ON DELETE CASCADE,
    run_id TEXT, stitch_id TEXT, user_id TEXT, name TEXT NOT NULL, score REAL, value TEXT, comment TEXT,
    source TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
    experiment_id TEXT, metadata TEXT NOT NULL
);
CREATE INDEX feedback_thread ON feedback (thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX feedback_early ON feedback (stitch_id) WHERE thread_id IS NULL;
CREATE INDEX feedback_experiment ON feedback (experiment_id) WHERE experiment_id IS NOT NULL;
CREATE TABLE datasets (
    id TEXT PRIMARY KEY, project TEXT NOT NULL, name TEXT NOT NULL, description TEXT, kind TEXT NOT NULL,
    inputs_schema TEXT, outputs_schema TEXT, metadata TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL
);
CREATE INDEX datasets_name ON datasets (project, name);
CREATE TABLE examples (
    id TEXT PRIMARY KEY, project TEXT NOT NULL, dataset_id TEXT NOT NULL,
    inputs TEXT NOT NULL, outputs TEXT, metadata TEXT NOT NULL, splits TEXT NOT NULL, source_run_id TEXT,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL
);
CREATE INDEX examples_dataset ON examples (dataset_id, created_at, id);
CREATE TABLE example_files (
    example_id TEXT NOT NULL, name TEXT NOT NULL, project TEXT NOT NULL, media_type TEXT, size INTEGER NOT NULL, content BLOB NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (example_id, name)
);
CREATE TABLE experiments (
    id TEXT PRIMARY KEY, project TEXT NOT NULL, name TEXT NOT NULL, dataset_id TEXT, description TEXT,
    metadata TEXT NOT NULL, started_at TEXT NOT NULL, ended_at TEXT, created_at TEXT NOT NULL, updated_at TEXT NOT NULL
);
CREATE INDEX experiments_name ON experiments (project, name);
CREATE INDEX experiments_dataset ON experiments (dataset_id) WHERE dataset_id IS NOT NULL;
CREATE TABLE share_links (
    token TEXT PRIMARY KEY, project TEXT NOT NULL,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    run_id TEXT NOT NULL, actor TEXT NOT NULL, created_at TEXT NOT NULL
);
CREATE INDEX share_links_thread ON share_links (thread_id);
-- Bodies of trace requests. The server acknowledges a body once it is stored here, and parses it afterwards.
CREATE TABLE ingest_bodies (
    id TEXT PRIMARY KEY, project TEXT NOT NULL, source TEXT NOT NULL, headers TEXT NOT NULL, body BLOB NOT NULL,
    parsed INTEGER NOT NULL, problem TEXT, at TEXT NOT NULL
);
CREATE INDEX ingest_bodies_waiting ON ingest_bodies (id) WHERE parsed = 0 AND problem IS NULL;
-- Parts of model responses while they stream.
CREATE TABLE live_deltas (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    run_id TEXT NOT NULL, step_number INTEGER NOT NULL, number INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (run_id, step_number, number)
);
CREATE INDEX live_deltas_thread ON live_deltas (thread_id);
CREATE TABLE tokens (
    sha256 TEXT PRIMARY KEY, project TEXT NOT NULL, name TEXT NOT NULL, scopes TEXT NOT NULL,
    created_at TEXT NOT NULL, expires_at TEXT, revoked_at TEXT
);
CREATE TABLE audit (
    id TEXT PRIMARY KEY, project TEXT NOT NULL, actor TEXT NOT NULL, act TEXT NOT NULL, subject TEXT NOT NULL,
    data TEXT NOT NULL, at TEXT NOT NULL
);
-- Totals of purged runs, by day. `unpriced` counts their model calls without a known price: without it, the figures of
-- a day would change when its runs are purged.
CREATE TABLE daily_metrics (
    project TEXT NOT NULL, day TEXT NOT NULL, agent TEXT NOT NULL, model TEXT NOT NULL, runs INTEGER NOT NULL,
    failed_runs INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL, total_cost REAL NOT NULL,
    unpriced INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (project, day, agent, model)
);
CREATE TABLE archives (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    first_position INTEGER NOT NULL, last_position INTEGER NOT NULL, run_id TEXT NOT NULL, encoding TEXT NOT NULL,
    sha256 TEXT NOT NULL, content BLOB NOT NULL, created_at TEXT NOT NULL,
    PRIMARY KEY (thread_id, first_position)
);
CREATE TABLE limits (name TEXT PRIMARY KEY, at_most INTEGER NOT NULL, agents TEXT NOT NULL);
-- The outbox of webhooks.
CREATE TABLE webhook_events (
    id TEXT PRIMARY KEY,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    hook TEXT NOT NULL, event TEXT NOT NULL, body TEXT NOT NULL, tries INTEGER NOT NULL,
    due_at TEXT NOT NULL, at TEXT NOT NULL
);
CREATE INDEX webhook_events_due ON webhook_events (due_at);
CREATE INDEX webhook_events_thread ON webhook_events (thread_id);
-- The spans that describe a model call. If two instrumentations report the same call, it is counted once.
CREATE TABLE mirrored_model_calls (
    project TEXT NOT NULL, provider TEXT NOT NULL, response_id TEXT NOT NULL,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    stitch_id TEXT NOT NULL, at TEXT NOT NULL,
    PRIMARY KEY (project, provider, response_id, stitch_id)
);
CREATE INDEX mirrored_model_calls_thread ON mirrored_model_calls (thread_id);
-- The migrations of applications that were applied to this store.
CREATE TABLE extension_versions (
    extension  TEXT NOT NULL,
    version    INTEGER NOT NULL,
    name       TEXT NOT NULL,
    applied_at TEXT NOT NULL,
    PRIMARY KEY (extension, version)
);

-- Titles change seldom, so triggers update their index. A search updates the index of inputs and answers, up to the
-- log_id in search_mark, so that appends have no cost for it. That index stores no text.
CREATE VIRTUAL TABLE title_search USING fts5 (title, content = 'threads', content_rowid = 'no');
CREATE TRIGGER title_search_insert AFTER INSERT ON threads WHEN new.title IS NOT NULL BEGIN
    INSERT INTO title_search (rowid, title) VALUES (new.no, new.title);
END;
CREATE TRIGGER title_search_update AFTER UPDATE OF title ON threads BEGIN
    INSERT INTO title_search (title_search, rowid, title) SELECT 'delete', old.no, old.title WHERE old.title IS NOT NULL;
    INSERT INTO title_search (rowid, title) SELECT new.no, new.title WHERE new.title IS NOT NULL;
END;
CREATE TRIGGER title_search_delete AFTER DELETE ON threads WHEN old.title IS NOT NULL BEGIN
    INSERT INTO title_search (title_search, rowid, title) VALUES ('delete', old.no, old.title);
END;
CREATE VIRTUAL TABLE text_search USING fts5 (text, content = '', detail = none);
CREATE TABLE search_mark (log_id INTEGER NOT NULL);
INSERT INTO search_mark VALUES (0);
