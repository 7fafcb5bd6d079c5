-- The model calls of a run. Usage by model reads the calls of runs of the last two days, but not their messages.
-- SQLite has such an index already.
CREATE INDEX stitches_model_calls ON stitches (run_id, name)
    WHERE type = 'llm_call' OR (type = 'span' AND input_tokens IS NOT NULL);
