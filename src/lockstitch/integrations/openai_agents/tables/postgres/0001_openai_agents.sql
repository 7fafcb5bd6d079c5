CREATE TABLE openai_agents_states (
    thread_id uuid NOT NULL PRIMARY KEY REFERENCES threads (id) ON DELETE CASCADE,
    position  bigint NOT NULL,
    content   bytea NOT NULL
);
