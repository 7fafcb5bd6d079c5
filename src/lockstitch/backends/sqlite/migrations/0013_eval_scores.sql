-- The mean score of each case of a finished evaluation, so that a comparison does not read all trials.
CREATE TABLE eval_scores (id TEXT PRIMARY KEY, project TEXT NOT NULL, scores TEXT NOT NULL);
