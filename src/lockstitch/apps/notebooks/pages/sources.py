"""A source: its passages with the one that is cited, and how sources come and go."""

import re
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Form, Query, Request, UploadFile
from starlette.responses import HTMLResponse, Response

from lockstitch import Refused
from lockstitch.apps.notebooks import notebooks, sources
from lockstitch.apps.notebooks.pages.notebook import Application, source_row, ways
from lockstitch.apps.notebooks.records import Notebook, Passage, Source
from lockstitch.ext import Json, format_size, plural
from lockstitch.server import Caller, FormWriter, Reader, day_and_time, redirect_to, render_page

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
    notebook = await notebooks.get(caller.store, notebook_id)
    try:
        if url.strip():
            source = await application.add_url(caller.store, notebook.number, url.strip())
        else:
            name, content = await _content(title, text, file)
            source = await application.add_source(caller.store, notebook.number, name, content)
    except Refused as exc:
        return _ways(request, caller, application, notebook, str(exc))
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
    """The passages of a source, from a little before the one that was asked for, with what is marked in that."""
    notebook = await notebooks.get(caller.store, notebook_id)
    other_source = await sources.get(caller.store, notebook, source_id)
    first = max(1, (passage or 1) - _BEFORE)
    passages = await sources.passages(caller.store, other_source, after=first - 1, limit=PAGE)
    last = first + len(passages) - 1
    context: dict[str, Any] = {
        "notebook": notebook,
        "source": source_row(other_source),
        "passages": [
            _shown(other_passage, mark if other_passage.number == passage else None) for other_passage in passages
        ],
        "marked": passage,
        "earlier": max(1, first - PAGE) + _BEFORE if first > 1 else None,
        "later": last + 1 + _BEFORE if passages and last < other_source.passages else None,
        "facts": _facts(other_source),
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
    """What a source is called, and its bytes. A text that was pasted is read as Markdown."""
    if file is not None and file.filename:
        return file.filename, await file.read()
    if not text.strip():
        raise Refused("Choose a file or enter a text. Nothing was added.")
    name = title.strip() or "Pasted text"
    return name if name.lower().endswith((".md", ".txt")) else f"{name}.md", text.encode(errors="surrogatepass")


def _shown(passage: Passage, mark: str | None) -> Json:
    return {"number": passage.number, "where": passage.place.words, "text": _marked(passage, mark)}


def _marked(passage: Passage, mark: str | None) -> tuple[str, str, str]:
    """A passage in three; what stands in the middle is marked. One that is chosen without more is marked whole."""
    text = passage.text
    if mark is None:
        return text.strip(), "", ""
    range_ = _RANGE.fullmatch(mark)
    start, end = (int(range_[1]) - passage.start_at, int(range_[2]) - passage.start_at) if range_ else (-1, -1)
    if 0 <= start < end <= len(text):
        return text[:start].lstrip("\n"), text[start:end], text[end:].rstrip()
    return "", text.strip(), ""


def _ways(request: Request, caller: Caller, application: Any, notebook: Notebook, wrong: str = "") -> HTMLResponse:
    context: dict[str, Any] = {"notebook": notebook, "wrong": wrong, **ways(application)}
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
