"""The backends: files, SQLite and PostgreSQL, each behind the contract of `lockstitch.backend`."""
