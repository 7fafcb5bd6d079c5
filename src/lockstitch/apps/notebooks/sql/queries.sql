-- Queries of notebooks that need more than one record. Every query is limited to one project.

-- name: notebook_new
-- Not a `put`, because the database assigns the id.
INSERT INTO notebooks (project, title, description, instructions, created_at, updated_at)
VALUES (:project, :title, :description, :instructions, :now, :now)
RETURNING {columns};

-- name: notebook_change
-- Writes only the named fields, because another caller may change the other fields at the same time.
UPDATE notebooks
SET title = CASE WHEN :with_title = 1 THEN :title ELSE title END,
    description = CASE WHEN :with_description = 1 THEN :description ELSE description END,
    instructions = CASE WHEN :with_instructions = 1 THEN :instructions ELSE instructions END,
    updated_at = CASE WHEN :now > updated_at THEN :now ELSE updated_at END
WHERE id = :id AND project = :project
RETURNING {columns};

-- name: notebook_touch
-- A new or deleted source counts as a change of the notebook.
UPDATE notebooks SET updated_at = :now WHERE id = :id AND project = :project;

-- name: notebook_remove
-- Deletes only a notebook without chats. The caller deletes the chats first, and a new chat may arrive in between.
DELETE FROM notebooks WHERE id = :id AND project = :project
    AND (:keep_sessions = 1 OR NOT EXISTS (SELECT 1 FROM notebook_sessions s WHERE s.notebook_id = :id))
RETURNING id;

-- name: notebook_counts
SELECT n.id,
       (SELECT count(*) FROM notebook_sources s WHERE s.notebook_id = n.id),
       (SELECT count(*) FROM notebook_sessions c WHERE c.notebook_id = n.id),
       (SELECT max(t.recent_at) FROM notebook_sessions c JOIN threads t ON t.id = c.thread_id WHERE c.notebook_id = n.id)
FROM notebooks n WHERE n.project = :project;

-- name: notebook_of_thread
SELECT {columns} FROM notebooks
WHERE id = (SELECT s.notebook_id FROM notebook_sessions s WHERE s.thread_id = :thread);

-- name: vectors
-- The vectors of a notebook that one embedder created. Vectors of different embedders cannot be compared.
SELECT v.source_id, v.number, v.vector
FROM notebook_sources s JOIN notebook_vectors v ON v.source_id = s.id
WHERE s.notebook_id = :notebook AND s.embedder = :embedder
ORDER BY s.created_at, s.id, v.number;

-- name: copied
SELECT 1;

-- name: finding_new
-- Assigns the next number of the thread. Returns no row if the passage has a number or another run took this number.
INSERT INTO notebook_findings (thread_id, number, source_id, passage, run_id, query, found_by, rank, among, at)
VALUES (:thread, (SELECT coalesce(max(number), 0) + 1 FROM notebook_findings WHERE thread_id = :thread),
        :source, :passage, :run, :query, :found_by, :rank, :among, :now)
ON CONFLICT DO NOTHING
RETURNING number;

-- name: chat_calls
-- The number of tool calls by run and tool from a position on. It reads no content.
SELECT run_id, name, count(*) FROM stitches
WHERE thread_id = :thread AND position >= :first AND type = 'tool_call' AND run_id IS NOT NULL
GROUP BY run_id, name;
