-- The questions and acts of notebooks that one record does not answer. Every one is asked for one project.

-- name: notebook_new
-- The database gives the id, so this is no `put`.
INSERT INTO notebooks (project, title, description, instructions, created_at, updated_at)
VALUES (:project, :title, :description, :instructions, :now, :now)
RETURNING {columns};

-- name: notebook_change
-- What is not named is not written, since somebody else may be changing it.
UPDATE notebooks
SET title = CASE WHEN :with_title = 1 THEN :title ELSE title END,
    description = CASE WHEN :with_description = 1 THEN :description ELSE description END,
    instructions = CASE WHEN :with_instructions = 1 THEN :instructions ELSE instructions END,
    updated_at = CASE WHEN :now > updated_at THEN :now ELSE updated_at END
WHERE id = :id AND project = :project
RETURNING {columns};

-- name: notebook_touch
-- A source that comes or goes makes a notebook a recent one.
UPDATE notebooks SET updated_at = :now WHERE id = :id AND project = :project;

-- name: notebook_remove
-- Only one without chats: whoever removes it removes those first, and a new one may have come meanwhile.
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
-- What the passages of a notebook mean to one embedder; those of another are not compared.
SELECT v.source_id, v.number, v.vector
FROM notebook_sources s JOIN notebook_vectors v ON v.source_id = s.id
WHERE s.notebook_id = :notebook AND s.embedder = :embedder
ORDER BY s.created_at, s.id, v.number;

-- name: copied
SELECT 1;

-- name: finding_new
-- The next number of the thread, unless the passage has one or somebody else took it: then there is no row.
INSERT INTO notebook_findings (thread_id, number, source_id, passage, run_id, query, found_by, rank, among, at)
VALUES (:thread, (SELECT coalesce(max(number), 0) + 1 FROM notebook_findings WHERE thread_id = :thread),
        :source, :passage, :run, :query, :found_by, :rank, :among, :now)
ON CONFLICT DO NOTHING
RETURNING number;

-- name: chat_calls
-- How often which run of a chat called which tool, from a position on: without what the calls said.
SELECT run_id, name, count(*) FROM stitches
WHERE thread_id = :thread AND position >= :first AND type = 'tool_call' AND run_id IS NOT NULL
GROUP BY run_id, name;
