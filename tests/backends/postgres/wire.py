"""A proxy between a client and PostgreSQL that records statements, and can cut the connection at a word."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

Matches = Callable[[str], bool]


def option(url: str, *options: str) -> str:
    """Return a URL with options of Lockstitch."""
    return f"{url}{'&' if '?' in url else '?'}{'&'.join(options)}"


class Wire:
    """Listens on a separate socket. `said` are the executed statements, `turns` is the number of round trips.

    Notifications are left out of both, because they come at any time.
    """

    def __init__(self, url: str, folder: Path) -> None:
        parts = conninfo_to_dict(url)
        self._host = str(parts.get("host", "localhost"))
        self._port = int(parts.get("port") or 5432)
        self._folder = folder
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut_before: Matches | None = None
        self._cut_after: Matches | None = None
        secret = f":{parts['password']}" if parts.get("password") else ""
        self.url = f"postgresql://{parts.get('user', 'postgres')}{secret}@/{parts['dbname']}?host={folder}&port=5432"
        self.said: list[str] = []
        self.turns = 0
        self.names: set[str] = set()
        """Names of prepared statements. The empty name is for single use."""

    def forget(self) -> None:
        self.said.clear()
        self.turns = 0

    def cut_before(self, word: str) -> None:
        """Once: a statement with this word never arrives, and the connection is cut."""
        self._cut_before = lambda text: word in text

    def cut_after(self, word: str) -> None:
        """Once: a statement with this word is executed, but its response never arrives."""
        self._cut_after = lambda text: word in text

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._folder / ".s.PGSQL.5432")

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._host.startswith("/"):
            server = await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        else:
            server = await asyncio.open_connection(self._host, self._port)
        line = _Line(self, (reader, writer), server)
        try:
            await line.run()
        except ConnectionError:
            pass
        finally:
            for end in (writer, server[1]):
                end.transport.abort()

    def cuts_before(self, text: str) -> bool:
        if self._cut_before is None or not self._cut_before(text):
            return False
        self._cut_before = None
        return True

    def cuts_after(self, text: str) -> bool:
        if self._cut_after is None or not self._cut_after(text):
            return False
        self._cut_after = None
        return True


class _Line:
    """One connection through the wire."""

    def __init__(
        self,
        wire: Wire,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._wire = wire
        self._client = client
        self._server = server
        self._prepared: dict[bytes, str] = {}
        self._deaf = False
        """Cut the connection at the server's next response."""
        self._notifying = False

    async def run(self) -> None:
        tasks = {asyncio.ensure_future(self._forth()), asyncio.ensure_future(self._back())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.exception()

    async def _forth(self) -> None:
        reader, writer = self._client[0], self._server[1]
        length = await reader.readexactly(4)
        writer.write(length + await reader.readexactly(int.from_bytes(length, "big") - 4))
        while True:
            kind = await reader.readexactly(1)
            length = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(length, "big") - 4)
            if not self._hears(kind, body):
                return
            writer.write(kind + length + body)

    def _hears(self, kind: bytes, body: bytes) -> bool:
        """Record the messages of the client. Return False if the wire is cut."""
        wire = self._wire
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._prepared[name] = text.decode()
            self._notifying = b"pg_notify" in text
            if not text.startswith(b"DECLARE"):
                wire.names.add(name.decode())
        elif kind in (b"B", b"Q"):
            text = body[:-1].decode() if kind == b"Q" else self._prepared[body.split(b"\0", 2)[1]]
            self._notifying = "pg_notify" in text
            if not self._notifying:
                wire.said.append(text)
            if wire.cuts_before(text):
                return False
            self._deaf = self._deaf or wire.cuts_after(text)
        if kind in (b"S", b"Q", b"H") and not self._notifying:
            wire.turns += 1
        return True

    async def _back(self) -> None:
        reader, writer = self._server[0], self._client[1]
        while data := await reader.read(65536):
            if self._deaf:
                return
            writer.write(data)
