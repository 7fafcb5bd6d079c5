"""Storage backends: files, SQLite and PostgreSQL. Each implements the contract of `lockstitch.backend`."""
