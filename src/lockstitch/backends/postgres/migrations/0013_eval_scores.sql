-- The mean score of each case of a finished evaluation, so that a comparison does not read all trials.
CREATE TABLE eval_scores (id uuid PRIMARY KEY, project text NOT NULL, scores json NOT NULL);
