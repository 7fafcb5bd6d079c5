"""The file backend: a folder of readable JSON files, transactional, for the processes of one host."""

from lockstitch.backends.files.backend import FilesBackend

__all__ = ["FilesBackend"]
