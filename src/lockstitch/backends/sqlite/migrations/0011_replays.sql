-- Threads of the kind replay. SQLite cannot change a constraint, and a copy of the table would delete what refers to it.
-- Its documentation allows to change the text of the schema if the stored rows stay valid, as they do here. The index
-- makes other connections read the schema again.
PRAGMA writable_schema = ON;
UPDATE sqlite_master SET sql = replace(sql, '(''chat'', ''goal'', ''task'', ''trace'')',
                                       '(''chat'', ''goal'', ''task'', ''trace'', ''replay'')')
WHERE type = 'table' AND name = 'threads';
PRAGMA writable_schema = RESET;
CREATE INDEX threads_replays ON threads (project, recent_at, id) WHERE kind = 'replay';
