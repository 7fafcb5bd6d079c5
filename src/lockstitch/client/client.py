"""The client of a server: what a store can be asked, asked over HTTP."""

from types import TracebackType
from typing import Self

from lockstitch.client.acting import Acting
from lockstitch.client.connection import Connection


class Client(Acting):
    """A server's record, seen from one project: that of the token, or `project` where no token is needed.

    Errors are those of the store. Reading is repeated by nobody but the caller; following a thread comes back by
    itself, and neither misses nor repeats a stitch.
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
        await self._connection.close()
