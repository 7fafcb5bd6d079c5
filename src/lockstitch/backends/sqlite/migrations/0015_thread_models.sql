-- The order of lists by model. PostgreSQL has this index already.
CREATE INDEX threads_model ON threads (project, model, recent_at, id) WHERE model IS NOT NULL;
