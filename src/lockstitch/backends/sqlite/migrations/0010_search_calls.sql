-- A search also finds tool calls, tool results and errors. The next search fills the index again.
INSERT INTO text_search (text_search) VALUES ('delete-all');
UPDATE search_mark SET log_id = 0;
