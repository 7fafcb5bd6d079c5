CREATE TABLE pydantic_ai_conversations (
    project         text COLLATE "C" NOT NULL,
    conversation_id text COLLATE "C" NOT NULL,
    thread_id       uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    scope           text COLLATE "C",
    revision        text COLLATE "C" NOT NULL,
    head_id         text COLLATE "C",
    updated_at      timestamptz NOT NULL,
    messages        bigint NOT NULL,
    open_run_id     uuid,
    content         bytea NOT NULL,
    PRIMARY KEY (project, conversation_id)
);

CREATE INDEX pydantic_ai_conversations_thread ON pydantic_ai_conversations (thread_id);
CREATE INDEX pydantic_ai_conversations_recent ON pydantic_ai_conversations (project, updated_at);
CREATE INDEX pydantic_ai_conversations_scope ON pydantic_ai_conversations (project, scope, updated_at);

CREATE TABLE pydantic_ai_messages (
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    number    bigint NOT NULL,
    project   text COLLATE "C" NOT NULL,
    entry_id  text COLLATE "C" NOT NULL,
    parent_id text COLLATE "C",
    first     bigint NOT NULL,
    last      bigint NOT NULL,
    inherited boolean NOT NULL,
    content   bytea NOT NULL,
    PRIMARY KEY (thread_id, number)
);

CREATE INDEX pydantic_ai_messages_entry ON pydantic_ai_messages (entry_id);
