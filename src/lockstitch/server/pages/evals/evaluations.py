"""The pages of evaluations: the list, one evaluation with its cases, and the comparison of several."""

from collections.abc import Sequence
from typing import Annotated, Any, Final
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Form, Query, Request
from starlette.responses import HTMLResponse, Response

from lockstitch.agents.evals.comparison import Shown
from lockstitch.agents.evals.requests import EvalRequest
from lockstitch.agents.evals.results import CaseSummary
from lockstitch.agents.evals.stored_evals import MAX_COMPARED, Evals
from lockstitch.model import parse_time
from lockstitch.server.api.evals.evaluations import start_eval
from lockstitch.server.auth import FormWriter, Reader
from lockstitch.server.pages.common import forms
from lockstitch.server.pages.common.render import is_htmx_request, redirect_to, render_page
from lockstitch.server.pages.common.run_ends import ends_of
from lockstitch.server.pages.navbar import page_router
from lockstitch.store import Store, Where
from lockstitch.store.datasets import get_dataset

PAGE: Final = 50
CASES: Final = 100

Filter = Annotated[str, Query(max_length=255)]

router = page_router()


@router.get("/evals", name="evals")
async def evals(
    request: Request,
    caller: Reader,
    name: Filter = "",
    agent: Filter = "",
    dataset: UUID | None = None,
    after: str = "",
) -> HTMLResponse:
    """Render the list of evaluations; for htmx only the next rows."""
    page = await Evals(caller.store).list(
        name=name.strip() or None,
        agent=agent.strip() or None,
        dataset=str(dataset) if dataset is not None else None,
        limit=PAGE,
        after=after or None,
    )
    filters = {"name": name, "agent": agent, "dataset": dataset}
    given = {key: value for key, value in filters.items() if value}
    shown: dict[str, Any] = {
        "rows": page["evals"],
        "next": urlencode({**given, "after": page["next"]}) if page["next"] else "",
        "parse_time": parse_time,
    }
    if is_htmx_request(request):
        return render_page(request, caller, "evals/rows.html", **shown)
    of = await get_dataset(caller.store, dataset) if dataset is not None else None
    return render_page(request, caller, "evals/list.html", name=name, agent=agent, of=of, given=given, **shown)


@router.post("/evals")
async def start(
    request: Request,
    caller: FormWriter,
    agent: Annotated[str, Form(max_length=255)],
    dataset: Annotated[str, Form(max_length=300)],
    graders: Annotated[list[str] | None, Form()] = None,
    trials: Annotated[int, Form(ge=1, le=1000)] = 1,
    model: Annotated[str, Form(max_length=255)] = "",
    instructions: Annotated[str, Form(max_length=100_000)] = "",
    replay: Annotated[bool, Form()] = False,
    judge: Annotated[str, Form(max_length=255)] = "",
    criteria: Annotated[str, Form(max_length=100_000)] = "",
) -> Response:
    """Start an evaluation on this server."""
    changes: dict[str, Any] = {"model": model.strip() or None, "instructions": _text(instructions), "replay": replay}
    changes |= {"judge": judge.strip() or None, "criteria": _text(criteria)}
    started = await start_eval(caller, EvalRequest(agent, dataset, graders or [], trials=trials, **changes))
    return forms.done(request, f"/evals/{started['id']}", "Evaluation started")


@router.get("/evals/compare")
async def comparison(
    request: Request,
    caller: Reader,
    id: Annotated[list[UUID] | None, Query()] = None,
    show: Shown = "changed",
    after: Filter = "",
) -> Response:
    """Render the comparison of evaluations case by case. The first of them in time is the baseline."""
    stored, ids = Evals(caller.store), dict.fromkeys(map(str, id or ()))
    if not 2 <= len(ids) <= MAX_COMPARED:
        return redirect_to(request, "/evals", f"Select 2 to {MAX_COMPARED} evaluations.")
    records = sorted(await stored.compared([*ids]), key=lambda record: (record.created_at, record.id))
    page = await stored.comparison(records, show, limit=CASES, after=after or None)
    query = urlencode([("id", str(record.id)) for record in records])
    summaries = [summary for case in page.cases for summary in case.summaries if summary is not None]
    shown: dict[str, Any] = {
        "evals": [await stored.shown(record) for record in records],
        "ends": await _ends(caller.store, summaries),
        "differences": [None, *page.comparison.differences],
        "cases": page.cases,
        "number": page.total,
        "show": show,
        "query": query,
        "next": f"{query}&show={show}&after={page.next}" if page.next else "",
    }
    template = "evals/compared.html" if is_htmx_request(request) else "evals/compare.html"
    return render_page(request, caller, template, **shown)


@router.get("/evals/{ref}")
async def evaluation(
    request: Request, caller: Reader, ref: UUID, failed: bool = False, after: int | None = None
) -> HTMLResponse:
    """Render an evaluation with its cases; for htmx the next rows, or the page while it runs."""
    stored = Evals(caller.store)
    record = await stored.record(str(ref))
    summaries, last = await stored.summaries(record, failed=failed, limit=CASES, after=after)
    href = f"/evals/{ref}"
    shown: dict[str, Any] = {
        "cases": summaries,
        "ends": await _ends(caller.store, summaries),
        "failed": failed,
        "href": href,
        "next": urlencode({"after": last, **({"failed": "true"} if failed else {})}) if last is not None else "",
    }
    if is_htmx_request(request) and after is not None:
        return render_page(request, caller, "evals/cases.html", **shown)
    about = await stored.get(str(ref))
    same_name = (await stored.list(name=about["name"], limit=20))["evals"]
    earlier = next((row for row in same_name if row["number"] < about["number"] and row["score"] is not None), None)
    return render_page(
        request, caller, "evals/evaluation.html", eval=about, earlier=earlier, parse_time=parse_time, **shown
    )


def _text(value: str) -> str | None:
    return value.replace("\r\n", "\n").strip() or None


async def _ends(store: Store, summaries: Sequence[CaseSummary]) -> dict[UUID, dict[str, str]]:
    """Return the input and the answer of the first trial of each case, by the id of its run."""
    first = [summary.outcomes[0] for summary in summaries]
    runs = {
        trial.thread_id: trial.run_id for trial in first if trial.thread_id is not None and trial.run_id is not None
    }
    if not runs:
        return {}
    found = await store.find_runs(list(runs), Where("id", "in", list(runs.values())), order=())
    return {runs[thread_id]: texts for thread_id, texts in (await ends_of(store, found)).items()}
