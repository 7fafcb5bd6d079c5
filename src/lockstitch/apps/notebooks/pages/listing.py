"""The list of notebooks, the newest first, and a new one."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from lockstitch.apps.notebooks import shelf
from lockstitch.apps.notebooks.pages.shown import BookRow
from lockstitch.server import Actor, Reader, back, page

list_router = APIRouter(include_in_schema=False, prefix="/notebooks")

PAGE: Final = 60
"""Notebooks of one page."""

Title = Annotated[str, Form(max_length=255)]
Text = Annotated[str, Form(max_length=200_000)]


@list_router.get("", name="notebooks")
async def notebooks(request: Request, caller: Reader, skip: Annotated[int, Query(ge=0, lt=2**31)] = 0) -> HTMLResponse:
    found = await shelf.counted(caller.store, limit=PAGE + 1, offset=skip)
    rows = [
        BookRow(
            id=one.notebook.number,
            title=one.notebook.title,
            description=one.notebook.description or "",
            sources=one.sources,
            chats=one.chats,
            updated_at=max(one.notebook.updated_at, one.last_chat_at or one.notebook.updated_at),
        )
        for one in found[:PAGE]
    ]
    more = skip + PAGE if len(found) > PAGE else None
    shown: dict[str, Any] = {"rows": rows, "more": more, "paged": bool(skip), "can_act": caller.may("write")}
    return page(request, caller, "notebooks/list.html", **shown)


@list_router.get("/new")
async def new(request: Request, caller: Reader) -> HTMLResponse:
    """The form for a new notebook, for who has no script."""
    return page(request, caller, "notebooks/edit.html", notebook=None)


@list_router.post("")
async def make(
    request: Request, caller: Actor, title: Title = "", description: Text = "", instructions: Text = ""
) -> Response:
    made = await shelf.create(
        caller.store,
        title.strip() or None,
        description=description.strip() or None,
        instructions=instructions.strip() or None,
    )
    return back(request, f"/notebooks/{made.id}")
