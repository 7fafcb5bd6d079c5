-- Mirrors of foreign traces, and what lenses look things up by.

-- The id that another system gave to what a run mirrors; a lens shows it in place of ours.
ALTER TABLE run_rows ADD COLUMN foreign_id TEXT;
CREATE INDEX runs_shown ON run_rows (coalesce(foreign_id, id));
DROP VIEW runs;
CREATE VIEW runs AS
SELECT r.id, t.id AS thread_id, r.sequence, r.turn, r.parent_run_id, r.agent, r.version, r.role, r.status,
       r.stop_reason, r.first_position, r.input_position, r.output_position, r.output, r.state, r.model, r.provider,
       r.input_tokens, r.output_tokens, r.cache_read_tokens, r.cache_write_tokens, r.cost, r.total_cost, r.steps,
       r.error, r.tags, r.metadata, r.extras, r.source, r.foreign_id, r.started_at, r.completed_at
FROM run_rows r JOIN threads t ON t.no = r.thread_no;

-- Stitches of a mirror hang below another one or below their run. They come in any order and are replaced in place, so
-- they are no list.
DROP INDEX stitches_first;
CREATE UNIQUE INDEX stitches_first ON stitch_rows (thread_no)
    WHERE previous IS NULL AND previous_id IS NULL AND parent_id IS NULL
      AND type IN ('llm_call', 'tool_call', 'thread_result');

-- Who told of a model call: two instrumentations that tell of one are counted once.
CREATE TABLE model_calls (
    project TEXT NOT NULL, provider TEXT NOT NULL, response_id TEXT NOT NULL,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    stitch_id TEXT NOT NULL, at TEXT NOT NULL,
    PRIMARY KEY (project, provider, response_id, stitch_id)
);
CREATE INDEX model_calls_thread ON model_calls (thread_id);

-- A turn is a run and the runs of its members; a lens that shows it as one finds them by this.
CREATE INDEX runs_of_turn ON run_rows (thread_no, turn);
-- The name under which a lens shows a thread.
CREATE INDEX threads_shown ON threads (coalesce(key, id));

-- Model calls of removed runs whose price nobody knows: without them a day would change when its runs are purged.
ALTER TABLE metrics ADD COLUMN unpriced INTEGER NOT NULL DEFAULT 0;
