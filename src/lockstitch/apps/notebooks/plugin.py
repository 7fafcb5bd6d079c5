"""Notebooks as an application: what it is set to, and what can be done with it."""

from collections.abc import AsyncGenerator, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from lockstitch import Event, Refused, Result, Store, Team, Thread, Tool
from lockstitch.apps.notebooks import notebooks, sources
from lockstitch.apps.notebooks import search as finding
from lockstitch.apps.notebooks.quoting import Quoting
from lockstitch.apps.notebooks.readers.reader import Kind, Limits
from lockstitch.apps.notebooks.readers.registry import kind_of_text
from lockstitch.apps.notebooks.readers.web import fetch
from lockstitch.apps.notebooks.records import EXTENSION, Source
from lockstitch.apps.notebooks.search import Found
from lockstitch.apps.notebooks.sources import Indexing, Raw
from lockstitch.apps.notebooks.team import notebook_team
from lockstitch.ext import Embedder, MemoryStore, Provider, ToolSource, codec, resolve_embedder, run_blocking


@dataclass(frozen=True, slots=True)
class Underway:
    """A source that this process is just reading."""

    notebook_id: int
    name: str
    since: datetime


class Notebooks:
    """Notebooks with sources, and a team that answers from them.

    Without a model answers are quotations of the sources, made without a network. `embedder` None: sources are found
    by their words alone. `urls` has sources be fetched from the web; `allowed_hosts` may be asked although they are
    inside of one's own network. `tools` are further ones for the Researcher. Other settings are those of a Team.
    """

    name = "notebooks"
    server_extension = "lockstitch.apps.notebooks.server:EXTENSION"

    def __init__(
        self,
        *,
        model: str | Provider | None = None,
        embedder: str | Embedder | None = "hashing",
        memory: str | MemoryStore = "record",
        urls: bool = False,
        allowed_hosts: Collection[str] = (),
        limits: Limits | None = None,
        passage_size: int = 1_200,
        passage_overlap: int = 200,
        tools: Sequence[Tool | ToolSource] = (),
        **settings: Any,
    ) -> None:
        self.urls = urls
        self._allowed_hosts = frozenset(allowed_hosts)
        self._embedder = None if embedder is None else resolve_embedder(embedder)
        self._indexing = Indexing(limits or Limits(), passage_size, passage_overlap, self._embedder)
        self.offline = model is None
        """Whether there is no model, so that answers are quotations."""
        self.team: Team = notebook_team(
            Quoting() if model is None else model,
            embedder=lambda: self._embedder,
            memory=memory,
            tools=tools,
            **settings,
        )
        self._underway: list[Underway] = []

    @property
    def limits(self) -> Limits:
        return self._indexing.limits

    @property
    def agents(self) -> Sequence[Team]:
        return (self.team,)

    async def setup(self, store: Store) -> None:
        """Have the store keep notebooks. Refused for a store of files."""
        await store.extend(EXTENSION)

    # Sources

    async def add_source(
        self,
        store: Store,
        notebook_id: int,
        name: str,
        content: bytes | str,
        *,
        kind: Kind | None = None,
        media_type: str | None = None,
        url: str | None = None,
    ) -> Source:
        """Add a source: a text, or the bytes of a file. Refused says what is wrong with it; nothing is changed then."""
        await self.setup(store)
        notebook = await notebooks.get(store, notebook_id)
        if isinstance(content, str):
            kind = kind or kind_of_text(name)
            content = content.encode(errors="replace")
        with self._reading(notebook.number, name, store):
            return await sources.add(store, notebook, Raw(name, content, kind, media_type, url), self._indexing)

    async def add_url(self, store: Store, notebook_id: int, url: str, *, name: str | None = None) -> Source:
        """Add what stands behind an address of the web. Refused unless `urls` is set."""
        if not self.urls:
            raise Refused("Fetching sources from the web is turned off here: Notebooks(urls=True) turns it on.")
        await self.setup(store)
        notebook = await notebooks.get(store, notebook_id)
        with self._reading(notebook.number, name or url, store):
            got = await run_blocking(lambda: fetch(url, self.limits, allowed=self._allowed_hosts))
        called = name or _name_of(got.url)
        return await self.add_source(store, notebook_id, called, got.content, media_type=got.media_type, url=got.url)

    def underway(self, notebook_id: int) -> list[Underway]:
        """The sources of a notebook that this process is just reading."""
        return [underway for underway in self._underway if underway.notebook_id == notebook_id]

    async def search(self, store: Store, notebook_id: int, query: str, *, limit: int = 6) -> list[Found]:
        """The passages that the Researcher would find."""
        await self.setup(store)
        notebook = await notebooks.get(store, notebook_id)
        return await finding.find(store, notebook, query, embedder=self._embedder, limit=limit)

    # Running

    async def run(
        self,
        store: Store,
        notebook_id: int,
        message: str,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        **call: Any,
    ) -> Result:
        """Say something to the team, in a known chat or in a new one. `call` is what `Agent.run` takes besides.

        Refused for a chat of another notebook or of another user.
        """
        thread = await self.chat(store, notebook_id, message, session_id=session_id, user_id=user_id)
        return await self.team.run(message, store=store, thread=thread, user_id=user_id, **call)

    async def stream(
        self,
        store: Store,
        notebook_id: int,
        message: str,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        **call: Any,
    ) -> AsyncGenerator[Event, None]:
        """The same, told as it happens."""
        thread = await self.chat(store, notebook_id, message, session_id=session_id, user_id=user_id)
        async for event in self.team.stream(message, store=store, thread=thread, user_id=user_id, **call):
            yield event

    async def chat(
        self, store: Store, notebook_id: int, message: str, *, session_id: str | None, user_id: str | None
    ) -> Thread:
        """The thread of a chat: a known one, or one that is made, with its link, for this first message."""
        await self.setup(store)
        if not message.strip():
            raise Refused("Say something: the message is empty.")
        # Before the chat is made, which would be left behind without a message.
        codec.dumps(message)
        notebook = await notebooks.get(store, notebook_id)
        return await notebooks.ensure(
            store, notebook, session_id, user_id=user_id, agent=self.team.name, message=message
        )

    @contextmanager
    def _reading(self, notebook_id: int, name: str, store: Store) -> Generator[None]:
        underway = Underway(notebook_id, name, store.clock.now())
        self._underway.append(underway)
        try:
            yield
        finally:
            self._underway.remove(underway)


def _name_of(url: str) -> str:
    """What a source of the web is called: the last part of its path, or its host."""
    parts = urlsplit(url)
    return (unquote(parts.path).rstrip("/").rpartition("/")[2] or parts.hostname or url)[:255]
