"""`Notebooks`: the plugin, with its settings and operations."""

from collections.abc import AsyncGenerator, Collection, Generator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self
from urllib.parse import unquote, urlsplit
from uuid import NAMESPACE_OID, uuid5

from lockstitch import App, Event, Refused, Result, Store, Team, Thread, Tool
from lockstitch.apps.notebooks import notebooks, sources
from lockstitch.apps.notebooks import search as passage_search
from lockstitch.apps.notebooks.quote_provider import QuoteProvider
from lockstitch.apps.notebooks.readers.reader import Kind, Limits
from lockstitch.apps.notebooks.readers.registry import kind_of_text
from lockstitch.apps.notebooks.readers.web import fetch
from lockstitch.apps.notebooks.records import EXTENSION, Source
from lockstitch.apps.notebooks.search import RankedPassage
from lockstitch.apps.notebooks.sources import Indexing, Raw
from lockstitch.apps.notebooks.team import notebook_team
from lockstitch.apps.notebooks.web_search import SearchTool, web_search_of
from lockstitch.ext import Embedder, MemoryStore, Provider, ToolSource, codec, resolve_embedder, run_blocking


@dataclass(frozen=True, slots=True)
class SourceInProgress:
    """A source that this process is reading."""

    notebook_id: int
    name: str
    since: datetime


class Notebooks:
    """Notebooks with sources, and a team that answers from them.

    Without a model, answers are quotations from the sources and need no network. With `embedder=None`, search uses
    words only. `urls=True` allows sources from the web. `allowed_hosts` are hosts of a private network that may be
    fetched. `web_search` is the web search of the Researcher: `provider` for that of the model's provider, the
    definition of a provider's tool, a tool, an MCP server, a function, or a list of them. `tools` are additional tools
    of the Researcher. Other settings are settings of a `Team`.
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
        web_search: Literal["provider"] | SearchTool | Sequence[SearchTool] | None = None,
        tools: Sequence[Tool | ToolSource] = (),
        **settings: Any,
    ) -> None:
        self.urls = urls
        self._allowed_hosts = frozenset(allowed_hosts)
        self._embedder = None if embedder is None else resolve_embedder(embedder)
        self._indexing = Indexing(limits or Limits(), passage_size, passage_overlap, self._embedder)
        self.offline = model is None
        """True if there is no model, so that answers are quotations."""
        web = web_search_of(web_search, model)
        self.has_web_search = bool(web)
        """True if the Researcher can search the web. Otherwise it answers from the sources only."""
        self.team: Team = notebook_team(
            QuoteProvider() if model is None else model,
            session_summary=settings.pop("session_summary", model is not None),
            embedder=lambda: self._embedder,
            memory=memory,
            tools=tools,
            web_search=web,
            **settings,
        )
        self._in_progress: list[SourceInProgress] = []

    @property
    def limits(self) -> Limits:
        return self._indexing.limits

    @property
    def agents(self) -> Sequence[Team]:
        return (self.team,)

    def bind(self, app: App) -> Self:
        """Return a copy of this plugin for an app. Its team executes children of all agents of the app, and calls the
        app's webhooks.

        Args:
            app: The app.
        """
        plugin = copy(self)
        plugin.team = self.team.bind(app)
        return plugin

    async def setup(self, store: Store) -> None:
        """Create or migrate the tables. Raises `Refused` for the file backend."""
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
        """Add a text, or the bytes of a file, as a source.

        Raises `Refused` if the source cannot be read. Nothing is written then.
        """
        await self.setup(store)
        notebook = await notebooks.get(store, notebook_id)
        if isinstance(content, str):
            kind = kind or kind_of_text(name)
            content = content.encode(errors="replace")
        with self._reading(notebook.number, name, store):
            return await sources.add(store, notebook, Raw(name, content, kind, media_type, url), self._indexing)

    async def add_url(self, store: Store, notebook_id: int, url: str, *, name: str | None = None) -> Source:
        """Fetch a URL and add it as a source. Raises `Refused` unless `urls` is set."""
        if not self.urls:
            raise Refused("Sources from the web are disabled. Enable them with Notebooks(urls=True).")
        await self.setup(store)
        notebook = await notebooks.get(store, notebook_id)
        with self._reading(notebook.number, name or url, store):
            fetched = await run_blocking(lambda: fetch(url, self.limits, allowed=self._allowed_hosts))
        source_name = name or _name_of(fetched.url)
        return await self.add_source(
            store, notebook_id, source_name, fetched.content, media_type=fetched.media_type, url=fetched.url
        )

    def sources_in_progress(self, notebook_id: int) -> list[SourceInProgress]:
        """Return the sources of a notebook that this process is reading."""
        return [in_progress for in_progress in self._in_progress if in_progress.notebook_id == notebook_id]

    async def search(self, store: Store, notebook_id: int, query: str, *, limit: int = 6) -> list[RankedPassage]:
        """Return the passages that the Researcher would find."""
        await self.setup(store)
        notebook = await notebooks.get(store, notebook_id)
        return await passage_search.find(store, notebook, query, embedder=self._embedder, limit=limit)

    # Running

    async def run(
        self,
        store: Store,
        notebook_id: int,
        message: str,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        message_id: str | None = None,
        **call: Any,
    ) -> Result:
        """Send a message to the team, in an existing chat or in a new one. `call` are options of `Agent.run`.

        Raises `Refused` for a chat of another notebook or of another user.
        """
        named = {"session_id": session_id, "user_id": user_id, "message_id": message_id}
        thread = await self.chat(store, notebook_id, message, **named)
        options: dict[str, Any] = {"user_id": user_id, "message_id": message_id}
        return await self.team.run(message, store=store, thread=thread, **options, **call)

    async def stream(
        self,
        store: Store,
        notebook_id: int,
        message: str,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        message_id: str | None = None,
        **call: Any,
    ) -> AsyncGenerator[Event, None]:
        """Send a message and yield the events of the run."""
        named = {"session_id": session_id, "user_id": user_id, "message_id": message_id}
        thread = await self.chat(store, notebook_id, message, **named)
        options: dict[str, Any] = {"user_id": user_id, "message_id": message_id}
        async for event in self.team.stream(message, store=store, thread=thread, **options, **call):
            yield event

    async def chat(
        self,
        store: Store,
        notebook_id: int,
        message: str,
        *,
        session_id: str | None,
        user_id: str | None,
        message_id: str | None = None,
    ) -> Thread:
        """Return the thread of a chat. A missing thread is created with its link and this first message as title.

        Without a `session_id`, messages with the same `message_id` go to the same chat.
        """
        await self.setup(store)
        if not message.strip():
            raise Refused("The message is empty. Enter a message.")
        # Check the message before creating the chat. Otherwise a chat without a message would remain.
        codec.dumps(message)
        notebook = await notebooks.get(store, notebook_id)
        if session_id is None and message_id is not None:
            session_id = str(uuid5(NAMESPACE_OID, repr((store.project, notebook.number, user_id, message_id))))
        return await notebooks.ensure(
            store, notebook, session_id, user_id=user_id, agent=self.team.name, message=message
        )

    @contextmanager
    def _reading(self, notebook_id: int, name: str, store: Store) -> Generator[None]:
        in_progress = SourceInProgress(notebook_id, name, store.clock.now())
        self._in_progress.append(in_progress)
        try:
            yield
        finally:
            self._in_progress.remove(in_progress)


def _name_of(url: str) -> str:
    """Return the name of a source from the web: the last part of its path, or its host."""
    parts = urlsplit(url)
    return (unquote(parts.path).rstrip("/").rpartition("/")[2] or parts.hostname or url)[:255]
