-- The input of the prioritizer: outcomes, documents with their tasks, and dependencies between tasks.

-- Sets updated_at if an update does not set it.
CREATE FUNCTION prioritizer_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at THEN
        NEW.updated_at := clock_timestamp();
    END IF;
    RETURN NEW;
END $$;

CREATE TABLE user_outcomes (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    project    text NOT NULL DEFAULT 'default',
    user_id    text NOT NULL CHECK (user_id <> ''),
    statement  text NOT NULL CHECK (statement <> ''),
    is_active  boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX user_outcomes_user ON user_outcomes (project, user_id, created_at);
CREATE TRIGGER user_outcomes_touch BEFORE UPDATE ON user_outcomes
    FOR EACH ROW EXECUTE FUNCTION prioritizer_touch();

-- structured_output holds the tasks: {"tasks": [{"id", "title", …}, …]}.
CREATE TABLE processed_documents (
    id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    project           text NOT NULL DEFAULT 'default',
    user_id           text NOT NULL CHECK (user_id <> ''),
    title             text NOT NULL CHECK (title <> ''),
    source            text,
    markdown          text NOT NULL,
    structured_output json NOT NULL
        CHECK (coalesce(json_typeof(structured_output -> 'tasks'), '') = 'array'),
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX processed_documents_user ON processed_documents (project, user_id, created_at);
CREATE TRIGGER processed_documents_touch BEFORE UPDATE ON processed_documents
    FOR EACH ROW EXECUTE FUNCTION prioritizer_touch();

-- The ids of a user's tasks are unique, also if two files are stored at the same time. The lock is taken before a row is
-- written, so that two transactions cannot wait for each other.
CREATE FUNCTION prioritizer_check_task_ids() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('prioritizer' || chr(31) || NEW.project || chr(31) || NEW.user_id, 0));
    IF json_typeof(NEW.structured_output -> 'tasks') = 'array' AND EXISTS (
        SELECT FROM lockstitch.processed_documents AS other
        CROSS JOIN LATERAL json_array_elements(other.structured_output -> 'tasks') AS known
        WHERE other.project = NEW.project AND other.user_id = NEW.user_id AND other.source IS DISTINCT FROM NEW.source
          AND known ->> 'id' IN (SELECT task ->> 'id' FROM json_array_elements(NEW.structured_output -> 'tasks') AS task)
    ) THEN
        RAISE EXCEPTION 'another file of the user has a task with the same id'
            USING ERRCODE = 'unique_violation', CONSTRAINT = 'processed_documents_task_ids';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER processed_documents_task_ids BEFORE INSERT OR UPDATE OF structured_output, source ON processed_documents
    FOR EACH ROW EXECUTE FUNCTION prioritizer_check_task_ids();

-- The source waits for the target. document_id is the document that states the dependency, or NULL.
CREATE TABLE task_relationships (
    project           text NOT NULL DEFAULT 'default',
    user_id           text NOT NULL CHECK (user_id <> ''),
    source_task_id    text NOT NULL,
    target_task_id    text NOT NULL,
    relationship_type text NOT NULL CHECK (relationship_type IN ('prerequisite', 'blocks', 'related')),
    confidence        double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    detection         text NOT NULL DEFAULT 'manual' CHECK (detection IN ('manual', 'ai')),
    document_id       uuid REFERENCES processed_documents (id) ON DELETE CASCADE,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (project, user_id, source_task_id, target_task_id, relationship_type),
    CHECK (source_task_id <> target_task_id)
);
CREATE INDEX task_relationships_target ON task_relationships (project, user_id, target_task_id);
CREATE INDEX task_relationships_document ON task_relationships (document_id) WHERE document_id IS NOT NULL;
CREATE TRIGGER task_relationships_touch BEFORE UPDATE ON task_relationships
    FOR EACH ROW EXECUTE FUNCTION prioritizer_touch();

-- A changed document states its dependencies again, so the old ones are deleted.
CREATE FUNCTION prioritizer_forget_relationships() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM lockstitch.task_relationships WHERE document_id = NEW.id;
    RETURN NEW;
END $$;
CREATE TRIGGER processed_documents_anew AFTER UPDATE OF structured_output ON processed_documents
    FOR EACH ROW EXECUTE FUNCTION prioritizer_forget_relationships();
