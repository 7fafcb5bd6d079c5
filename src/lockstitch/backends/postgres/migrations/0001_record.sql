-- The record on PostgreSQL. It uses `json`, not `jsonb`: a read returns the bytes that were written.

CREATE TABLE threads (
    id                  uuid PRIMARY KEY,
    key                 text,
    project             text NOT NULL,
    user_id             text,
    kind                text NOT NULL CHECK (kind IN ('chat', 'goal', 'task', 'trace')),
    agent               text,
    version             bigint,
    parent_id           uuid REFERENCES threads (id) ON DELETE CASCADE,
    branching_stitch_id uuid,
    depth               bigint NOT NULL,
    goal                text CHECK (goal <> ''),
    title               text,
    tasks               json NOT NULL,
    status              text NOT NULL
        CHECK (status IN ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
    waiting_for         json NOT NULL,
    result              json,
    state               json NOT NULL,
    settings            json NOT NULL,
    extras              json NOT NULL,
    position            bigint NOT NULL,
    tip_id              uuid,
    context_from        bigint NOT NULL,
    first_position      bigint NOT NULL,
    last_sequence       bigint NOT NULL,
    last_turn           bigint NOT NULL,
    total_runs          bigint NOT NULL,
    worker_id           uuid,
    fence               bigint NOT NULL,
    delivered           bigint NOT NULL,
    pending_children    bigint NOT NULL,
    cancel_requested    boolean NOT NULL,
    wake_at             timestamptz,
    priority            bigint NOT NULL,
    crashes             bigint NOT NULL,
    created_at          timestamptz NOT NULL,
    updated_at          timestamptz NOT NULL,
    last_run_at         timestamptz,
    expires_at          timestamptz,
    recent_at           timestamptz GENERATED ALWAYS AS (coalesce(last_run_at, created_at)) STORED,
    -- The time since when the thread waits for a person. Few threads do, and people want to see them first.
    awaiting_person_since timestamptz,
    -- A dead worker held the thread. Each such thread is executed alone before it counts as the cause of the death.
    losses              bigint NOT NULL DEFAULT 0,
    lost_by             uuid,
    alone               boolean NOT NULL DEFAULT false,
    CHECK (parent_id IS NULL OR parent_id <> id),
    CHECK (kind NOT IN ('goal', 'task') OR goal IS NOT NULL),
    CHECK (kind NOT IN ('goal', 'task') OR status = 'cancelled'
           OR (status IN ('completed', 'failed')) = (result IS NOT NULL))
) WITH (fillfactor = 70);
-- No index has a column that every append changes: it would prevent HOT updates.
CREATE UNIQUE INDEX threads_key ON threads (project, key) WHERE key IS NOT NULL;
CREATE INDEX threads_recent ON threads (project, recent_at, id);
CREATE INDEX threads_status ON threads (status, id);
-- The threads that are ready, in lanes of agent and project. A claim reads the first rows of a few lanes. The number of
-- ready threads in these and in other lanes does not matter. Projects are in the order of their bytes, as in every
-- backend.
CREATE INDEX threads_ready ON threads (coalesce(agent, ''), project COLLATE "C", priority DESC, wake_at, id)
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
CREATE INDEX threads_shown ON threads ((coalesce(key, id::text)));
CREATE INDEX threads_shown_status ON threads ((CASE status WHEN 'cancelled' THEN 'failed' ELSE status END));

CREATE TABLE runs (
    id                 uuid PRIMARY KEY,
    thread_id          uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    sequence           bigint NOT NULL,
    turn               bigint NOT NULL,
    parent_run_id      uuid,
    agent              text,
    version            bigint,
    role               text NOT NULL,
    status             text NOT NULL
        CHECK (status IN ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled')),
    stop_reason        text,
    first_position     bigint NOT NULL,
    input_position     bigint,
    output_position    bigint,
    output             json,
    state              json NOT NULL,
    model              text,
    provider           text,
    input_tokens       bigint NOT NULL,
    output_tokens      bigint NOT NULL,
    cache_read_tokens  bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    cost               json NOT NULL,
    total_cost         double precision,
    steps              bigint NOT NULL,
    error              text,
    tags               json NOT NULL,
    metadata           json NOT NULL,
    extras             json NOT NULL,
    source             text NOT NULL,
    started_at         timestamptz NOT NULL,
    completed_at       timestamptz,
    foreign_id         text,  -- the id of a mirrored run in the other system. A lens shows it instead of our id.
    shown_id           text GENERATED ALWAYS AS (coalesce(foreign_id, id::text)) STORED,
    UNIQUE (thread_id, sequence)
);
-- Pages are filled completely, unlike those of threads. A run is updated while its page is still the last one, and
-- PostgreSQL removes old versions only from a full page, which makes room for the next run and the next update.
-- A turn has a run and the runs of its members. One finished or open turn has one top-level run. The other runs have
-- their own sequence. The paged history uses this index, and so do lenses that show a turn as one row.
CREATE UNIQUE INDEX runs_turn ON runs (thread_id, turn, (CASE WHEN parent_run_id IS NULL THEN 0 ELSE sequence END));
CREATE INDEX runs_started ON runs (started_at);
CREATE INDEX runs_parent ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL;
CREATE INDEX runs_shown ON runs (shown_id);
-- A lens shows the tool calls that an open run has requested. There are few open runs.
CREATE INDEX runs_open ON runs (thread_id, turn)
    WHERE status IN ('pending', 'running', 'waiting') AND source = 'native';

-- Columns of fixed width come first, so that alignment wastes no space.
CREATE TABLE stitches (
    thread_id          uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    position           bigint NOT NULL,
    log_id             bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY,
    id                 uuid NOT NULL,
    run_id             uuid REFERENCES runs (id),
    lane               uuid,
    previous_id        uuid,
    reply_to           bigint,
    call_index         bigint,
    calls              bigint,
    parent_id          uuid,
    child_id           uuid,
    fence              bigint NOT NULL,
    step_number        bigint,
    input_tokens       bigint,
    output_tokens      bigint,
    cache_read_tokens  bigint,
    cache_write_tokens bigint,
    duration_ms        bigint,
    messages_count     bigint,
    estimated_tokens   bigint,
    at                 timestamptz NOT NULL,
    type               text NOT NULL,
    name               text,
    model              text,  -- the model that answered, of a model call
    call_id            text,
    status             text,
    message            json,
    data               json NOT NULL,
    -- The id under which a lens shows a model call.
    llm_call_id        text GENERATED ALWAYS AS (CASE type WHEN 'llm_call' THEN coalesce(call_id, id::text) END) STORED,
    PRIMARY KEY (thread_id, position),
    CHECK (previous_id <> id),
    CHECK (type <> 'thread_result' OR child_id IS NOT NULL),
    CHECK (type <> 'tool_call' OR (name IS NOT NULL AND call_id IS NOT NULL))
);
CREATE UNIQUE INDEX stitches_id ON stitches (id);
CREATE INDEX stitches_run ON stitches (run_id);
-- One list per thread: at most one stitch follows another, and at most one is the first. Ids are unique everywhere.
-- Stitches of a mirror are below another stitch or below their run. They arrive in any order and are replaced in place,
-- so they are not in the list.
CREATE UNIQUE INDEX stitches_previous ON stitches (previous_id) WHERE previous_id IS NOT NULL;
CREATE UNIQUE INDEX stitches_first ON stitches (thread_id)
    WHERE previous_id IS NULL AND parent_id IS NULL AND type IN ('llm_call', 'tool_call', 'thread_result');
CREATE INDEX stitches_log ON stitches (log_id);
CREATE INDEX stitches_errors ON stitches (log_id)
    WHERE type IN ('api_error', 'error', 'file_error', 'run_failed', 'tool_error');
-- Failed spans of imported traces, and those below a span.
CREATE INDEX stitches_failed_spans ON stitches (log_id) WHERE parent_id IS NOT NULL AND status IN ('error');
CREATE INDEX stitches_failed_below ON stitches (parent_id) WHERE parent_id IS NOT NULL AND status IN ('error');
CREATE INDEX stitches_child ON stitches (child_id) WHERE child_id IS NOT NULL;
-- A lens finds model calls and tool calls by their ids. The other two indexes have all columns that figures per model
-- and per tool need, so that PostgreSQL does not read the rows.
CREATE INDEX stitches_llm_call_id ON stitches (llm_call_id) WHERE llm_call_id IS NOT NULL;
CREATE INDEX stitches_tool_call_id ON stitches (call_id) WHERE type = 'tool_call';
CREATE INDEX stitches_models ON stitches (model) INCLUDE (at, input_tokens, output_tokens, run_id)
    WHERE type = 'llm_call' AND run_id IS NOT NULL;
CREATE INDEX stitches_tools ON stitches (name) INCLUDE (status, duration_ms, run_id, thread_id, reply_to)
    WHERE type = 'tool_call' AND run_id IS NOT NULL;

CREATE TABLE inbox (
    id        uuid PRIMARY KEY,
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    sender    text NOT NULL,
    call_id   text NOT NULL,
    kind      text NOT NULL,
    entry     json,
    position  bigint,
    at        timestamptz NOT NULL,
    UNIQUE (thread_id, sender, call_id)
);
CREATE INDEX inbox_waiting ON inbox (thread_id, id) WHERE position IS NULL;

CREATE TABLE workers (
    id              uuid PRIMARY KEY,
    host            text NOT NULL,
    boot_id         text NOT NULL,
    pid             bigint NOT NULL,
    process_started text NOT NULL,
    lease_seconds   double precision NOT NULL,
    started_at      timestamptz NOT NULL,
    beat_at         timestamptz NOT NULL,
    dead            boolean NOT NULL,
    doing           json NOT NULL,
    -- The namespaces belong to the proof that a worker is dead.
    pid_namespace   text NOT NULL DEFAULT '',
    time_namespace  text NOT NULL DEFAULT '',
    -- `uptime` is for stores of one host. Here the clock of the database decides about leases.
    uptime          double precision,
    end_cause       text
);
CREATE INDEX workers_alive ON workers (beat_at) WHERE NOT dead;

CREATE TABLE agents (
    project text NOT NULL, name text NOT NULL, role text NOT NULL, version bigint NOT NULL, metadata json NOT NULL,
    created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL,
    PRIMARY KEY (project, name)
);
CREATE TABLE agent_versions (
    project text NOT NULL, name text NOT NULL, version bigint NOT NULL, digest text NOT NULL,
    definition json NOT NULL, created_at timestamptz NOT NULL,
    PRIMARY KEY (project, name, version)
);
CREATE TABLE agent_links (
    project text NOT NULL, team text NOT NULL, version bigint NOT NULL, place bigint NOT NULL,
    member text NOT NULL, member_version bigint,
    PRIMARY KEY (project, team, version, place)
);
CREATE TABLE blobs (
    sha256 text PRIMARY KEY, size bigint NOT NULL, media_type text, content bytea NOT NULL, created_at timestamptz NOT NULL
);
CREATE TABLE blob_uses (
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    sha256 text NOT NULL REFERENCES blobs (sha256),
    PRIMARY KEY (thread_id, sha256)
);
CREATE INDEX blob_uses_blob ON blob_uses (sha256);
CREATE TABLE files (
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    file_id text NOT NULL, filename text NOT NULL, storage_path text, size bigint, mime_type text, step bigint,
    created_in_run uuid, last_updated_run uuid, created_at timestamptz NOT NULL, last_updated_at timestamptz NOT NULL,
    metadata json NOT NULL,
    PRIMARY KEY (thread_id, file_id)
);
CREATE TABLE memories (
    id uuid PRIMARY KEY, project text NOT NULL, user_id text, agent text, thread_id uuid, kind text NOT NULL,
    text text NOT NULL, tags json NOT NULL, metadata json NOT NULL, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL
);
CREATE INDEX memories_user ON memories (project, user_id, id);
CREATE TABLE knowledge (
    id uuid PRIMARY KEY, project text NOT NULL, name text NOT NULL, description text, type text, size bigint,
    status text, metadata json NOT NULL, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL
);
CREATE TABLE evals (
    id uuid PRIMARY KEY, project text NOT NULL, name text NOT NULL, type text NOT NULL, agent text, run_id uuid,
    input json NOT NULL, result json NOT NULL, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL
);
CREATE TABLE feedback (
    id uuid PRIMARY KEY, project text NOT NULL,
    thread_id uuid REFERENCES threads (id) ON DELETE CASCADE,
    run_id uuid, stitch_id uuid, user_id text, name text NOT NULL, score double precision, value json, comment text,
    source text NOT NULL, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL,
    experiment_id uuid, metadata json NOT NULL
);
CREATE INDEX feedback_thread ON feedback (thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX feedback_early ON feedback (stitch_id) WHERE thread_id IS NULL;
CREATE INDEX feedback_experiment ON feedback (experiment_id) WHERE experiment_id IS NOT NULL;
CREATE TABLE datasets (
    id uuid PRIMARY KEY, project text NOT NULL, name text NOT NULL, description text, kind text NOT NULL,
    inputs_schema json, outputs_schema json, metadata json NOT NULL, created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX datasets_name ON datasets (project, name);
CREATE TABLE examples (
    id uuid PRIMARY KEY, project text NOT NULL, dataset_id uuid NOT NULL,
    inputs json NOT NULL, outputs json, metadata json NOT NULL, splits json NOT NULL, source_run_id uuid,
    created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL
);
CREATE INDEX examples_dataset ON examples (dataset_id, created_at, id);
CREATE TABLE example_files (
    example_id uuid NOT NULL, name text NOT NULL, project text NOT NULL, media_type text, size bigint NOT NULL, content bytea NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (example_id, name)
);
CREATE TABLE experiments (
    id uuid PRIMARY KEY, project text NOT NULL, name text NOT NULL, dataset_id uuid, description text,
    metadata json NOT NULL, started_at timestamptz NOT NULL, ended_at timestamptz, created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX experiments_name ON experiments (project, name);
CREATE INDEX experiments_dataset ON experiments (dataset_id) WHERE dataset_id IS NOT NULL;
CREATE TABLE share_links (
    token uuid PRIMARY KEY, project text NOT NULL,
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    run_id uuid NOT NULL, actor text NOT NULL, created_at timestamptz NOT NULL
);
CREATE INDEX share_links_thread ON share_links (thread_id);
-- Bodies of trace requests. The server acknowledges a body once it is stored here, and parses it afterwards.
CREATE TABLE ingest_bodies (
    id uuid PRIMARY KEY, project text NOT NULL, source text NOT NULL, headers json NOT NULL, body bytea NOT NULL,
    parsed boolean NOT NULL, problem text, at timestamptz NOT NULL
);
CREATE INDEX ingest_bodies_waiting ON ingest_bodies (id) WHERE NOT parsed AND problem IS NULL;
-- Parts of model responses while they stream.
CREATE UNLOGGED TABLE live_deltas (
    thread_id uuid NOT NULL,
    run_id uuid NOT NULL, step_number bigint NOT NULL, number bigint NOT NULL, text json NOT NULL,
    PRIMARY KEY (run_id, step_number, number)
);
CREATE INDEX live_deltas_thread ON live_deltas (thread_id);
CREATE TABLE tokens (
    sha256 text PRIMARY KEY, project text NOT NULL, name text NOT NULL, scopes json NOT NULL,
    created_at timestamptz NOT NULL, expires_at timestamptz, revoked_at timestamptz
);
CREATE TABLE audit (
    id uuid PRIMARY KEY, project text NOT NULL, actor text NOT NULL, act text NOT NULL, subject text NOT NULL,
    data json NOT NULL, at timestamptz NOT NULL
);
-- Totals of purged runs, by day. `unpriced` counts their model calls without a known price: without it, the figures of
-- a day would change when its runs are purged.
CREATE TABLE daily_metrics (
    project text NOT NULL, day text NOT NULL, agent text NOT NULL, model text NOT NULL, runs bigint NOT NULL,
    failed_runs bigint NOT NULL, input_tokens bigint NOT NULL, output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL, cache_write_tokens bigint NOT NULL, total_cost double precision NOT NULL,
    unpriced bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (project, day, agent, model)
);
CREATE TABLE archives (
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    first_position bigint NOT NULL, last_position bigint NOT NULL, run_id uuid NOT NULL, encoding text NOT NULL,
    sha256 text NOT NULL, content bytea NOT NULL, created_at timestamptz NOT NULL,
    PRIMARY KEY (thread_id, first_position)
);
CREATE TABLE limits (name text PRIMARY KEY, at_most bigint NOT NULL, agents json NOT NULL);
-- The outbox of webhooks.
CREATE TABLE webhook_events (
    id uuid PRIMARY KEY,
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    hook text NOT NULL, event text NOT NULL, body json NOT NULL, tries bigint NOT NULL,
    due_at timestamptz NOT NULL, at timestamptz NOT NULL
);
CREATE INDEX webhook_events_due ON webhook_events (due_at);
CREATE INDEX webhook_events_thread ON webhook_events (thread_id);
-- The spans that describe a model call. If two instrumentations report the same call, it is counted once.
CREATE TABLE mirrored_model_calls (
    project text NOT NULL, provider text NOT NULL, response_id text NOT NULL,
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    stitch_id uuid NOT NULL, at timestamptz NOT NULL,
    PRIMARY KEY (project, provider, response_id, stitch_id)
);
CREATE INDEX mirrored_model_calls_thread ON mirrored_model_calls (thread_id);
-- The migrations of applications that were applied to this store.
CREATE TABLE extension_versions (
    extension  text NOT NULL,
    version    bigint NOT NULL,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL,
    PRIMARY KEY (extension, version)
);

-- The text of a message for search. Characters that jsonb cannot store are replaced, and long text is cut.
CREATE FUNCTION safe_jsonb(value json) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN strpos(value::text, '\u0000') = 0 THEN value::jsonb
           ELSE regexp_replace(value::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')::jsonb END
$$;
-- PostgreSQL parses a host name, path, address or signed number as one word. Without these characters it finds their
-- parts, as the other backends do.
CREATE FUNCTION search_words(value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT replace(replace(replace(replace(replace(replace(replace(
        value, '.', ' '), '/', ' '), '-', ' '), '@', ' '), '+', ' '), '<', ' '), '&', ' ')
$$;
CREATE FUNCTION message_text(message json) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    -- A tsvector is limited to a megabyte. 256 KB of text, counted in bytes, never exceed it.
    SELECT lockstitch.search_words(left(said, CASE WHEN octet_length(left(said, 262144)) > 262144
                                              THEN 65536 ELSE 262144 END))
    FROM lockstitch.safe_jsonb(message) AS m,
         LATERAL (SELECT CASE jsonb_typeof(m -> 'content')
                         WHEN 'string' THEN m ->> 'content'
                         WHEN 'array' THEN (SELECT string_agg(block ->> 'text', ' ')
                                            FROM jsonb_array_elements(m -> 'content') AS block
                                            WHERE block ->> 'type' = 'text')
                         END AS said) AS text
$$;
CREATE INDEX threads_title_search ON threads USING gin (to_tsvector('simple', lockstitch.search_words(title)))
    WHERE title IS NOT NULL;
-- A search fills this index up to the mark. An append does not, because it would write several times its text.
CREATE FUNCTION message_words(message json) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT to_tsvector('simple', coalesce(lockstitch.message_text(message), ''))
$$;
CREATE TABLE text_search (
    thread_id uuid NOT NULL, position bigint NOT NULL, log_id bigint NOT NULL, words tsvector NOT NULL,
    PRIMARY KEY (thread_id, position),
    CONSTRAINT text_search_stitch FOREIGN KEY (thread_id, position) REFERENCES stitches ON DELETE CASCADE
);
CREATE INDEX text_search_words ON text_search USING gin (words);
CREATE TABLE search_mark (log_id bigint NOT NULL);
INSERT INTO search_mark VALUES (0);
-- Native stitches never change. If a stitch of a trace is replaced and the index has it, its words are replaced. The
-- lock is the one of `search_fill`: either this function sees its mark, or `search_fill` sees this write.
CREATE FUNCTION text_search_replace() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7167303524108317285);
    DELETE FROM lockstitch.text_search WHERE thread_id = new.thread_id AND position = new.position;
    INSERT INTO lockstitch.text_search (thread_id, position, log_id, words)
    SELECT new.thread_id, new.position, new.log_id, lockstitch.message_words(new.message)
    FROM lockstitch.search_mark AS mark
    WHERE new.log_id <= mark.log_id AND new.message IS NOT NULL
      AND (new.type = 'input' OR (new.type = 'llm_call' AND new.status IS DISTINCT FROM 'tool_use'));
    RETURN NULL;
END $$;
CREATE TRIGGER text_search_replace AFTER UPDATE OF type, status, message ON stitches FOR EACH ROW
    WHEN (old.type IN ('input', 'llm_call') OR new.type IN ('input', 'llm_call'))
    EXECUTE FUNCTION lockstitch.text_search_replace();
