"""`ServerState`: the store, the app and the settings of a server."""

from dataclasses import dataclass, field
from typing import Any

from starlette.requests import HTTPConnection

from lockstitch.agents import App
from lockstitch.server.eval_tasks import EvalTasks
from lockstitch.server.extensions import ServerExtensions
from lockstitch.server.ingest_buffer import IngestBuffer
from lockstitch.server.middleware import RequestMetrics
from lockstitch.server.settings import Settings
from lockstitch.server.streams.changes import ChangeFeed
from lockstitch.store import Store


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of a server, shared by all its routes."""

    store: Store
    app: App | None
    settings: Settings
    changes: ChangeFeed
    intake: IngestBuffer
    """The buffer of incoming traces."""
    evaluations: EvalTasks = field(default_factory=EvalTasks)
    """The evaluations that this server executes."""
    figures: RequestMetrics = field(default_factory=RequestMetrics)
    extensions: ServerExtensions = field(default_factory=lambda: ServerExtensions({}))
    """The routes, pages and files of the applications of the app."""
    schemas: dict[str, Any] = field(default_factory=dict[str, Any])
    """Cached schemas of the SQL page, by lens. They do not change while a server runs."""


def server_state(connection: HTTPConnection) -> ServerState:
    return server_state_of_app(connection.app)


def server_state_of_app(app: Any) -> ServerState:
    state: Any = app.state.lockstitch
    assert isinstance(state, ServerState)
    return state
