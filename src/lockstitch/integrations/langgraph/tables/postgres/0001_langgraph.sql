CREATE TABLE langgraph_checkpoints (
    thread_id     uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    ns            text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    project       text COLLATE "C" NOT NULL,
    parent_id     text COLLATE "C",
    run_id        text COLLATE "C",
    encoding      text COLLATE "C" NOT NULL,
    content       bytea NOT NULL,
    metadata      json NOT NULL,
    PRIMARY KEY (thread_id, ns, checkpoint_id)
);

CREATE INDEX langgraph_checkpoints_run ON langgraph_checkpoints (run_id) WHERE run_id IS NOT NULL;

CREATE TABLE langgraph_successors (
    thread_id     uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    ns            text COLLATE "C" NOT NULL,
    parent_id     text COLLATE "C" NOT NULL,
    PRIMARY KEY (thread_id, ns, parent_id)
);

CREATE TABLE langgraph_values (
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    ns        text COLLATE "C" NOT NULL,
    channel   text COLLATE "C" NOT NULL,
    version   text COLLATE "C" NOT NULL,
    encoding  text COLLATE "C" NOT NULL,
    base      text COLLATE "C",
    root      text COLLATE "C" NOT NULL,
    depth     integer NOT NULL,
    skip      integer NOT NULL,
    common    integer NOT NULL,
    head      integer NOT NULL,
    content   bytea NOT NULL,
    PRIMARY KEY (thread_id, ns, channel, version)
);

CREATE TABLE langgraph_writes (
    thread_id     uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    ns            text COLLATE "C" NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    id            uuid NOT NULL,
    task_id       text COLLATE "C" NOT NULL,
    task_path     text COLLATE "C" NOT NULL,
    content       bytea NOT NULL,
    PRIMARY KEY (thread_id, ns, checkpoint_id, id)
);

CREATE TABLE langgraph_items (
    project    text COLLATE "C" NOT NULL,
    namespace  text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value      json NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (project, namespace, key)
);
