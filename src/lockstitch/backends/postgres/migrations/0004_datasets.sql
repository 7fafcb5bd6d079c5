-- Versions of datasets. An example has its current state. Its earlier states are in past_examples, each with the versions
-- from `version` until before `until`.
ALTER TABLE datasets ADD COLUMN version bigint NOT NULL DEFAULT 0;
ALTER TABLE examples ADD COLUMN name text;
ALTER TABLE examples ADD COLUMN version bigint NOT NULL DEFAULT 0;
CREATE TABLE past_examples (
    id uuid NOT NULL, project text NOT NULL, dataset_id uuid NOT NULL, name text,
    inputs json NOT NULL, outputs json, metadata json NOT NULL, splits json NOT NULL, source_run_id uuid,
    version bigint NOT NULL, until bigint NOT NULL, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL,
    PRIMARY KEY (dataset_id, id, version)
);
CREATE INDEX past_examples_dataset ON past_examples (dataset_id, created_at, id);
CREATE TABLE dataset_versions (
    dataset_id uuid NOT NULL, number bigint NOT NULL, project text NOT NULL, examples bigint NOT NULL,
    added bigint NOT NULL, replaced bigint NOT NULL, removed bigint NOT NULL, created_at timestamptz NOT NULL,
    PRIMARY KEY (dataset_id, number)
);
-- The records of cases belong to that of their evaluation.
ALTER TABLE evals ADD COLUMN parent_id uuid;
ALTER TABLE evals ADD COLUMN position bigint;
ALTER TABLE evals ADD COLUMN dataset_id uuid;
CREATE INDEX evals_list ON evals (project, type, created_at, id);
CREATE INDEX evals_name ON evals (project, name, type, created_at, id);
CREATE INDEX evals_dataset ON evals (dataset_id, created_at, id) WHERE dataset_id IS NOT NULL;
CREATE INDEX evals_parent ON evals (parent_id, position, id) WHERE parent_id IS NOT NULL;
