"""Saved views of the list of threads."""

from typing import Annotated

from fastapi import Path
from pydantic import Field

from lockstitch.model.figures import ThreadSort
from lockstitch.server.api import responses
from lockstitch.server.api.schemas import Body, ExactJSON, Name, TextParam, rows
from lockstitch.server.auth import Reader, Writer
from lockstitch.server.routing import LazyRouter
from lockstitch.store.saved_views import delete_view, rename_view, save_view, saved_views

router = LazyRouter(prefix="/api/views", tags=["threads"], default_response_class=ExactJSON)

ViewName = Annotated[TextParam, Path(description="Name of the view.", min_length=1, max_length=255)]
Column = Annotated[TextParam, Field(max_length=50)]


class View(Body):
    """Filters, columns and order of a view."""

    filters: Annotated[dict[Name, Annotated[TextParam, Field(max_length=255)]], Field(max_length=50)] = {}
    columns: Annotated[list[Column], Field(max_length=50)] = []
    sort: ThreadSort = "time"
    ascending: bool = False
    is_default: bool = False


class NewName(Body):
    """The new name of a view."""

    name: Name


@router.get("", response_model=list[responses.SavedView])
async def views(caller: Reader) -> ExactJSON:
    """List the views of the project, by name."""
    return ExactJSON(rows(await saved_views(caller.store)))


@router.put("/{name:path}", response_model=responses.SavedView)
async def save(caller: Writer, name: ViewName, view: View) -> ExactJSON:
    """Create or replace a view."""
    return ExactJSON((await save_view(caller.store, name, **view.model_dump())).as_json())


@router.patch("/{name:path}", response_model=responses.SavedView)
async def rename(caller: Writer, name: ViewName, body: NewName) -> ExactJSON:
    """Rename a view."""
    return ExactJSON((await rename_view(caller.store, name, body.name)).as_json())


@router.delete("/{name:path}", response_model=responses.Deleted)
async def delete(caller: Writer, name: ViewName) -> ExactJSON:
    """Delete a view."""
    await delete_view(caller.store, name)
    return ExactJSON({"deleted": 1})
