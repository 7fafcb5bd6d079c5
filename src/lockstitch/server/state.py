"""What every route of a server needs: the store, the code of the agents, and how the server is set."""

from dataclasses import dataclass, field
from typing import Any

from starlette.requests import HTTPConnection

from lockstitch.agents import App
from lockstitch.server.extensions import Annexes
from lockstitch.server.ingest_queue import Intake
from lockstitch.server.middleware import Figures
from lockstitch.server.settings import Settings
from lockstitch.server.streams.changes import News
from lockstitch.store import Store


@dataclass(frozen=True, slots=True)
class House:
    """One server's belongings."""

    store: Store
    app: App | None
    settings: Settings
    news: News
    intake: Intake
    """Where traces of others come in."""
    figures: Figures = field(default_factory=Figures)
    annexes: Annexes = field(default_factory=lambda: Annexes({}))
    """What the app's applications add."""


def house_of(connection: HTTPConnection) -> House:
    return house_of_app(connection.app)


def house_of_app(app: Any) -> House:
    house: Any = app.state.house
    assert isinstance(house, House)
    return house
