"""An application: agents together with what they need of a store. What it shows is the server's matter (annex.py)."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from lockstitch.runtime.agent import Agent
from lockstitch.store import Store


class Application(Protocol):
    """Whatever has these can be given to an App."""

    @property
    def name(self) -> str:
        """What it is called, once per app; its templates and files on a server are found by it."""
        ...

    @property
    def agents(self) -> Iterable[Agent]:
        """Its agents and teams, which become agents of the app."""
        ...

    async def ready(self, store: Store) -> None:
        """Make of a store what the application needs, its tables above all.

        Called whenever a server or a worker starts: cheap when all is there, and safe when two call it at once.
        """
        ...


@runtime_checkable
class Closes(Protocol):
    """An application that has something to let go of when its app is closed, besides its agents."""

    async def close(self) -> None: ...
