"""What every route of a server needs: the store, the code of the agents, and how the server is set."""

from dataclasses import dataclass, field
from typing import Any

from starlette.requests import HTTPConnection

from lockstitch.agents import App
from lockstitch.server.extensions import ServerExtensions
from lockstitch.server.ingest_buffer import IngestBuffer
from lockstitch.server.middleware import RequestMetrics
from lockstitch.server.settings import Settings
from lockstitch.server.streams.changes import ChangeFeed
from lockstitch.store import Store


@dataclass(frozen=True, slots=True)
class ServerState:
    """One server's belongings."""

    store: Store
    app: App | None
    settings: Settings
    news: ChangeFeed
    intake: IngestBuffer
    """Where traces of others come in."""
    figures: RequestMetrics = field(default_factory=RequestMetrics)
    extensions: ServerExtensions = field(default_factory=lambda: ServerExtensions({}))
    """What the app's applications add."""


def server_state(connection: HTTPConnection) -> ServerState:
    return server_state_of_app(connection.app)


def server_state_of_app(app: Any) -> ServerState:
    house: Any = app.state.house
    assert isinstance(house, ServerState)
    return house
