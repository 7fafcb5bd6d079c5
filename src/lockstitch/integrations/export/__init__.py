"""What leaves the record: a lens as a SQLite file, a run as LangSmith has it, a tree of threads as a bundle."""
