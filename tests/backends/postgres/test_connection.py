"""Every error of the driver is translated."""

import psycopg
import pytest
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout

from lockstitch.backends.postgres.connection import translate
from lockstitch.errors import (
    Conflict,
    LockstitchError,
    Refused,
    SchemaMismatch,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
)

STATES: list[tuple[str, type[LockstitchError]]] = [
    ("23505", Conflict),
    ("23503", Refused),
    ("23502", Refused),
    ("23514", Refused),
    ("22003", Refused),
    ("22021", Refused),
    ("22P05", Refused),
    ("22P02", Refused),
    ("54000", Refused),
    ("54001", Refused),
    ("53100", StoreFull),
    ("25006", StoreReadOnly),
    ("42501", StoreReadOnly),
    ("57P01", StoreUnreachable),
    ("57P02", StoreUnreachable),
    ("57P03", StoreUnreachable),
    ("53300", StoreUnreachable),
    ("08006", StoreUnreachable),
    ("28P01", StoreUnreachable),
    ("3D000", StoreUnreachable),
    ("42P01", SchemaMismatch),
    ("3F000", SchemaMismatch),
    ("XX001", StoreDamaged),
    ("XX002", StoreDamaged),
    ("57014", StoreError),
    ("26000", StoreError),
    ("53200", StoreError),
    ("XX000", StoreError),
]


@pytest.mark.parametrize(("state", "expected"), STATES)
def test_errors_are_translated_by_sqlstate(state: str, expected: type[LockstitchError]) -> None:
    error = translate(pg.lookup(state)("what the server said"), "postgresql://db/agents")
    assert type(error) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (psycopg.OperationalError("connection refused"), StoreUnreachable),
        (PoolTimeout("no connection"), StoreUnreachable),
        (PoolClosed("closed"), StoreUnreachable),
        (psycopg.DataError("text fields cannot contain NUL"), Refused),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), Refused),
        (OSError("no such host"), StoreUnreachable),
    ],
)
def test_errors_without_sqlstate_are_translated(error: Exception, expected: type[LockstitchError]) -> None:
    assert type(translate(error, "postgresql://db/agents")) is expected


def test_every_driver_error_is_translated() -> None:
    """No caller gets a psycopg.Error for any error of PostgreSQL."""
    classes = [kind for kind in vars(pg).values() if isinstance(kind, type) and issubclass(kind, psycopg.Error)]
    assert len(classes) > 200
    for kind in classes:
        assert isinstance(translate(kind("said"), "postgresql://db/agents"), LockstitchError)


def test_lockstitch_errors_are_not_translated() -> None:
    conflict = Conflict("unchanged")
    assert translate(conflict, "postgresql://db/agents") is conflict
