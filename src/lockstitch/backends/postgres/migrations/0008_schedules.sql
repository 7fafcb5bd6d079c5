-- Schedules: plans that start threads at times.
CREATE TABLE schedules (
    id uuid NOT NULL, project text NOT NULL, name text NOT NULL, agent text NOT NULL, goal text NOT NULL,
    cron text, interval_seconds bigint, time_zone text NOT NULL, missed text NOT NULL, paused boolean NOT NULL,
    next_tick timestamptz, last_tick timestamptz, last_thread_id uuid,
    title text, user_id text, priority bigint NOT NULL, extras json NOT NULL,
    created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL,
    PRIMARY KEY (project, name)
);
-- A paused schedule has no next tick.
CREATE INDEX schedules_due ON schedules (next_tick) WHERE next_tick IS NOT NULL;
