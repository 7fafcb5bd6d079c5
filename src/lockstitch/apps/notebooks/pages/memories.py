"""What the team remembers about a person, and how it is made to forget."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, Response

from lockstitch.apps.notebooks import shelf
from lockstitch.apps.notebooks.pages.beside import memories_of, user_of
from lockstitch.apps.notebooks.pages.notebook import chat_in
from lockstitch.apps.notebooks.pages.shown import Memory
from lockstitch.apps.notebooks.records import Notebook
from lockstitch.errors import NotFound
from lockstitch.records import Thread
from lockstitch.server import Actor, Caller, Reader, back, page

memories_router = APIRouter(include_in_schema=False, prefix="/notebooks/{notebook_id}/memories")


@memories_router.get("")
async def memories(request: Request, caller: Reader, notebook_id: int, chat: UUID | None = None) -> HTMLResponse:
    """What is known about whose chat it is, or else about whoever looks."""
    found, head = await _whose(caller, notebook_id, chat)
    user_id = user_of(caller, head)
    known = await memories_of(caller.store, user_id)
    shown: dict[str, Any] = {
        "notebook": found,
        "user": "you" if user_id == caller.actor else user_id or "whoever asks without a name",
        "memories": [Memory(one.id, one.text, ", ".join(one.tags), one.updated_at) for one in known],
        "chat_id": chat,
    }
    return page(request, caller, "notebooks/memories.html", **shown, can_act=caller.may("write"))


@memories_router.post("/{memory_id}/forget")
async def forget(
    request: Request, caller: Actor, notebook_id: int, memory_id: UUID, chat: Annotated[UUID | None, Form()] = None
) -> Response:
    found, head = await _whose(caller, notebook_id, chat)
    if memory_id not in {one.id for one in await memories_of(caller.store, user_of(caller, head))}:
        raise NotFound("This is not remembered, or it is somebody else's.")
    await caller.store.memories.delete(id=memory_id, project=caller.project)
    more = f"?chat={chat}" if chat else ""
    return back(request, f"/notebooks/{found.id}/memories{more}", "Forgotten")


async def _whose(caller: Caller, notebook_id: int, chat: UUID | None) -> tuple[Notebook, Thread | None]:
    if chat is not None:
        return await chat_in(caller, notebook_id, chat)
    return await shelf.get(caller.store, notebook_id), None
