"""What every command knows: which store, which project, whose code, and where answers go."""

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
    """One call of the command line."""

    url: str
    project: str
    out: Output
    app_name: str | None = None
    project_named: bool = False
    """Whether somebody said which project; otherwise what concerns a whole store concerns all of them."""

    @property
    def json_output(self) -> bool:
        return self.out.as_json

    def open(self, *, create: bool = False, url: str | None = None) -> sync.SyncStore:
        """The store, for `with`. Only what is there to write may make one that is not there yet."""
        return sync.open_store(self.url if url is None else url, project=self.project, create=create)

    @property
    def shown(self) -> str:
        """The store's URL without its password."""
        return redacted_url(self.url)

    def app(self) -> "App":
        """The code of the user's agents. Imported only by commands that need it, and only then."""
        if not self.app_name:
            raise Refused(
                "This needs the code of your agents: name its App with --app module:name, or in LOCKSTITCH_APP."
            )
        from lockstitch.agents.app import load_app

        return load_app(self.app_name)


def session_of(context: typer.Context) -> Session:
    session: Any = context.obj
    assert isinstance(session, Session)
    return session


def now() -> datetime:
    return datetime.now(UTC)
