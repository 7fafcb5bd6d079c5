"""What every command knows: which store, which project, and where answers go."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import typer

from lockstitch import sync
from lockstitch.cli.output import Output


@dataclass(frozen=True, slots=True)
class Session:
    """One call of the command line."""

    url: str
    project: str
    out: Output

    @property
    def as_json(self) -> bool:
        return self.out.as_json

    def open(self, *, create: bool = False, url: str | None = None) -> sync.SyncStore:
        """The store, for `with`. Only what is there to write may make one that is not there yet."""
        return sync.open_store(self.url if url is None else url, project=self.project, create=create)


def session_of(context: typer.Context) -> Session:
    session: Any = context.obj
    assert isinstance(session, Session)
    return session


def now() -> datetime:
    return datetime.now(UTC)
