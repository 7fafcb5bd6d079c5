"""`Client`: the read calls of a store and the operations of the engine over HTTP."""

from types import TracebackType
from typing import Self

from lockstitch.client.action_methods import ActionMethods
from lockstitch.client.connection import Connection


class Client(ActionMethods):
    """A server's record, limited to one project.

    Use it as an async context manager, or call `close()`. Safe to use from many tasks. Methods raise the same errors as
    `Store`, and `StoreUnreachable` if the server does not answer. Requests are not retried, but event streams
    reconnect.

    Args:
        url: Address of the server.
        token: API token. It also selects the project.
        project: Project, if the server needs no token.
        timeout: Seconds for one request.
    """

    def __init__(
        self, url: str, *, token: str | None = None, project: str | None = None, timeout: float = 30.0
    ) -> None:
        super().__init__(Connection(url, token, project, timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the HTTP connections."""
        await self._connection.close()
