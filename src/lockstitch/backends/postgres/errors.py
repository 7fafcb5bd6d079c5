"""What PostgreSQL and its driver say, as errors of Lockstitch."""

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout

from lockstitch.errors import (
    Conflict,
    KeyTaken,
    LockstitchError,
    OutcomeUnknown,
    Refused,
    SchemaMismatch,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
)

AGAIN = (pg.DeadlockDetected, pg.SerializationFailure)
"""PostgreSQL undid the transaction in favour of another one; the same again will do."""

_UNREACHABLE = (
    pg.AdminShutdown,
    pg.CrashShutdown,
    pg.CannotConnectNow,
    pg.DatabaseDropped,
    pg.TooManyConnections,
    pg.InvalidPassword,
    pg.InvalidAuthorizationSpecification,
    pg.InvalidCatalogName,
    pg.IdleInTransactionSessionTimeout,
    OSError,
)
_OTHER_SCHEMA = (pg.UndefinedTable, pg.InvalidSchemaName, pg.UndefinedColumn, pg.UndefinedFunction)
_MIXED_UP = (pg.InvalidSqlStatementName, pg.DuplicatePreparedStatement)
_UNSTORABLE = (psycopg.DataError, UnicodeError, pg.ProgramLimitExceeded, pg.StatementTooComplex)
_DAMAGED = (pg.DataCorrupted, pg.IndexCorrupted)


def translate(exc: Exception, store: str) -> LockstitchError:
    """The error that tells a user what to do. `store` is the URL without its password."""
    if isinstance(exc, LockstitchError):
        return exc
    if isinstance(exc, pg.UniqueViolation):
        return _taken(exc.diag.constraint_name)
    if isinstance(exc, pg.ForeignKeyViolation):
        return Refused("A record refers to a thread or run that is not in this store; nothing was written.")
    if isinstance(exc, psycopg.IntegrityError):
        rule = exc.diag.constraint_name or exc.diag.column_name or _first_line(exc)
        return Refused(f"A rule of the record is broken ({rule}); nothing was written.")
    if isinstance(exc, _UNSTORABLE):
        return Refused(f"A value cannot be stored: {_first_line(exc)}. Nothing was written.")
    return _trouble(exc, store)


def unknown(store: str) -> OutcomeUnknown:
    """What is said when the connection broke after a commit had been sent."""
    return OutcomeUnknown(
        f"The connection to {store} broke during a commit: it may or may not have happened. "
        "Read the thread to find out."
    )


def _taken(constraint: str | None) -> Conflict:
    if constraint == "threads_key":
        return KeyTaken()
    return Conflict(f"Somebody else wrote this first ({constraint}); nothing was written.")


def _trouble(exc: Exception, store: str) -> StoreError:
    """What is wrong with the server rather than with what was asked of it."""
    said = _first_line(exc)
    if isinstance(exc, pg.DiskFull):
        return StoreFull(f"The disk of {store} is full; nothing was written. Free some room and try again.")
    if isinstance(exc, pg.ReadOnlySqlTransaction):
        return StoreReadOnly(f"{store} only allows reading. Connect to the primary server.")
    if isinstance(exc, pg.InsufficientPrivilege):
        return StoreReadOnly(f"{store} does not allow this ({said}). Give its user the rights on schema lockstitch.")
    if isinstance(exc, _OTHER_SCHEMA):
        return SchemaMismatch(f"{store} is not migrated to this version ({said}). Run `lockstitch migrate`.")
    if isinstance(exc, _DAMAGED):
        return StoreDamaged(f"{store} is damaged ({said}). Restore a backup; check the server's disk first.")
    if isinstance(exc, _MIXED_UP):
        return StoreError(
            f"A pooler before {store} mixes up prepared statements ({said}). Add ?prepare=off to the URL."
        )
    if isinstance(exc, PoolClosed):
        return StoreUnreachable("This store is closed.")
    if isinstance(exc, PoolTimeout):
        return StoreUnreachable(f"{store} gives no connection. Raise its max_connections, or lower pool=N in the URL.")
    # 08 is the class of broken connections; none at all means that the driver said it, not the server.
    broken = isinstance(exc, psycopg.OperationalError) and (exc.sqlstate or "08").startswith("08")
    if broken or isinstance(exc, _UNREACHABLE):
        return StoreUnreachable(f"{store} cannot be reached ({said}). Check the URL and that the server is running.")
    return StoreError(f"PostgreSQL refused: {said}")


def _first_line(exc: Exception) -> str:
    diagnosis = exc.diag.message_primary if isinstance(exc, psycopg.Error) else None
    return diagnosis or (str(exc).strip().splitlines() or [type(exc).__name__])[0]
