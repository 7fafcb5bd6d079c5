"""Pages that show, add and remove sources."""

import re
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Form, Query, Request, UploadFile
from starlette.responses import HTMLResponse, Response

from lockstitch import Refused
from lockstitch.apps.notebooks import notebooks, sources
from lockstitch.apps.notebooks.pages.notebook import Application, source_options, source_row
from lockstitch.apps.notebooks.records import Notebook, Passage, Source
from lockstitch.ext import Json, format_size, plural
from lockstitch.server import Caller, FormWriter, Reader, day_and_time, redirect_to, render_page

router = APIRouter(include_in_schema=False, prefix="/notebooks/{notebook_id}/sources")

PAGE: Final = 40
"""Number of passages on one page."""

_BEFORE: Final = 5
"""Number of passages before the requested passage."""

_RANGE: Final = re.compile(r"(\d{1,15})-(\d{1,15})")

Number = Annotated[int, Query(ge=1, lt=2**31)]
Field = Annotated[str, Form()]


@router.get("/new")
async def new(request: Request, caller: Reader, application: Application, notebook_id: int) -> HTMLResponse:
    """Show the form for a new source, for browsers without JavaScript."""
    return _add_form(request, caller, application, await notebooks.get(caller.store, notebook_id))


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
    """Add a file, a text or a URL. If it is rejected, show the form again with the reason."""
    notebook = await notebooks.get(caller.store, notebook_id)
    try:
        if url.strip():
            source = await application.add_url(caller.store, notebook.number, url.strip())
        else:
            name, content = await _content(title, text, file)
            source = await application.add_source(caller.store, notebook.number, name, content)
    except Refused as exc:
        return _add_form(request, caller, application, notebook, str(exc))
    return redirect_to(
        request, f"/notebooks/{notebook.id}", f"Added {source.name[:80]}: {plural(source.passages, 'passage')}"
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
    """Show passages of a source around the requested passage, with the cited text highlighted."""
    notebook = await notebooks.get(caller.store, notebook_id)
    record = await sources.get(caller.store, notebook, source_id)
    first = max(1, (passage or 1) - _BEFORE)
    passages = await sources.passages(caller.store, record, after=first - 1, limit=PAGE)
    last = first + len(passages) - 1
    context: dict[str, Any] = {
        "notebook": notebook,
        "source": source_row(record),
        "passages": [_shown(shown, mark if shown.number == passage else None) for shown in passages],
        "marked": passage,
        "earlier": max(1, first - PAGE) + _BEFORE if first > 1 else None,
        "later": last + 1 + _BEFORE if passages and last < record.passages else None,
        "facts": _facts(record),
        "can_act": caller.may("write"),
    }
    return render_page(request, caller, "notebooks/source.html", **context)


@router.post("/{source_id}/remove")
async def remove(request: Request, caller: FormWriter, notebook_id: int, source_id: UUID) -> Response:
    notebook = await notebooks.get(caller.store, notebook_id)
    source = await sources.get(caller.store, notebook, source_id)
    await sources.remove(caller.store, notebook, source.id)
    await caller.store.audits.record(
        caller.actor, "remove source", str(source.id), name=source.name, notebook=notebook.id
    )
    return redirect_to(request, f"/notebooks/{notebook.id}", f"Removed {source.name[:80]}")


async def _content(title: str, text: str, file: UploadFile | None) -> tuple[str, bytes]:
    """Return the name and the bytes of a source. A pasted text is Markdown."""
    if file is not None and file.filename:
        return file.filename, await file.read()
    if not text.strip():
        raise Refused("Choose a file or enter a text. Nothing was added.")
    name = title.strip() or "Pasted text"
    return name if name.lower().endswith((".md", ".txt")) else f"{name}.md", text.encode(errors="surrogatepass")


def _shown(passage: Passage, mark: str | None) -> Json:
    return {"number": passage.number, "where": passage.place.words, "text": _marked(passage, mark)}


def _marked(passage: Passage, mark: str | None) -> tuple[str, str, str]:
    """Return the text before, in and after the highlight. Without a valid range the whole passage is highlighted."""
    text = passage.text
    if mark is None:
        return text.strip(), "", ""
    range_ = _RANGE.fullmatch(mark)
    start, end = (int(range_[1]) - passage.start_at, int(range_[2]) - passage.start_at) if range_ else (-1, -1)
    if 0 <= start < end <= len(text):
        return text[:start].lstrip("\n"), text[start:end], text[end:].rstrip()
    return "", text.strip(), ""


def _add_form(request: Request, caller: Caller, application: Any, notebook: Notebook, wrong: str = "") -> HTMLResponse:
    context: dict[str, Any] = {"notebook": notebook, "wrong": wrong, **source_options(application)}
    return render_page(request, caller, "notebooks/add.html", status=422 if wrong else 200, **context)


def _facts(source: Source) -> list[tuple[str, str]]:
    known = [
        ("Kind", {"pdf": "PDF", "html": "HTML", "markdown": "Markdown"}.get(source.kind, "Text")),
        ("Pages", f"{source.pages:,}" if source.pages else ""),
        ("Passages", f"{source.passages:,}"),
        ("Characters", f"{source.characters:,}"),
        ("File", format_size(source.size)),
        ("Title", source.title or ""),
        ("From", source.url or ""),
        ("Found by", "words and meaning" if source.embedder else "words"),
        ("Added", day_and_time(source.created_at)),
    ]
    return [(name, value) for name, value in known if value]
