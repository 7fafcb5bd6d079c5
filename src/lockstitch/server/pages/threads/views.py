"""Routes of the saved views of the list of threads."""

from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Form, Request
from starlette.responses import Response

from lockstitch.server.auth import FormWriter
from lockstitch.server.pages.common import forms
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.pages.threads.filters import Filters
from lockstitch.store.saved_views import delete_view, rename_view, save_view, saved_views

router = page_router("/views")

ViewName = Annotated[str, Form(min_length=1, max_length=255)]


@router.post("")
async def save(request: Request, caller: FormWriter, view: ViewName, default: bool = Form(default=False)) -> Response:
    """Save the filters, columns and order of the form as a view."""
    form = await request.form()
    sent = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    if "q" not in form:
        # Without JavaScript the form has the address of the page instead of the fields of the filters.
        sent = parse_qsl(str(form.get("query", "")).removeprefix("?"))
    filters = Filters.of(dict(sent), [value for name, value in sent if name == "columns"])
    await save_view(caller.store, view.strip(), **filters.as_view(), is_default=default)
    return forms.done(request, f"/{filters.address()}", f"Saved the view “{view.strip()}”")


@router.post("/rename")
async def rename(request: Request, caller: FormWriter, view: ViewName, old: ViewName) -> Response:
    renamed = await rename_view(caller.store, old, view.strip())
    return forms.done(request, f"/{Filters.of_view(renamed).address()}", f"Renamed the view to “{renamed.name}”")


@router.post("/delete")
async def delete(request: Request, caller: FormWriter, view: ViewName) -> Response:
    await delete_view(caller.store, view)
    left = await saved_views(caller.store)
    return forms.done(request, "/" if left else "/?status=", f"Deleted the view “{view}”")
