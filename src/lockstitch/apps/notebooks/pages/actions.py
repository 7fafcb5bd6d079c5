"""The list of notebooks, actions on notebooks and chats, and memories."""

from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from lockstitch import NotFound, Thread, cancel
from lockstitch.apps.notebooks import notebooks as repository
from lockstitch.apps.notebooks.pages.notebook import Application, chat_in, memories_of, user_of
from lockstitch.apps.notebooks.pages.views import BookRow, MemoryView
from lockstitch.apps.notebooks.records import Notebook
from lockstitch.ext import plural
from lockstitch.server import (
    Caller,
    FormId,
    FormWriter,
    Reader,
    base_path,
    is_htmx_request,
    message_id_of,
    redirect_to,
    render_page,
)

list_router = APIRouter(include_in_schema=False, prefix="/notebooks")

PAGE: Final = 60
"""Number of notebooks on one page."""

Title = Annotated[str, Form(max_length=255)]
Text = Annotated[str, Form(max_length=200_000)]


@list_router.get("", name="notebooks")
async def notebooks(request: Request, caller: Reader, skip: Annotated[int, Query(ge=0, lt=2**31)] = 0) -> HTMLResponse:
    counted_notebooks = await repository.counted(caller.store, limit=PAGE + 1, offset=skip)
    rows = [
        BookRow(
            id=counted.notebook.number,
            title=counted.notebook.title,
            description=counted.notebook.description or "",
            sources=counted.sources,
            chats=counted.chats,
            updated_at=max(counted.notebook.updated_at, counted.last_chat_at or counted.notebook.updated_at),
        )
        for counted in counted_notebooks[:PAGE]
    ]
    next_page = skip + PAGE if len(counted_notebooks) > PAGE else None
    shown: dict[str, Any] = {"rows": rows, "more": next_page, "paged": bool(skip), "can_act": caller.may("write")}
    return render_page(request, caller, "notebooks/list.html", **shown)


@list_router.get("/new")
async def new(request: Request, caller: Reader) -> HTMLResponse:
    """Show the form for a new notebook, for browsers without JavaScript."""
    return render_page(request, caller, "notebooks/edit.html", notebook=None)


@list_router.post("")
async def make(
    request: Request, caller: FormWriter, title: Title = "", description: Text = "", instructions: Text = ""
) -> Response:
    notebook = await repository.create(
        caller.store,
        title.strip() or None,
        description=description.strip() or None,
        instructions=instructions.strip() or None,
    )
    return redirect_to(request, f"/notebooks/{notebook.id}")


router = APIRouter(include_in_schema=False, prefix="/notebooks/{notebook_id}")

Message = Annotated[str, Form(max_length=1_000_000)]


@router.post("/ask")
async def ask_first(
    request: Request,
    caller: FormWriter,
    application: Application,
    notebook_id: int,
    message: Message,
    form_id: FormId = "",
) -> Response:
    """Send the first question of a new chat."""
    notebook = await repository.get(caller.store, notebook_id)
    message_id = message_id_of(form_id, message)
    result = await application.run(
        caller.store, notebook.number, message, user_id=caller.actor, message_id=message_id, detach=True
    )
    return redirect_to(request, f"/notebooks/{notebook.id}/chats/{result.thread_id}")


@router.post("/chats/{thread_id}/ask")
async def ask(
    request: Request,
    caller: FormWriter,
    application: Application,
    notebook_id: int,
    thread_id: UUID,
    message: Message,
    form_id: FormId = "",
) -> Response:
    """Send the next question. It starts a run, or it is queued until the open run finishes."""
    notebook, head = await chat_in(caller, notebook_id, thread_id)
    named = {"session_id": str(head.id), "user_id": head.user_id, "message_id": message_id_of(form_id, message)}
    await application.run(caller.store, notebook.number, message, **named, detach=True)
    if is_htmx_request(request):
        # The form of the page gets a new id.
        return render_page(request, caller, "toast.html", toast="", sent=True)
    return redirect_to(request, f"/notebooks/{notebook.id}/chats/{head.id}")


@router.post("/chats/{thread_id}/stop")
async def stop(request: Request, caller: FormWriter, notebook_id: int, thread_id: UUID) -> Response:
    """Cancel the open run. Committed stitches stay."""
    notebook, head = await chat_in(caller, notebook_id, thread_id)
    await cancel(caller.store, head)
    return _done(request, f"/notebooks/{notebook.id}/chats/{head.id}", "Stop requested")


@router.post("/chats/{thread_id}/title")
async def rename(
    request: Request, caller: FormWriter, notebook_id: int, thread_id: UUID, title: Title = ""
) -> Response:
    notebook, head = await chat_in(caller, notebook_id, thread_id)
    await caller.store.edit(head, title=title.strip() or None)
    return redirect_to(request, f"/notebooks/{notebook.id}/chats/{head.id}", "Renamed")


@router.get("/chats/{thread_id}/delete")
async def confirm_delete_chat(request: Request, caller: Reader, notebook_id: int, thread_id: UUID) -> HTMLResponse:
    """Ask for confirmation."""
    notebook, head = await chat_in(caller, notebook_id, thread_id)
    here = f"{base_path(request)}/notebooks/{notebook.id}/chats/{head.id}"
    return render_page(
        request,
        caller,
        "notebooks/delete.html",
        notebook=notebook,
        question="Delete this chat?",
        warning=f"“{(head.title or 'Untitled chat')[:120]}” will be deleted permanently",
        why=f"{plural(head.last_turn, 'question')} with their answers are deleted. The sources stay.",
        action=f"{here}/delete",
        cancel=here,
        can_keep_chats=False,
    )


@router.post("/chats/{thread_id}/delete")
async def delete_chat(request: Request, caller: FormWriter, notebook_id: int, thread_id: UUID) -> Response:
    notebook, head = await chat_in(caller, notebook_id, thread_id)
    await caller.store.delete(head)
    await caller.store.audits.record(caller.actor, "delete thread", str(head.id), key=head.key, threads=1)
    return redirect_to(request, f"/notebooks/{notebook.id}", f"Deleted “{(head.title or 'Untitled chat')[:80]}”")


@router.get("/edit")
async def edit(request: Request, caller: Reader, notebook_id: int) -> HTMLResponse:
    """Show the form for the title and the instructions, for browsers without JavaScript."""
    notebook = await repository.get(caller.store, notebook_id)
    return render_page(request, caller, "notebooks/edit.html", notebook=notebook)


@router.post("/edit")
async def change(
    request: Request,
    caller: FormWriter,
    notebook_id: int,
    title: Title = "",
    description: Text = "",
    instructions: Text = "",
) -> Response:
    notebook = await repository.get(caller.store, notebook_id)
    fields = {"description": description.strip() or None, "instructions": instructions.strip() or None}
    await repository.change(caller.store, notebook.number, title=title.strip() or notebook.title, **fields)
    return redirect_to(request, f"/notebooks/{notebook.id}", "Saved. The team gets the change with the next question.")


@router.get("/delete")
async def confirm_delete(request: Request, caller: Reader, notebook_id: int) -> HTMLResponse:
    """Ask for confirmation."""
    notebook = await repository.get(caller.store, notebook_id)
    chats = len(await repository.sessions(caller.store, notebook.number))
    here = f"{base_path(request)}/notebooks/{notebook.id}"
    return render_page(
        request,
        caller,
        "notebooks/delete.html",
        notebook=notebook,
        question="Delete this notebook?",
        warning=f"“{notebook.title[:120]}” will be deleted permanently",
        why=f"Its sources and {plural(chats, 'chat')} with all messages are deleted."
        if chats
        else "Its sources are deleted.",
        action=f"{here}/delete",
        cancel=here,
        can_keep_chats=chats > 0,
    )


@router.post("/delete")
async def delete(
    request: Request, caller: FormWriter, notebook_id: int, keep: Annotated[str, Form(max_length=10)] = ""
) -> Response:
    notebook = await repository.get(caller.store, notebook_id)
    removed = await repository.remove(caller.store, notebook.number, keep_sessions=bool(keep))
    await caller.store.audits.record(
        caller.actor, "delete notebook", str(notebook.id), title=notebook.title, threads=removed
    )
    chats_text = f" and {plural(removed, 'chat')}" if removed else ""
    return redirect_to(request, "/notebooks", f"Deleted “{notebook.title[:80]}”{chats_text}")


def _done(request: Request, path: str, text: str = "") -> Response:
    """Return 204 to htmx, which keeps the page, and redirect other browsers."""
    return Response(status_code=204) if is_htmx_request(request) else redirect_to(request, path, text)


memories_router = APIRouter(include_in_schema=False, prefix="/notebooks/{notebook_id}/memories")


@memories_router.get("")
async def memories(request: Request, caller: Reader, notebook_id: int, chat: UUID | None = None) -> HTMLResponse:
    """Show the memories of the user of a chat, or of the caller."""
    notebook, head = await _notebook_and_chat(caller, notebook_id, chat)
    user_id = user_of(caller, head)
    known = await memories_of(caller.store, user_id)
    shown: dict[str, Any] = {
        "notebook": notebook,
        "user": "you" if user_id == caller.actor else user_id or "users without a name",
        "memories": [MemoryView(memory.id, memory.text, ", ".join(memory.tags), memory.updated_at) for memory in known],
        "chat_id": chat,
    }
    return render_page(request, caller, "notebooks/memories.html", **shown, can_act=caller.may("write"))


@memories_router.post("/{memory_id}/forget")
async def forget(
    request: Request, caller: FormWriter, notebook_id: int, memory_id: UUID, chat: Annotated[UUID | None, Form()] = None
) -> Response:
    notebook, head = await _notebook_and_chat(caller, notebook_id, chat)
    if memory_id not in {memory.id for memory in await memories_of(caller.store, user_of(caller, head))}:
        raise NotFound("The memory was not found or belongs to another user.")
    await caller.store.memories.delete(id=memory_id, project=caller.project)
    query = f"?chat={chat}" if chat else ""
    return redirect_to(request, f"/notebooks/{notebook.id}/memories{query}", "Forgotten")


async def _notebook_and_chat(caller: Caller, notebook_id: int, chat: UUID | None) -> tuple[Notebook, Thread | None]:
    if chat is not None:
        return await chat_in(caller, notebook_id, chat)
    return await repository.get(caller.store, notebook_id), None
