"""The notebook of the demonstration: sources, two chats about them, and what is remembered of who asks."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from lockstitch.apps.notebooks import Notebooks, shelf
from lockstitch.cli.demo.library import sources
from lockstitch.records import FakeClock, Memory
from lockstitch.store import Store

USER: Final = "local"
"""Whoever looks at the demonstration, as pages without tokens know them."""

_CHATS: Final = (
    ("Read aloud at bedtime", timedelta(days=2), ("Which books are good to read aloud?",)),
    (
        "Books for a nine-year-old",
        timedelta(minutes=7),
        ("hello", "recommend books for a 9yo girl", "summarize each book"),
    ),
)
_MEMORIES: Final = ("Has a daughter of nine.", "Her daughter reads slowly and likes short chapters.")

Happens = Callable[[Notebooks, Store, FakeClock], Coroutine[Any, Any, None]]


def story(now: datetime) -> Iterator[tuple[datetime, Happens]]:
    """What happened in the notebook, and when."""
    yield now - timedelta(days=3), _make
    for title, ago, messages in _CHATS:
        yield now - ago, partial(_talk, title, messages)


async def _make(application: Notebooks, store: Store, clock: FakeClock) -> None:
    made = await shelf.create(
        store,
        "Books",
        description="For children\N{RIGHT SINGLE QUOTATION MARK}s reading lists.",
        instructions="Recommend only what stands on our shelves. Name the shelf when somebody asks where.",
    )
    for name, content in sources():
        await application.add_source(store, made.number, name, content)
        clock.advance(20)
    for text in _MEMORIES:
        at = clock.now()
        await store.memories.put(Memory(project=store.project, user_id=USER, text=text, created_at=at, updated_at=at))
        clock.advance(20)


async def _talk(title: str, messages: Sequence[str], application: Notebooks, store: Store, clock: FakeClock) -> None:
    (made,) = await shelf.listed(store, limit=1)
    session = None
    for message in messages:
        said = await application.run(store, made.number, message, session_id=session, user_id=USER)
        session = str(said.thread_id)
        clock.advance(40)
    if session is not None:
        await store.edit(session, title=title)
