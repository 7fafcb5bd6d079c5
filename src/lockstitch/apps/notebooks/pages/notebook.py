"""A notebook with one chat open; its sidebar."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse

from lockstitch import Memory, NotFound, Store, Thread
from lockstitch.apps.notebooks import activity, notebooks, sources
from lockstitch.apps.notebooks.pages.chat import ChatView, chat_of, listed
from lockstitch.apps.notebooks.pages.views import CitedPassage, Highlight, MessageView, SourceRow, place_of
from lockstitch.apps.notebooks.plugin import Notebooks
from lockstitch.apps.notebooks.readers.registry import ENDINGS
from lockstitch.apps.notebooks.records import Notebook, Source
from lockstitch.ext import plural
from lockstitch.server import Caller, Reader, base_path, is_htmx_request, plugin_of, render_page


async def beside(caller: Caller, application: Notebooks, notebook: Notebook, head: Thread | None) -> dict[str, Any]:
    store = caller.store
    chats = await activity.chats(store, notebook)
    return {
        "sources": [source_row(source) for source in await sources.listed(store, notebook)],
        "underway": [underway.name for underway in application.underway(notebook.number)],
        "chats": chats,
        "chat": next((chat for chat in chats if head is not None and chat.thread.id == head.id), None),
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
    memories = await store.memories.list(project=store.project, user_id=user_id, kind="memory")
    return sorted(memories, key=lambda memory: (memory.updated_at, memory.id), reverse=True)


async def _team(store: Store, application: Notebooks) -> str:
    """The team as one names it: NotebookLM v6 with Researcher and Writer."""
    team = application.team
    agents = await store.agents.list(project=store.project, name=team.name)
    version = f" v{agents[0].version}" if agents else ""
    return f"{team.name}{version} with {listed(list(team.members))}"


async def _goes_along(store: Store, application: Notebooks, head: Thread | None) -> str:
    """How much of the chat the team is told again with the next question. Of turns that failed or were stopped
    it is told nothing."""
    if head is None or not head.last_turn:
        return "First question"
    before = sum(run.parent_run_id is None and run.status == "completed" for run in await store.runs(head))
    history: Any = application.team.definition.history
    count = before if history == "all" else min(before, int(history or 0))
    return f"Includes {plural(count, 'earlier run')}" if count else "No earlier runs included"


router = APIRouter(include_in_schema=False, prefix="/notebooks/{notebook_id}")

Application = Annotated[Notebooks, plugin_of(Notebooks)]
Before = Annotated[int | None, Query(ge=1, lt=2**31)]
After = Annotated[int, Query(ge=0, lt=2**62)]


@router.get("", name="notebook")
async def notebook(request: Request, caller: Reader, application: Application, notebook_id: int) -> HTMLResponse:
    """A notebook with the chat in which something was said last."""
    result = await notebooks.get(caller.store, notebook_id)
    chats = await activity.chats(caller.store, result)
    return await _page(request, caller, application, result, chats[0].thread if chats else None)


@router.get("/new")
async def new(request: Request, caller: Reader, application: Application, notebook_id: int) -> HTMLResponse:
    """A notebook with a chat that begins with what is asked."""
    return await _page(request, caller, application, await notebooks.get(caller.store, notebook_id), None)


@router.get("/now")
async def now_without(request: Request, caller: Reader, application: Application, notebook_id: int) -> HTMLResponse:
    """What changes in a notebook where no chat is open."""
    return await _now(request, caller, application, await notebooks.get(caller.store, notebook_id), None, 0)


@router.get("/chats/{thread_id}", name="notebook_chat")
async def chat(
    request: Request,
    caller: Reader,
    application: Application,
    notebook_id: int,
    thread_id: UUID,
    cited: str = "",
    before: Before = None,
) -> HTMLResponse:
    """A chat, with a cited place. Asked for as a part of a page it is the place alone."""
    notebook, head = await chat_in(caller, notebook_id, thread_id)
    highlight = Highlight.of(cited)
    if is_htmx_request(request):
        place = await place_of(caller.store, head, highlight) if highlight else None
        return render_page(request, caller, "notebooks/place.html", notebook=notebook, place=place)
    return await _page(request, caller, application, notebook, head, highlight, before)


@router.get("/chats/{thread_id}/now")
async def now(
    request: Request,
    caller: Reader,
    application: Application,
    notebook_id: int,
    thread_id: UUID,
    after: After = 0,
) -> HTMLResponse:
    """What changes as a chat goes on: what was said after a position, who is at it, and what stands beside."""
    notebook, head = await chat_in(caller, notebook_id, thread_id)
    return await _now(request, caller, application, notebook, head, after)


async def chat_in(caller: Caller, notebook_id: int, thread_id: UUID) -> tuple[Notebook, Thread]:
    """A notebook and one of its chats. NotFound where the thread is none of them."""
    notebook = await notebooks.get(caller.store, notebook_id)
    head = await caller.store.thread(thread_id)
    link = await notebooks.link_of(caller.store, head)
    if link is None or link.notebook_id != notebook.number:
        raise NotFound(f"Notebook {notebook_id} has no chat {thread_id}.")
    return notebook, head


async def _page(
    request: Request,
    caller: Caller,
    application: Notebooks,
    notebook: Notebook,
    head: Thread | None,
    cited: Highlight | None = None,
    before: int | None = None,
) -> HTMLResponse:
    here = _here(request, notebook, head)
    chat_view = await chat_of(caller.store, head, f"{here}?cited=", before) if head is not None else ChatView()
    place = await _place(caller, head, chat_view, cited)
    shown = await _shown(caller, application, notebook, head, here, chat_view)
    return render_page(request, caller, "notebooks/page.html", **shown, place=place, before=before)


async def _now(
    request: Request, caller: Caller, application: Notebooks, notebook: Notebook, head: Thread | None, after: int
) -> HTMLResponse:
    here = _here(request, notebook, head)
    chat_view = await chat_of(caller.store, head, f"{here}?cited=") if head is not None else ChatView()
    shown = await _shown(caller, application, notebook, head, here, chat_view)
    shown["spoken"] = [message_view for message_view in chat_view.spoken if message_view.position > after]
    return render_page(request, caller, "notebooks/now.html", **shown, place=None)


async def _shown(
    caller: Caller, application: Notebooks, notebook: Notebook, head: Thread | None, here: str, chat_view: ChatView
) -> dict[str, Any]:
    return {
        "notebook": notebook,
        "here": here,
        "spoken": chat_view.spoken,
        "open": chat_view.open,
        "turns": chat_view.turns,
        "runs": chat_view.runs,
        "cost": chat_view.cost,
        "rest": chat_view.rest,
        "first": chat_view.first,
        "can_act": caller.may("write"),
        **await beside(caller, application, notebook, head),
    }


async def _place(
    caller: Caller, head: Thread | None, chat_view: ChatView, cited: Highlight | None
) -> CitedPassage | None:
    """The place that was asked for; without, the first that the last answer cites."""
    if head is None:
        return None
    for highlight in [cited] if cited else _cited_last(chat_view.spoken):
        place = await place_of(caller.store, head, highlight)
        if place is not None:
            return place
    return None


def _cited_last(message_views: list[MessageView]) -> list[Highlight]:
    for message_view in reversed(message_views):
        numbers = [
            text for block in message_view.blocks for item in block.items for kind, text, _ in item if kind == "cite"
        ]
        if numbers:
            return [Highlight(message_view.position, int(number)) for number in dict.fromkeys(numbers)]
    return []


def _here(request: Request, notebook: Notebook, head: Thread | None) -> str:
    path = f"{base_path(request)}/notebooks/{notebook.id}"
    return f"{path}/chats/{head.id}" if head is not None else path
