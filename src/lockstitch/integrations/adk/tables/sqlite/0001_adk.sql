CREATE TABLE adk_sessions (
    project     TEXT NOT NULL,
    app_name    TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    thread_id   TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    state       TEXT NOT NULL,
    update_time REAL NOT NULL,
    position    INTEGER NOT NULL,
    PRIMARY KEY (project, app_name, user_id, session_id)
) WITHOUT ROWID;

CREATE UNIQUE INDEX adk_sessions_thread ON adk_sessions (thread_id);

CREATE TABLE adk_values (
    project  TEXT NOT NULL,
    app_name TEXT NOT NULL,
    user_id  TEXT NOT NULL,
    key      TEXT NOT NULL,
    value    TEXT NOT NULL,
    PRIMARY KEY (project, app_name, user_id, key)
) WITHOUT ROWID;
