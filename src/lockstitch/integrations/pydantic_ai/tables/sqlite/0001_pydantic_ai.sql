CREATE TABLE pydantic_ai_conversations (
    project         TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    thread_id       TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    scope           TEXT,
    revision        TEXT NOT NULL,
    head_id         TEXT,
    updated_at      TEXT NOT NULL,
    messages        INTEGER NOT NULL,
    open_run_id     TEXT,
    content         BLOB NOT NULL,
    PRIMARY KEY (project, conversation_id)
) WITHOUT ROWID;

CREATE INDEX pydantic_ai_conversations_thread ON pydantic_ai_conversations (thread_id);
CREATE INDEX pydantic_ai_conversations_recent ON pydantic_ai_conversations (project, updated_at);
CREATE INDEX pydantic_ai_conversations_scope ON pydantic_ai_conversations (project, scope, updated_at);

CREATE TABLE pydantic_ai_messages (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    number    INTEGER NOT NULL,
    project   TEXT NOT NULL,
    entry_id  TEXT NOT NULL,
    parent_id TEXT,
    first     INTEGER NOT NULL,
    last      INTEGER NOT NULL,
    inherited INTEGER NOT NULL,
    content   BLOB NOT NULL,
    PRIMARY KEY (thread_id, number)
) WITHOUT ROWID;

CREATE INDEX pydantic_ai_messages_entry ON pydantic_ai_messages (entry_id);
