-- Queries that differ on SQLite.

-- name: passages_by_words
SELECT p.source_id, p.number
FROM notebook_words w
JOIN notebook_passages p ON p.no = w.rowid
JOIN notebook_sources s ON s.id = p.source_id AND s.notebook_id = :notebook
WHERE notebook_words MATCH replace(:words, '|', ' OR ')
ORDER BY bm25(notebook_words, 2.0, 1.0), p.source_id, p.number
LIMIT :limit;
