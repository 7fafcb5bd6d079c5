"""Pages of a notebook with a chat, and its sidebar."""

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


async def sidebar(caller: Caller, application: Notebooks, notebook: Notebook, head: Thread | None) -> dict[str, Any]:
    store = caller.store
    chats = await activity.chats(store, notebook)
    return {
        "sources": [source_row(source) for source in await sources.listed(store, notebook)],
        "in_progress": [in_progress.name for in_progress in application.sources_in_progress(notebook.number)],
        "chats": chats,
        "chat": next((chat for chat in chats if head is not None and chat.thread.id == head.id), None),
        "memories": len(await memories_of(store, user_of(caller, head))),
        "team": await _team(store, application),
        "history_note": await _history_note(store, application, head),
        **source_options(application),
    }


def source_options(application: Notebooks) -> dict[str, Any]:
    """Return the accepted kinds of sources."""
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
    """Return the user of a chat. A new chat belongs to the caller."""
    return head.user_id if head is not None else caller.actor


async def memories_of(store: Store, user_id: str | None) -> list[Memory]:
    """Return the memories of a user, newest first."""
    memories = await store.memories.list(project=store.project, user_id=user_id, kind="memory")
    return sorted(memories, key=lambda memory: (memory.updated_at, memory.id), reverse=True)


async def _team(store: Store, application: Notebooks) -> str:
    """Return the team as text: NotebookLM v6 with Researcher and Writer."""
    team = application.team
    agents = await store.agents.list(project=store.project, name=team.name)
    version = f" v{agents[0].version}" if agents else ""
    return f"{team.name}{version} with {listed(list(team.members))}"


async def _history_note(store: Store, application: Notebooks, head: Thread | None) -> str:
    """Return a text about the earlier runs that the team receives with the next question.

    Failed and stopped turns are not included.
    """
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
    """Show a notebook with its most recent chat."""
    result = await notebooks.get(caller.store, notebook_id)
    chats = await activity.chats(caller.store, result)
    return await _page(request, caller, application, result, chats[0].thread if chats else None)


@router.get("/new")
async def new(request: Request, caller: Reader, application: Application, notebook_id: int) -> HTMLResponse:
    """Show a notebook with a new chat."""
    return await _page(request, caller, application, await notebooks.get(caller.store, notebook_id), None)


@router.get("/now")
async def now_without(request: Request, caller: Reader, application: Application, notebook_id: int) -> HTMLResponse:
    """Return the parts of the page that change, without a chat."""
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
    """Show a chat with a cited passage. An htmx request gets the passage alone."""
    notebook, head = await chat_in(caller, notebook_id, thread_id)
    highlight = Highlight.of(cited)
    if is_htmx_request(request):
        place = await place_of(caller.store, head, highlight) if highlight else None
        return render_page(request, caller, "notebooks/passage.html", notebook=notebook, place=place)
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
    """Return the parts of the page that change, with messages after a position."""
    notebook, head = await chat_in(caller, notebook_id, thread_id)
    return await _now(request, caller, application, notebook, head, after)


async def chat_in(caller: Caller, notebook_id: int, thread_id: UUID) -> tuple[Notebook, Thread]:
    """Return a notebook and one of its chats. Raises `NotFound` if the thread is not one of them."""
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
    here = _path(request, notebook, head)
    chat_view = await chat_of(caller.store, head, f"{here}?cited=", before) if head is not None else ChatView()
    place = await _place(caller, head, chat_view, cited)
    shown = await _shown(caller, application, notebook, head, here, chat_view)
    return render_page(request, caller, "notebooks/page.html", **shown, place=place, before=before)


async def _now(
    request: Request, caller: Caller, application: Notebooks, notebook: Notebook, head: Thread | None, after: int
) -> HTMLResponse:
    here = _path(request, notebook, head)
    chat_view = await chat_of(caller.store, head, f"{here}?cited=") if head is not None else ChatView()
    shown = await _shown(caller, application, notebook, head, here, chat_view)
    shown["messages"] = [message_view for message_view in chat_view.messages if message_view.position > after]
    return render_page(request, caller, "notebooks/updates.html", **shown, place=None)


async def _shown(
    caller: Caller, application: Notebooks, notebook: Notebook, head: Thread | None, here: str, chat_view: ChatView
) -> dict[str, Any]:
    return {
        "notebook": notebook,
        "here": here,
        "messages": chat_view.messages,
        "open": chat_view.open,
        "turns": chat_view.turns,
        "runs": chat_view.runs,
        "cost": chat_view.cost,
        "rest": chat_view.rest,
        "first": chat_view.first,
        "can_act": caller.may("write"),
        **await sidebar(caller, application, notebook, head),
    }


async def _place(
    caller: Caller, head: Thread | None, chat_view: ChatView, cited: Highlight | None
) -> CitedPassage | None:
    """Return the requested passage, or the first passage that the last answer cites."""
    if head is None:
        return None
    for highlight in [cited] if cited else _cited_last(chat_view.messages):
        place = await place_of(caller.store, head, highlight)
        if place is not None:
            return place
    return None


def _cited_last(message_views: list[MessageView]) -> list[Highlight]:
    for message_view in reversed(message_views):
        inlines = [inline for block in message_view.blocks for inline in block.all_inlines()]
        numbers = [text for kind, text, _ in inlines if kind == "cite"]
        if numbers:
            return [Highlight(message_view.position, int(number)) for number in dict.fromkeys(numbers)]
    return []


def _path(request: Request, notebook: Notebook, head: Thread | None) -> str:
    path = f"{base_path(request)}/notebooks/{notebook.id}"
    return f"{path}/chats/{head.id}" if head is not None else path
