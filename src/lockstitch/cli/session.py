"""`Session`: the store, project, app and output of one command."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import typer

from lockstitch import sync
from lockstitch.cli.render.output import Output
from lockstitch.errors import Refused
from lockstitch.store.open import redacted_url
from lockstitch.sync import SyncStore

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
    token: str | None = field(default=None, repr=False)
    """The token for a server."""

    @property
    def is_remote(self) -> bool:
        """True if the store is a server."""
        return is_server(self.url)

    @property
    def has_app(self) -> bool:
        """True if agents can continue threads: those of the user's app, or those of the server."""
        return self.is_remote or bool(self.app_name)

    @property
    def json_output(self) -> bool:
        return self.out.as_json

    def open(self, *, create: bool = False) -> SyncStore:
        """Open the store, for `with`. Only commands that write pass `create`, which creates a missing store."""
        if not self.is_remote:
            return self.open_database(self.url, create=create)
        # Imported here, because local commands do not need HTTP.
        from lockstitch.cli.remote import open_remote

        return open_remote(self.url, token=self.token, project=self.project if self.project_named else None)

    def open_database(self, url: str, *, create: bool = False) -> SyncStore:
        """Open the store at a URL, for `with`. It is not a server."""
        return sync.open_store(url, project=self.project, create=create)

    def of_store(self, store: SyncStore) -> "Session":
        """Return this session with the project of an open store. A server has one project per token."""
        return replace(self, project=store.project, project_named=self.project_named or self.is_remote)

    def require_database(self, command: str, url: str | None = None) -> None:
        """Raise `Refused` if the store, or the store at `url`, is a server."""
        if is_server(url or self.url):
            raise Refused(f"`lockstitch {command}` needs the database URL of the store, not the URL of a server.")

    @property
    def shown(self) -> str:
        """The URL of the store without its password."""
        return redacted_url(self.url)

    def app(self) -> "App":
        """Import and return the user's app, or the agents of the server. Raises `Refused` if there is neither."""
        if self.is_remote:
            from lockstitch.cli.remote import RemoteApp

            return RemoteApp()
        if not self.app_name:
            raise Refused(
                "This command needs an app. Set it with --app module:name, --app ./file.py:name or LOCKSTITCH_APP."
            )
        from lockstitch.agents.app import load_app

        return load_app(self.app_name)


DATABASE_COMMANDS: Final = frozenset(
    {"adopt", "archive", "copy", "doctor", "import", "lake", "migrate", "prioritize", "purge", "restore", "worker"}
)
"""Commands that need a database. A server does not offer them."""


def is_server(url: str) -> bool:
    """True if a URL is that of a server, not of a database."""
    return url.lower().startswith(("http://", "https://"))


def session_of(context: typer.Context) -> Session:
    """Return the session of a command. Raises `Refused` if the command needs a database and the store is a server."""
    session: Any = context.obj
    assert isinstance(session, Session)
    command = context.command_path.split()[1:]
    if command and command[0] in DATABASE_COMMANDS:
        session.require_database(" ".join(command))
    return session


def now() -> datetime:
    return datetime.now(UTC)
