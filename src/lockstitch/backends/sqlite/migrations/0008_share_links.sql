-- Links that expire. Links of LangSmith clients do not.
ALTER TABLE share_links ADD COLUMN expires_at TEXT;
