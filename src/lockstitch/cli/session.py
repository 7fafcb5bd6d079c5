"""`Session`: the store, project, app and output of one command."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from lockstitch import sync
from lockstitch.cli.render.output import Output
from lockstitch.errors import Refused
from lockstitch.store.open import redacted_url

if TYPE_CHECKING:
    from lockstitch.agents import App


@dataclass(frozen=True, slots=True)
class Session:
    """One call of the command line: the values of the global options."""

    url: str
    project: str
    out: Output
    app_name: str | None = None
    project_named: bool = False
    """True if the user set --project. Otherwise, commands that work on a whole store work on all projects."""

    @property
    def json_output(self) -> bool:
        return self.out.as_json

    def open(self, *, create: bool = False, url: str | None = None) -> sync.SyncStore:
        """Open the store, for `with`. Only commands that write pass `create`, which creates a missing store."""
        return sync.open_store(self.url if url is None else url, project=self.project, create=create)

    @property
    def shown(self) -> str:
        """The URL of the store without its password."""
        return redacted_url(self.url)

    def app(self) -> "App":
        """Import and return the user's app. Raises `Refused` if no app is set."""
        if not self.app_name:
            raise Refused(
                "This command needs an app. Set it with --app module:name, --app ./file.py:name or LOCKSTITCH_APP."
            )
        from lockstitch.agents.app import load_app

        return load_app(self.app_name)


def session_of(context: typer.Context) -> Session:
    session: Any = context.obj
    assert isinstance(session, Session)
    return session


def now() -> datetime:
    return datetime.now(UTC)
