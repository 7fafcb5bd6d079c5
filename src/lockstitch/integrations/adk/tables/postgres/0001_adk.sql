CREATE TABLE adk_sessions (
    project     text COLLATE "C" NOT NULL,
    app_name    text COLLATE "C" NOT NULL,
    user_id     text COLLATE "C" NOT NULL,
    session_id  text COLLATE "C" NOT NULL,
    thread_id   uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    state       json NOT NULL,
    update_time double precision NOT NULL,
    position    bigint NOT NULL,
    PRIMARY KEY (project, app_name, user_id, session_id)
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX adk_sessions_thread ON adk_sessions (thread_id);

CREATE TABLE adk_values (
    project  text COLLATE "C" NOT NULL,
    app_name text COLLATE "C" NOT NULL,
    user_id  text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    value    json NOT NULL,
    PRIMARY KEY (project, app_name, user_id, key)
);
