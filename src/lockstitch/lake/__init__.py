"""The lake: the history of a record as Delta Lake tables in a folder or a bucket. Needs the extra `lake`."""
