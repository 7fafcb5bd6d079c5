-- Schedules: plans that start threads at times.
CREATE TABLE schedules (
    id TEXT NOT NULL, project TEXT NOT NULL, name TEXT NOT NULL, agent TEXT NOT NULL, goal TEXT NOT NULL,
    cron TEXT, interval_seconds INTEGER, time_zone TEXT NOT NULL, missed TEXT NOT NULL, paused INTEGER NOT NULL,
    next_tick TEXT, last_tick TEXT, last_thread_id TEXT,
    title TEXT, user_id TEXT, priority INTEGER NOT NULL, extras TEXT NOT NULL,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
    PRIMARY KEY (project, name)
);
-- A paused schedule has no next tick.
CREATE INDEX schedules_due ON schedules (next_tick) WHERE next_tick IS NOT NULL;
