"""What the team is told of the notebook before each run: it is the instructions' part, and never the user's message."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from lockstitch.apps.notebooks import shelf, sources
from lockstitch.apps.notebooks.records import Notebook, Source
from lockstitch.records import Json, Memory
from lockstitch.runtime.setup import Occasion

_MOST_SOURCES: Final = 50
_MOST_LEARNINGS: Final = 20

Briefing = Callable[[Any, Occasion], Awaitable[str]]


def briefing(role: str, *, agent: str | None = None) -> Briefing:
    """Instructions that begin with a role and go on with the notebook as it is when the run begins.

    `agent` is whose learnings are told too: what it noted in chats of the same user.
    """

    async def instructions(_deps: Any, occasion: Occasion) -> str:
        store, thread = occasion.store, occasion.thread
        notebook = await shelf.notebook_of(store, thread)
        parts = [role]
        if notebook is not None:
            parts.append(about(notebook, await sources.listed(store, notebook)))
        if agent is not None:
            whose: Json = {"project": thread.project, "user_id": thread.user_id, "agent": agent}
            parts.append(_lessons(await store.memories.list(kind="learning", **whose)))
        return "\n\n".join(part for part in parts if part)

    return instructions


def about(notebook: Notebook, known: Sequence[Source]) -> str:
    """A notebook as the team is told of it."""
    parts = [f"# Notebook: {notebook.title}"]
    if notebook.description:
        parts.append(notebook.description)
    if notebook.instructions:
        parts.append(f"## Instructions of its owner\n{notebook.instructions}")
    shown = [f"- {source.name} ({_extent(source)})" for source in known[:_MOST_SOURCES]]
    if len(known) > _MOST_SOURCES:
        shown.append(f"- and {len(known) - _MOST_SOURCES} more")
    parts.append("## Sources\n" + ("\n".join(shown) or "There are none yet."))
    return "\n\n".join(parts)


def _lessons(noted: Sequence[Memory]) -> str:
    newest = sorted(noted, key=lambda one: (one.updated_at, one.id))[-_MOST_LEARNINGS:]
    return "## What you noted for yourself\n" + "\n".join(f"- {one.text}" for one in newest) if newest else ""


def _extent(source: Source) -> str:
    pages = f"{source.pages} pages" if source.pages else f"{source.characters:,} characters"
    return f"{source.kind}, {pages}"
