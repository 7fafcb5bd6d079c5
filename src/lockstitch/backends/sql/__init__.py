"""What the SQL backends share: queries, rows, and the verbs as scripts that either kind of connection can run."""
