-- Mirrors of foreign traces, and what lenses look things up by.

-- The id that another system gave to what a run mirrors; a lens shows it in place of ours.
ALTER TABLE runs ADD COLUMN foreign_id text;
CREATE INDEX runs_shown ON runs ((coalesce(foreign_id, id::text)));

-- Stitches of a mirror hang below another one or below their run. They come in any order and are replaced in place, so
-- they are no list.
DROP INDEX stitches_first;
CREATE UNIQUE INDEX stitches_first ON stitches (thread_id)
    WHERE previous_id IS NULL AND parent_id IS NULL AND type IN ('llm_call', 'tool_call', 'thread_result');

-- Who told of a model call: two instrumentations that tell of one are counted once.
CREATE TABLE model_calls (
    project text NOT NULL, provider text NOT NULL, response_id text NOT NULL,
    thread_id uuid NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    stitch_id uuid NOT NULL, at timestamptz NOT NULL,
    PRIMARY KEY (project, provider, response_id, stitch_id)
);
CREATE INDEX model_calls_thread ON model_calls (thread_id);

-- A turn is a run and the runs of its members; a lens that shows it as one finds them by this.
CREATE INDEX runs_of_turn ON runs (thread_id, turn);
-- The name under which a lens shows a thread.
CREATE INDEX threads_shown ON threads ((coalesce(key, id::text)));

-- Model calls of removed runs whose price nobody knows: without them a day would change when its runs are purged.
ALTER TABLE metrics ADD COLUMN unpriced bigint NOT NULL DEFAULT 0;
