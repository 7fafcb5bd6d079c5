-- The input of the prioritizer: outcomes, documents with their tasks, and dependencies between tasks.
-- Differs from PostgreSQL: a trigger cannot change the row that is being written, so it sets updated_at afterwards. The
-- default of a UUID is made of random bytes.

CREATE TABLE user_outcomes (
    id         TEXT NOT NULL PRIMARY KEY DEFAULT (lower(substr(hex(randomblob(4)), 1, 8) || '-' || hex(randomblob(2))
                   || '-4' || substr(hex(randomblob(2)), 2) || '-8' || substr(hex(randomblob(2)), 2) || '-'
                   || hex(randomblob(6)))),
    project    TEXT NOT NULL DEFAULT 'default',
    user_id    TEXT NOT NULL CHECK (user_id <> ''),
    statement  TEXT NOT NULL CHECK (statement <> ''),
    is_active  INTEGER NOT NULL DEFAULT 1 CHECK (is_active IN (0, 1)),
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    updated_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
);
CREATE INDEX user_outcomes_user ON user_outcomes (project, user_id, created_at);
CREATE TRIGGER user_outcomes_touch AFTER UPDATE ON user_outcomes WHEN new.updated_at IS old.updated_at BEGIN
    UPDATE user_outcomes SET updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now') WHERE id = new.id;
END;

-- structured_output holds the tasks: {"tasks": [{"id", "title", …}, …]}.
CREATE TABLE processed_documents (
    id                TEXT NOT NULL PRIMARY KEY,
    project           TEXT NOT NULL DEFAULT 'default',
    user_id           TEXT NOT NULL CHECK (user_id <> ''),
    title             TEXT NOT NULL CHECK (title <> ''),
    source            TEXT,
    markdown          TEXT NOT NULL,
    structured_output TEXT NOT NULL
        CHECK (json_valid(structured_output) AND json_type(structured_output, '$.tasks') IS 'array'),
    created_at        TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    updated_at        TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'))
);
CREATE INDEX processed_documents_user ON processed_documents (project, user_id, created_at);
CREATE TRIGGER processed_documents_touch AFTER UPDATE ON processed_documents WHEN new.updated_at IS old.updated_at BEGIN
    UPDATE processed_documents SET updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now') WHERE id = new.id;
END;

-- The ids of a user's tasks are unique, also if two files are stored at the same time.
CREATE TRIGGER processed_documents_new_task_ids AFTER INSERT ON processed_documents WHEN EXISTS (
    SELECT 1 FROM processed_documents AS other, json_each(other.structured_output, '$.tasks') AS known
    WHERE other.project = new.project AND other.user_id = new.user_id AND other.source IS NOT new.source
      AND known.value ->> '$.id' IN (SELECT task.value ->> '$.id' FROM json_each(new.structured_output, '$.tasks') AS task)
) BEGIN
    SELECT raise(ABORT, 'UNIQUE constraint failed: task ids of a user');
END;
CREATE TRIGGER processed_documents_task_ids AFTER UPDATE OF structured_output, source ON processed_documents WHEN EXISTS (
    SELECT 1 FROM processed_documents AS other, json_each(other.structured_output, '$.tasks') AS known
    WHERE other.project = new.project AND other.user_id = new.user_id AND other.source IS NOT new.source
      AND known.value ->> '$.id' IN (SELECT task.value ->> '$.id' FROM json_each(new.structured_output, '$.tasks') AS task)
) BEGIN
    SELECT raise(ABORT, 'UNIQUE constraint failed: task ids of a user');
END;

-- The source waits for the target. document_id is the document that states the dependency, or NULL.
CREATE TABLE task_relationships (
    project           TEXT NOT NULL DEFAULT 'default',
    user_id           TEXT NOT NULL CHECK (user_id <> ''),
    source_task_id    TEXT NOT NULL,
    target_task_id    TEXT NOT NULL,
    relationship_type TEXT NOT NULL CHECK (relationship_type IN ('prerequisite', 'blocks', 'related')),
    confidence        REAL NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    detection         TEXT NOT NULL DEFAULT 'manual' CHECK (detection IN ('manual', 'ai')),
    document_id       TEXT REFERENCES processed_documents (id) ON DELETE CASCADE,
    created_at        TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    updated_at        TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    PRIMARY KEY (project, user_id, source_task_id, target_task_id, relationship_type),
    CHECK (source_task_id <> target_task_id)
) WITHOUT ROWID;
CREATE INDEX task_relationships_target ON task_relationships (project, user_id, target_task_id);
CREATE INDEX task_relationships_document ON task_relationships (document_id) WHERE document_id IS NOT NULL;
CREATE TRIGGER task_relationships_touch AFTER UPDATE ON task_relationships WHEN new.updated_at IS old.updated_at BEGIN
    UPDATE task_relationships SET updated_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
    WHERE project = new.project AND user_id = new.user_id AND source_task_id = new.source_task_id
      AND target_task_id = new.target_task_id AND relationship_type = new.relationship_type;
END;

-- A changed document states its dependencies again, so the old ones are deleted.
CREATE TRIGGER processed_documents_anew AFTER UPDATE OF structured_output ON processed_documents BEGIN
    DELETE FROM task_relationships WHERE document_id = new.id;
END;
