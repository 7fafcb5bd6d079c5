"""SQLite: one file, one writer with group commit, readers beside it."""
