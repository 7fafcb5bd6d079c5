"""The annotation queue: one run after the other, to rate it, comment on it or add it to a dataset."""

import math
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Form, Request
from starlette.responses import Response

from lockstitch.agents.evals.stored_datasets import Datasets
from lockstitch.errors import Refused
from lockstitch.model import Json, Run
from lockstitch.model.message import blocks
from lockstitch.server.auth import Caller, FormWriter, Reader
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.pages.common.content import CONTENT_LIMIT, cut
from lockstitch.server.pages.common.markdown import markdown_blocks
from lockstitch.server.pages.common.render import redirect_to, render_page
from lockstitch.server.pages.common.rows import title_of
from lockstitch.server.pages.evals.datasets import add_case
from lockstitch.server.pages.feedback.view import THUMBS, change_own, feedback_on_run
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.pages.threads.filters import Filters, filters_of
from lockstitch.server.pages.threads.reader import matching
from lockstitch.store.annotation import RunsToAnnotate, place_of, runs_to_annotate
from lockstitch.store.datasets import content_of

router = page_router()

_DATASETS: Final = 50
"""Maximum number of datasets that the page suggests."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The settings of the queue, as the address of the page has them."""

    filters: Filters
    """The filters of the list of threads."""
    criterion: str = THUMBS
    """The name of the feedback."""
    dataset: str = ""
    """The dataset that runs are added to."""
    rated: bool = False
    """True if the queue also has runs with feedback of the caller."""

    @classmethod
    def of(cls, request: Request) -> "Queue":
        """Return the settings of the address."""
        criterion, dataset = (
            request.query_params.get(name, "").replace("\0", "").strip()[:255] for name in ("criterion", "dataset")
        )
        return cls(filters_of(request), criterion or THUMBS, dataset, "rated" in request.query_params)

    @property
    def filter_values(self) -> dict[str, str]:
        """The filters that are set, by name."""
        values = {field.name: getattr(self.filters, field.name) for field in fields(Filters) if field.name != "columns"}
        return {name: value for name, value in values.items() if value}

    def address(self, **more: str) -> str:
        """Return the path of the page with these settings."""
        own = {
            "criterion": "" if self.criterion == THUMBS else self.criterion,
            "dataset": self.dataset,
            "rated": "true" if self.rated else "",
        }
        values = {name: value for name, value in (self.filter_values | own | more).items() if value}
        return f"/annotate?{urlencode(values)}" if values else "/annotate"

    async def beside(self, caller: Caller, after: str = "", *, backwards: bool = False) -> RunsToAnnotate:
        """Return the next run, or the previous one, which may have feedback of the caller."""
        return await runs_to_annotate(
            caller.store,
            without_feedback_of=None if self.rated or backwards else caller.actor,
            name=self.criterion,
            limit=1,
            after=after or None,
            backwards=backwards,
            **await matching(caller.store, self.filters),
        )


@router.get("/annotate", name="annotate")
async def annotate(request: Request, caller: Reader, run: str = "", after: str = "", before: str = "") -> Response:
    """Render a run of the queue. Without one, redirect to the next run after a place, or to the one before it."""
    queue = Queue.of(request)
    if not run:
        return await _go(request, caller, queue, before or after, backwards=bool(before))
    shown = await caller.store.run(run)
    head = await caller.store.thread(shown.thread_id)
    add_log_fields(run=shown.id, thread=head.id)
    inputs, outputs = await content_of(caller.store, shown) or (None, None)
    context: dict[str, Any] = {
        "title": title_of(head),
        "place": place_of(shown),
        "question": _content(inputs, "input"),
        "answer": _content(outputs, "output"),
        "given": await feedback_on_run(caller, shown, queue.criterion),
        "thumbs": queue.criterion == THUMBS,
    }
    return await _render(request, caller, queue, shown, **context)


@router.post("/annotate")
async def change(
    request: Request,
    caller: FormWriter,
    run: Annotated[str, Form(max_length=300)],
    score: Annotated[str | None, Form(max_length=40)] = None,
    comment: Annotated[str | None, Form(max_length=20_000)] = None,
    dataset: Annotated[str, Form(max_length=255)] = "",
) -> Response:
    """Give feedback on a run or add it to a dataset. After a score, the next run is shown."""
    queue = Queue.of(request)
    rated = await caller.store.run(run)
    add_log_fields(run=rated.id, thread=rated.thread_id)
    if dataset.strip():
        _, text = await add_case(caller, rated, dataset)
    elif comment is not None:
        text = await change_own(caller, rated, {"comment": comment.strip() or None}, queue.criterion)
    else:
        value = _score(score or "")
        text = await change_own(caller, rated, {"score": value}, queue.criterion)
        if value is not None:
            return await _go(request, caller, queue, place_of(rated), text=text)
    return redirect_to(request, queue.address(run=str(rated.id)), text)


async def _go(
    request: Request, caller: Caller, queue: Queue, place: str, *, backwards: bool = False, text: str = ""
) -> Response:
    """Redirect to the run beside a place. Without one, render a page that says so."""
    page = await queue.beside(caller, place, backwards=backwards)
    if page.runs:
        return redirect_to(request, queue.address(run=str(page.runs[0].id)), text)
    if request.method == "POST":
        return redirect_to(request, queue.address(after=place), text)
    # A long part of the queue without a run to rate is not read at once.
    more = queue.address(**{"before" if backwards else "after": page.next}) if page.next else ""
    return await _render(request, caller, queue, None, more=more, backwards=backwards, place="" if backwards else place)


async def _render(request: Request, caller: Caller, queue: Queue, run: Run | None, **context: Any) -> Response:
    datasets = await Datasets(caller.store).list(limit=_DATASETS)
    names = [row["name"] for row in datasets["datasets"]]
    return render_page(request, caller, "annotate.html", queue=queue, run=run, names=names, **context)


def _score(text: str) -> float | None:
    """Return the score of the form. An empty text is none."""
    try:
        score = float(text) if text.strip() else None
    except ValueError:
        score = math.nan
    if score is not None and not math.isfinite(score):
        raise Refused(f"The score {text!r} is not a number. Nothing was changed.")
    return score


def _content(values: Json | None, name: str) -> tuple[str, Any]:
    """Return a question or an answer as blocks of Markdown or as JSON."""
    value: Any = values[name] if values is not None and list(values) == [name] else values
    parts = blocks({"content": value})
    if parts and all(isinstance(part.get("type"), str) for part in parts):
        value = "\n\n".join(str(part["text"]) if part["type"] == "text" else f"[{part['type']}]" for part in parts)
    if value is None or isinstance(value, str):
        return "text", markdown_blocks(cut(value or "", CONTENT_LIMIT))
    return "json", value
