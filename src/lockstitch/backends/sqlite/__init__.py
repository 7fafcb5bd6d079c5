"""The SQLite backend: one file, one writer per process with group commit, and concurrent readers."""
