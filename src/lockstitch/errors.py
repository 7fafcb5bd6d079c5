"""Every error a user of Lockstitch can meet.

    LockstitchError
    ├── Refused            (ValueError)   the content or the call is not acceptable; nothing was written
    ├── NotFound           (LookupError)
    ├── Unreadable         (ValueError)   a file or body of somebody else's is not what it should be
    ├── BodyTooExpensive                  reading a body would cost more than the server allows for one body
    ├── Conflict                          somebody else wrote first; nothing was written
    │   ├── ThreadBusy                    another worker holds the thread
    │   ├── ThreadWaiting                 the thread waits for something else first
    │   ├── ThreadEnded                   a terminal thread is not reopened
    │   └── KeyTaken                      the key names another thread already
    └── StoreError
        ├── StoreUnreachable (ConnectionError)
        │   └── OutcomeUnknown            the commit may or may not have happened
        ├── StoreDamaged
        ├── StoreReadOnly    (PermissionError)
        ├── StoreFull        (OSError)
        └── SchemaMismatch                the store is newer or older than this code

The docstring of a class is its message when none is given.
"""

from typing import ClassVar
from uuid import UUID


class LockstitchError(Exception):
    """Something went wrong in Lockstitch."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or " ".join((type(self).__doc__ or "").split()))


class Refused(LockstitchError, ValueError):
    """The content cannot be stored; nothing was written."""

    exit_code = 2


class NotFound(LockstitchError, LookupError):
    """There is no such record in this store."""

    exit_code = 3


class Unreadable(LockstitchError, ValueError):
    """What another system wrote cannot be read."""

    def __init__(self, name: str, reason: str = "", *, where: str | None = None, cut: bool = False) -> None:
        super().__init__(f"{name}{f', {where}' if where else ''}{f': {reason}' if reason else ''}")
        self.name = name
        self.reason = reason
        self.where = where
        self.cut = cut
        """Whether it is the beginning of something longer: all that came before its end was read."""


class BodyTooExpensive(LockstitchError):
    """Reading the body costs more than the server allows for one body. Send smaller batches."""


class Conflict(LockstitchError):
    """Somebody else wrote to this thread first; nothing was written. Read the thread again and retry."""

    exit_code = 4

    def __init__(self, message: str | None = None, *, thread_id: UUID | None = None, reason: str | None = None) -> None:
        super().__init__(message)
        self.thread_id = thread_id
        self.reason = reason


class ThreadBusy(Conflict):
    """Another worker holds this thread; wait for it or stop it first."""


class ThreadWaiting(Conflict):
    """This thread waits for something else first."""


class ThreadEnded(Conflict):
    """This thread has ended; only `retry` reopens a failed or cancelled one."""


class KeyTaken(Conflict):
    """This key names another thread of the project already."""


class StoreError(LockstitchError):
    """The store cannot do this now."""

    exit_code = 5


class StoreUnreachable(StoreError, ConnectionError):
    """The store cannot be reached. Check the URL and that the server is running."""


class OutcomeUnknown(StoreUnreachable):
    """The connection broke during a commit: it may or may not have happened. Read the thread to find out."""


class StoreDamaged(StoreError):
    """The store's files are damaged. Restore a backup, or run `lockstitch doctor` to see what can be read."""


class StoreReadOnly(StoreError, PermissionError):
    """The store cannot be written. Check the permissions of its folder."""


class StoreFull(StoreError, OSError):
    """The disk is full; nothing was written. Free some room and try again."""


class SchemaMismatch(StoreError):
    """The store's schema does not fit this version of Lockstitch."""
