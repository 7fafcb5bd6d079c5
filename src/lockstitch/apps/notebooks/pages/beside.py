"""What stands around a chat: sources, the other chats, the team, and what goes along with a question."""

from typing import Any

from lockstitch.apps.notebooks import looking, sources
from lockstitch.apps.notebooks.application import Notebooks
from lockstitch.apps.notebooks.pages.runs import listed
from lockstitch.apps.notebooks.pages.shown import SourceRow
from lockstitch.apps.notebooks.readers.registry import ENDINGS
from lockstitch.apps.notebooks.records import Notebook, Source
from lockstitch.records import Memory, Thread
from lockstitch.records.words import plural
from lockstitch.server import Caller
from lockstitch.store import Store


async def beside(caller: Caller, application: Notebooks, notebook: Notebook, head: Thread | None) -> dict[str, Any]:
    store = caller.store
    chats = await looking.chats(store, notebook)
    return {
        "sources": [source_row(one) for one in await sources.listed(store, notebook)],
        "underway": [one.name for one in application.underway(notebook.number)],
        "chats": chats,
        "chat": next((one for one in chats if head is not None and one.thread.id == head.id), None),
        "memories": len(await memories_of(store, user_of(caller, head))),
        "team": await _team(store, application),
        "goes_along": await _goes_along(store, application, head),
        **ways(application),
    }


def ways(application: Notebooks) -> dict[str, Any]:
    """How a source may come in."""
    return {
        "endings": "PDF, HTML, Markdown or plain text",
        "accept": ",".join(ENDINGS),
        "limit": application.limits.bytes,
        "addresses": application.urls,
    }


def source_row(source: Source) -> SourceRow:
    passages = plural(source.passages, "passage")
    return SourceRow(
        source.id, source.name, f"{plural(source.pages, 'page')} · {passages}" if source.pages else passages
    )


def user_of(caller: Caller, head: Thread | None) -> str | None:
    """Whose chat it is: a new one belongs to whoever asks."""
    return head.user_id if head is not None else caller.actor


async def memories_of(store: Store, user_id: str | None) -> list[Memory]:
    """What is known about a user, the newest first; nobody else's is among it."""
    found = await store.memories.list(project=store.project, user_id=user_id, kind="memory")
    return sorted(found, key=lambda one: (one.updated_at, one.id), reverse=True)


async def _team(store: Store, application: Notebooks) -> str:
    """The team as one names it: NotebookLM v6 with Researcher and Writer."""
    team = application.team
    known = await store.agents.list(project=store.project, name=team.name)
    version = f" v{known[0].version}" if known else ""
    return f"{team.name}{version} with {listed(list(team.members))}"


async def _goes_along(store: Store, application: Notebooks, head: Thread | None) -> str:
    """How much of the chat the team is told again with the next question. Of turns that failed or were stopped
    it is told nothing."""
    if head is None or not head.last_turn:
        return "The first question"
    before = sum(run.parent_run_id is None and run.status == "completed" for run in await store.runs(head))
    history: Any = application.team.definition.history
    count = before if history == "all" else min(before, int(history or 0))
    return f"{plural(count, 'earlier run goes', 'earlier runs go')} along" if count else "Nothing earlier goes along"
