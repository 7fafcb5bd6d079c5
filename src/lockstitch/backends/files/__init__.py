"""Files: a folder that people read with cat and jq, as safe as a database, on one host."""

from lockstitch.backends.files.backend import FilesBackend

__all__ = ["FilesBackend"]
