-- Notebooks in the Agno lens: the two notebook tables of the document, and the sources as knowledge.
-- `project` is needed, because a session_id is unique only within a project.

CREATE VIEW notebooks AS
SELECT n.id, n.title, n.description, n.instructions, n.created_at, n.updated_at, n.project
FROM lockstitch.notebooks n;

CREATE VIEW notebook_sessions AS
SELECT s.id, s.notebook_id, s.session_id, s.created_at, s.project
FROM lockstitch.notebook_sessions s;

CREATE VIEW lens_citations AS
SELECT c.run_id,
       c.place,
       jsonb_build_object('number', c.number, 'document_title', coalesce(s.title, s.name), 'file_name', s.name,
                          'source_id', f.source_id, 'page', p.page, 'heading', p.heading, 'line', p.line,
                          'start', p.start_at, 'end', p.end_at, 'cited_text', p.text) AS citation
FROM lockstitch.notebook_citations c
JOIN lockstitch.notebook_findings f ON f.thread_id = c.thread_id AND f.number = c.number
LEFT JOIN lockstitch.notebook_sources s ON s.id = f.source_id
LEFT JOIN lockstitch.notebook_passages p ON p.source_id = f.source_id AND p.number = f.passage;

CREATE VIEW agno_knowledge AS
SELECT * FROM lens_own_agno_knowledge
UNION ALL
SELECT s.id::text,
       s.name,
       s.title,
       jsonb_build_object('sha256', s.sha256, 'characters', s.characters, 'pages', s.pages, 'passages', s.passages,
                          'embedder', s.embedder, 'project', s.project),
       s.kind,
       s.size,
       'notebook ' || s.notebook_id,
       (SELECT count(*) FROM lockstitch.notebook_findings f WHERE f.source_id = s.id),
       'completed',
       NULL,
       s.url,
       floor(extract(epoch FROM s.created_at))::bigint,
       floor(extract(epoch FROM s.created_at))::bigint
FROM lockstitch.notebook_sources s;
