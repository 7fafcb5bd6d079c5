"""Every error a user of Lockstitch can meet.

    LockstitchError
    ├── Refused            (ValueError)   the content or the call is not acceptable; nothing was written
    ├── NotFound           (LookupError)
    ├── Unreadable         (ValueError)   a file or body of another system has the wrong format
    ├── BodyTooExpensive                  reading a body would cost more than the server allows for one body
    ├── Conflict                          another writer was first; nothing was written
    │   ├── StalePosition                 another writer appended first; read the thread again and retry
    │   ├── StaleFence                    another worker claimed the thread since it was read
    │   ├── UnseenDeliveries              the inbox has deliveries that the writer has not read
    │   ├── CancelRequested               a cancel is requested, so the thread creates no children
    │   ├── ThreadDeleted                 the thread no longer exists
    │   ├── AlreadyStarted                a run that may start once has started
    │   ├── AlreadyAnswered               the call has a different answer
    │   ├── RunInterrupted                the input is stored, but the run did not finish in this process
    │   ├── MessageIdReused               another message was accepted with this id
    │   ├── ThreadBusy                    the thread cannot be executed here now
    │   │   ├── ThreadHeld                another worker holds the thread
    │   │   ├── LimitReached              a concurrency limit leaves no room for the thread
    │   │   ├── WorkerDeclaredDead        the lease of this process expired
    │   │   └── TakenOver                 another worker took the thread over while its run executed here
    │   ├── ThreadWaiting                 the open run waits for something else
    │   │   └── NoOpenRun                 no open run waits for a reply
    │   ├── ThreadEnded                   a thread that has ended accepts no input
    │   └── KeyTaken                      the key belongs to another thread
    └── StoreError
        ├── StoreUnreachable (ConnectionError)
        │   └── OutcomeUnknown            the commit may or may not be stored
        ├── StoreDamaged
        ├── StoreReadOnly    (PermissionError)
        ├── StoreFull        (OSError)
        └── SchemaMismatch                the store is newer or older than this code

The docstring of a class is its default message. Code handles conflicts by class; `reason` is for logs and HTTP.
"""

from typing import ClassVar
from uuid import UUID


class LockstitchError(Exception):
    """Something went wrong in Lockstitch."""

    exit_code: ClassVar[int] = 1
    wire_name: ClassVar[str] = "LockstitchError"
    """The documented name of the error: the title over HTTP, the type in the log. By default the name of the class."""

    def __init_subclass__(cls) -> None:
        if "wire_name" not in cls.__dict__:
            cls.wire_name = cls.__name__

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or " ".join((type(self).__doc__ or "").split()))


class Refused(LockstitchError, ValueError):
    """The request is not valid. Nothing was written."""

    exit_code = 2


class NotFound(LockstitchError, LookupError):
    """There is no such record in this store."""

    exit_code = 3


class Unreadable(LockstitchError, ValueError):
    """A record of another system cannot be read."""

    def __init__(self, name: str, reason: str = "", *, where: str | None = None, cut: bool = False) -> None:
        super().__init__(f"{name}{f', {where}' if where else ''}{f': {reason}' if reason else ''}")
        self.name = name
        self.reason = reason
        self.where = where
        self.cut = cut
        """True if the record is truncated and everything before the cut was read."""


class BodyTooExpensive(LockstitchError):
    """Reading the body costs more than the server allows for one body. Send smaller batches."""


class Conflict(LockstitchError):
    """Another writer changed this thread first. Nothing was written. Read the thread again and retry."""

    exit_code = 4
    reason: ClassVar[str | None] = None
    """A word for the class, for logs and HTTP."""

    def __init__(self, message: str | None = None, *, thread_id: UUID | None = None) -> None:
        super().__init__(message)
        self.thread_id = thread_id


class StalePosition(Conflict):
    """Another writer appended first. Nothing was written. Read the thread again and retry."""

    wire_name = "Conflict"
    reason = "position"


class StaleFence(Conflict):
    """Another worker claimed this thread since it was read. Nothing was written."""

    wire_name = "Conflict"
    reason = "fence"


class UnseenDeliveries(Conflict):
    """This thread has unread deliveries. Read the inbox first. Nothing was written."""

    wire_name = "Conflict"
    reason = "delivered"


class CancelRequested(Conflict):
    """A cancel is requested for this thread, so it cannot create children. Nothing was written."""

    wire_name = "Conflict"
    reason = "cancelled"


class ThreadDeleted(Conflict):
    """This thread no longer exists. Nothing was written."""

    wire_name = "Conflict"
    reason = "gone"


class AlreadyStarted(Conflict):
    """This run was started before. It is not started again."""

    wire_name = "Conflict"
    reason = "begun"


class AlreadyAnswered(Conflict):
    """This call has a different answer. Nothing was changed."""

    wire_name = "Conflict"
    reason = "answered"


class RunInterrupted(Conflict):
    """The input is stored, but the run did not finish in this process. Resume the thread."""

    wire_name = "Conflict"
    reason = "cut_off"


class MessageIdReused(Conflict):
    """Another message was accepted with this id. Nothing was changed."""

    wire_name = "Conflict"
    reason = "message_id"


class ThreadBusy(Conflict):
    """Another worker holds this thread. Wait until it is released, or stop that worker."""


class ThreadHeld(ThreadBusy):
    """Another worker holds this thread. Wait until it is released, or stop that worker."""

    wire_name = "ThreadBusy"
    reason = "holder"

    def __init__(
        self,
        message: str | None = None,
        *,
        thread_id: UUID | None = None,
        pid: int | None = None,
        host: str | None = None,
        lease_remaining: float | None = None,
    ) -> None:
        super().__init__(message, thread_id=thread_id)
        self.pid = pid
        """The process that holds the thread, if it is known."""
        self.host = host
        self.lease_remaining = lease_remaining
        """Seconds until the lease of that process expires without a heartbeat."""


class LimitReached(ThreadBusy):
    """A concurrency limit leaves no room for this thread. It waits until another one finishes or pauses."""

    wire_name = "ThreadBusy"
    reason = "limit"


class WorkerDeclaredDead(ThreadBusy):
    """The lease of this process expired and it was declared dead. Other workers took its threads."""

    wire_name = "ThreadBusy"
    reason = "dead"


class TakenOver(ThreadBusy):
    """Another worker took this thread over while its run executed here. The run continues there."""

    wire_name = "ThreadBusy"
    reason = "taken_over"


class ThreadWaiting(Conflict):
    """This thread waits for something else first."""

    reason = "waiting"


class NoOpenRun(ThreadWaiting):
    """This thread has no open run that waits for a reply."""

    wire_name = "ThreadWaiting"
    reason = "idle"


class ThreadEnded(Conflict):
    """This thread has ended. Use retry() to reopen a failed or cancelled thread."""


class KeyTaken(Conflict):
    """This key belongs to another thread of the project."""


class StoreError(LockstitchError):
    """The store cannot do this now."""

    exit_code = 5


class StoreUnreachable(StoreError, ConnectionError):
    """The store cannot be reached. Check the URL and that the server is running."""


class OutcomeUnknown(StoreUnreachable):
    """The connection broke during a commit. The commit may or may not be stored. Read the thread to find out."""


class StoreDamaged(StoreError):
    """The store's files are damaged. Restore a backup, or run `lockstitch doctor` to see what can be read."""


class StoreReadOnly(StoreError, PermissionError):
    """The store cannot be written. Check the permissions of its folder."""


class StoreFull(StoreError, OSError):
    """The disk is full; nothing was written. Free some room and try again."""


class SchemaMismatch(StoreError):
    """The store's schema does not fit this version of Lockstitch."""


def wire_name_of(exc: BaseException) -> str:
    """Return the name of an error as the log and HTTP have it."""
    return exc.wire_name if isinstance(exc, LockstitchError) else type(exc).__name__


def conflict_class(reason: object) -> type[Conflict] | None:
    """Return the class of conflicts with this reason, if there is one."""
    classes: list[type[Conflict]] = [Conflict]
    for cls in classes:
        if cls.reason == reason and reason is not None:
            return cls
        classes += cls.__subclasses__()
    return None


def missing_extra(exc: ModuleNotFoundError, subject: str, extra: str) -> ModuleNotFoundError:
    """Return the error for a package that is not installed, with the command that installs it.

    Args:
        exc: Error of the import.
        subject: Part of Lockstitch that needs the package, as the subject of a sentence.
        extra: Extra that has the package.

    Returns:
        The error to raise. An error of a module of Lockstitch is returned unchanged.
    """
    if (exc.name or "").partition(".")[0] in ("", "lockstitch"):
        return exc
    return ModuleNotFoundError(
        f"{subject} needs the package {exc.name}. Run: pip install 'lockstitch[{extra}]'", name=exc.name
    )
