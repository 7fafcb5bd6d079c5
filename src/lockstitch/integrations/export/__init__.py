"""Exports: a lens as a SQLite file, a run in LangSmith format, a tree of threads as a bundle."""
