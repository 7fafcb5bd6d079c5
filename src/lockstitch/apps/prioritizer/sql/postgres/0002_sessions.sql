-- Sessions: one row for each thread that prioritizes. The row has the result; the log has the steps.

CREATE TABLE prioritizer_sessions (
    thread_id        uuid PRIMARY KEY REFERENCES threads (id) ON DELETE CASCADE,
    project          text NOT NULL DEFAULT 'default',
    user_id          text NOT NULL CHECK (user_id <> ''),
    outcome_id       uuid NOT NULL REFERENCES user_outcomes (id) ON DELETE CASCADE,
    is_active        boolean NOT NULL DEFAULT true,
    status           text NOT NULL CHECK (status IN ('running', 'completed', 'failed')),
    plan             json,
    metadata         json NOT NULL DEFAULT '{}',
    steps_taken      bigint NOT NULL DEFAULT 0 CHECK (steps_taken BETWEEN 0 AND 10),
    trace_expires_at timestamptz NOT NULL,
    trace_kept       boolean NOT NULL DEFAULT true,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    CHECK ((status = 'completed') = (plan IS NOT NULL)),
    CHECK (coalesce((metadata ->> 'steps_taken')::bigint, steps_taken) = steps_taken),
    CHECK (coalesce((metadata ->> 'total_time_ms')::bigint, 0) >= 0
           AND coalesce((metadata ->> 'thinking_time_ms')::bigint, 0) >= 0
           AND coalesce((metadata ->> 'tool_execution_time_ms')::bigint, 0) >= 0)
);
-- One active session per user. Older sessions stay for the history and are not active.
CREATE UNIQUE INDEX prioritizer_sessions_active ON prioritizer_sessions (project, user_id) WHERE is_active;
CREATE INDEX prioritizer_sessions_user ON prioritizer_sessions (project, user_id, created_at);
CREATE INDEX prioritizer_sessions_outcome ON prioritizer_sessions (outcome_id);
CREATE INDEX prioritizer_sessions_created ON prioritizer_sessions (created_at);
-- Sessions with stored reasoning, which is deleted when it expires.
CREATE INDEX prioritizer_sessions_expiring ON prioritizer_sessions (trace_expires_at) WHERE trace_kept;
CREATE TRIGGER prioritizer_sessions_touch BEFORE UPDATE ON prioritizer_sessions
    FOR EACH ROW EXECUTE FUNCTION prioritizer_touch();

-- A session that has ended keeps its status.
CREATE FUNCTION prioritizer_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status <> NEW.status AND OLD.status <> 'running' THEN
        RAISE EXCEPTION 'a session that is % cannot become %', OLD.status, NEW.status USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER prioritizer_sessions_transition BEFORE UPDATE OF status ON prioritizer_sessions
    FOR EACH ROW EXECUTE FUNCTION prioritizer_transition();
