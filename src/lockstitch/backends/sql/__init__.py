"""Shared parts of the SQL backends: queries, row conversion, and operations as scripts that any connection can run."""
