-- Versions of datasets. An example has its current state. Its earlier states are in past_examples, each with the versions
-- from `version` until before `until`.
ALTER TABLE datasets ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE examples ADD COLUMN name TEXT;
ALTER TABLE examples ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
CREATE TABLE past_examples (
    id TEXT NOT NULL, project TEXT NOT NULL, dataset_id TEXT NOT NULL, name TEXT,
    inputs TEXT NOT NULL, outputs TEXT, metadata TEXT NOT NULL, splits TEXT NOT NULL, source_run_id TEXT,
    version INTEGER NOT NULL, until INTEGER NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
    PRIMARY KEY (dataset_id, id, version)
);
CREATE INDEX past_examples_dataset ON past_examples (dataset_id, created_at, id);
CREATE TABLE dataset_versions (
    dataset_id TEXT NOT NULL, number INTEGER NOT NULL, project TEXT NOT NULL, examples INTEGER NOT NULL,
    added INTEGER NOT NULL, replaced INTEGER NOT NULL, removed INTEGER NOT NULL, created_at TEXT NOT NULL,
    PRIMARY KEY (dataset_id, number)
);
-- The records of cases belong to that of their evaluation.
ALTER TABLE evals ADD COLUMN parent_id TEXT;
ALTER TABLE evals ADD COLUMN position INTEGER;
ALTER TABLE evals ADD COLUMN dataset_id TEXT;
CREATE INDEX evals_list ON evals (project, type, created_at, id);
CREATE INDEX evals_name ON evals (project, name, type, created_at, id);
CREATE INDEX evals_dataset ON evals (dataset_id, created_at, id) WHERE dataset_id IS NOT NULL;
CREATE INDEX evals_parent ON evals (parent_id, position, id) WHERE parent_id IS NOT NULL;
