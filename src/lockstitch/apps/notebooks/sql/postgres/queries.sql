-- Queries that differ on PostgreSQL.

-- name: passages_by_words
-- Differs: ts_rank ignores how rare a word is, so each word is ranked separately and weighted by its rarity.
WITH wanted AS (SELECT to_tsquery('simple', replace(replace(word, '"', ''), '*', ':*')) AS query
                FROM string_to_table(:words, '|') AS word),
     hits AS (SELECT p.source_id, p.number, ts_rank(p.words, w.query, 1) AS weight,
                     count(*) OVER (PARTITION BY w.query) AS spread
              FROM wanted w
              JOIN notebook_passages p ON p.words @@ w.query
              JOIN notebook_sources s ON s.id = p.source_id AND s.notebook_id = :notebook),
     whole AS (SELECT coalesce(sum(passages), 0) AS passages FROM notebook_sources WHERE notebook_id = :notebook)
SELECT h.source_id, h.number
FROM hits h CROSS JOIN whole
GROUP BY h.source_id, h.number
ORDER BY sum(h.weight * ln(1 + whole.passages::float8 / h.spread)) DESC, h.source_id, h.number
LIMIT :limit;

-- name: copied
-- The next ids come after those that were copied.
SELECT setval(pg_get_serial_sequence('lockstitch.notebooks', 'id'), greatest(1, (SELECT max(id) FROM notebooks))),
       setval(pg_get_serial_sequence('lockstitch.notebook_sessions', 'id'),
              greatest(1, (SELECT max(id) FROM notebook_sessions)));
