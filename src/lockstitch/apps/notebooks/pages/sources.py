"""A source: its passages with the one that is cited, and how sources come and go."""

import re
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Form, Query, Request, UploadFile
from starlette.responses import HTMLResponse, Response

from lockstitch.apps.notebooks import notebooks, sources
from lockstitch.apps.notebooks.pages.notebook import Application, source_row, ways
from lockstitch.apps.notebooks.records import Notebook, Passage, Source
from lockstitch.errors import Refused
from lockstitch.model import Json
from lockstitch.model.format import plural, size
from lockstitch.server import Caller, FormWriter, Reader, redirect_to, render_page
from lockstitch.server.pages.common import format

router = APIRouter(include_in_schema=False, prefix="/notebooks/{notebook_id}/sources")

PAGE: Final = 40
"""Passages of one page."""

_BEFORE: Final = 5
"""Of them, those that stand before the one that was asked for."""

_RANGE: Final = re.compile(r"(\d{1,15})-(\d{1,15})")

Number = Annotated[int, Query(ge=1, lt=2**31)]
Field = Annotated[str, Form()]


@router.get("/new")
async def new(request: Request, caller: Reader, application: Application, notebook_id: int) -> HTMLResponse:
    """The ways in which a source comes in, for who has no script."""
    return _ways(request, caller, application, await notebooks.get(caller.store, notebook_id))


@router.post("")
async def add(
    request: Request,
    caller: FormWriter,
    application: Application,
    notebook_id: int,
    title: Annotated[str, Form(max_length=255)] = "",
    text: Field = "",
    url: Annotated[str, Form(max_length=4000)] = "",
    file: UploadFile | None = None,
) -> Response:
    """A file, a text or an address. What is wrong with it is said where one can try again, and nothing was changed."""
    found = await notebooks.get(caller.store, notebook_id)
    try:
        if url.strip():
            source = await application.add_url(caller.store, found.number, url.strip())
        else:
            name, content = await _content(title, text, file)
            source = await application.add_source(caller.store, found.number, name, content)
    except Refused as exc:
        return _ways(request, caller, application, found, str(exc))
    return redirect_to(
        request, f"/notebooks/{found.id}", f"Added {source.name[:80]}: {plural(source.passages, 'passage')}"
    )


@router.get("/{source_id}", name="notebook_source")
async def source(
    request: Request,
    caller: Reader,
    notebook_id: int,
    source_id: UUID,
    passage: Number | None = None,
    mark: Annotated[str, Query(max_length=40)] = "",
) -> HTMLResponse:
    """The passages of a source, from a little before the one that was asked for, with what is marked in that."""
    found = await notebooks.get(caller.store, notebook_id)
    one = await sources.get(caller.store, found, source_id)
    first = max(1, (passage or 1) - _BEFORE)
    shown = await sources.passages(caller.store, one, after=first - 1, limit=PAGE)
    last = first + len(shown) - 1
    context: dict[str, Any] = {
        "notebook": found,
        "source": source_row(one),
        "passages": [_shown(each, mark if each.number == passage else None) for each in shown],
        "marked": passage,
        "earlier": max(1, first - PAGE) + _BEFORE if first > 1 else None,
        "later": last + 1 + _BEFORE if shown and last < one.passages else None,
        "facts": _facts(one),
        "can_act": caller.may("write"),
    }
    return render_page(request, caller, "notebooks/source.html", **context)


@router.post("/{source_id}/remove")
async def remove(request: Request, caller: FormWriter, notebook_id: int, source_id: UUID) -> Response:
    found = await notebooks.get(caller.store, notebook_id)
    one = await sources.get(caller.store, found, source_id)
    await sources.remove(caller.store, found, one.id)
    await caller.store.audits.record(caller.actor, "remove source", str(one.id), name=one.name, notebook=found.id)
    return redirect_to(request, f"/notebooks/{found.id}", f"Removed {one.name[:80]}")


async def _content(title: str, text: str, file: UploadFile | None) -> tuple[str, bytes]:
    """What a source is called, and its bytes. A text that was pasted is read as Markdown."""
    if file is not None and file.filename:
        return file.filename, await file.read()
    if not text.strip():
        raise Refused("Choose a file or enter a text. Nothing was added.")
    name = title.strip() or "Pasted text"
    return name if name.lower().endswith((".md", ".txt")) else f"{name}.md", text.encode(errors="surrogatepass")


def _shown(one: Passage, mark: str | None) -> Json:
    return {"number": one.number, "where": one.place.words, "text": _marked(one, mark)}


def _marked(one: Passage, mark: str | None) -> tuple[str, str, str]:
    """A passage in three; what stands in the middle is marked. One that is chosen without more is marked whole."""
    text = one.text
    if mark is None:
        return text.strip(), "", ""
    range_ = _RANGE.fullmatch(mark)
    start, end = (int(range_[1]) - one.start_at, int(range_[2]) - one.start_at) if range_ else (-1, -1)
    if 0 <= start < end <= len(text):
        return text[:start].lstrip("\n"), text[start:end], text[end:].rstrip()
    return "", text.strip(), ""


def _ways(request: Request, caller: Caller, application: Any, found: Notebook, wrong: str = "") -> HTMLResponse:
    context: dict[str, Any] = {"notebook": found, "wrong": wrong, **ways(application)}
    return render_page(request, caller, "notebooks/add.html", status=422 if wrong else 200, **context)


def _facts(one: Source) -> list[tuple[str, str]]:
    known = [
        ("Kind", {"pdf": "PDF", "html": "HTML", "markdown": "Markdown"}.get(one.kind, "Text")),
        ("Pages", f"{one.pages:,}" if one.pages else ""),
        ("Passages", f"{one.passages:,}"),
        ("Characters", f"{one.characters:,}"),
        ("File", size(one.size)),
        ("Title", one.title or ""),
        ("From", one.url or ""),
        ("Found by", "words and meaning" if one.embedder else "words"),
        ("Added", format.day_and_time(one.created_at)),
    ]
    return [(name, value) for name, value in known if value]
