"""A plugin of pytest that gives tests of Agno's SQLite database the one of Lockstitch. `AGNO_DB=own` changes nothing.

AGNO_DB=lockstitch python -m pytest -p frameworks.agno.swap tests/integration/db/sqlite
"""

# Agno is not a development dependency.
# pyright: basic, reportMissingImports=false

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import agno.db.sqlite
import agno.db.sqlite.sqlite
import pytest

from lockstitch.integrations.agno import LockstitchDb

_open: list[Any] = []


def database(db_file: str | None = None, **_: Any) -> Any:
    """Return a database on a store below the file of Agno's database."""
    folder = Path(tempfile.mkdtemp()) if db_file is None else Path(f"{db_file}.lockstitch")
    folder.mkdir(exist_ok=True)
    db = _Database.open(f"sqlite:///{folder}/store.db")
    _open.append(db)
    return db


class _Database(LockstitchDb):
    """A database with the members that the fixtures of the tests use to delete rows."""

    db_engine = None

    @contextmanager
    def Session(self) -> Any:  # noqa: N802
        yield _Session()

    def _get_table(self, *_: Any, **__: Any) -> None:
        return None


class _Session:
    """A session of SQLAlchemy that does nothing. Each test has its own store."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


if os.environ.get("AGNO_DB", "lockstitch") != "own":
    agno.db.sqlite.SqliteDb = agno.db.sqlite.sqlite.SqliteDb = database


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Close the databases of a test."""
    while _open:
        _open.pop().close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests that read a trace with SQL read it with the method of the database."""
    modules: set[Any] = {item.module for item in items if isinstance(item, pytest.Function)}
    for module in modules:
        if hasattr(module, "_read_trace") and agno.db.sqlite.SqliteDb is database:
            module._read_trace = lambda db, trace_id: db.get_trace(trace_id=trace_id).to_dict()
