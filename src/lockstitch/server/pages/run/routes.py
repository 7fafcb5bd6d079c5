"""Routes of the run page, its totals and exports."""

import gc
import time
from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from lockstitch.errors import LockstitchError
from lockstitch.integrations.export.bundle import export_bundle
from lockstitch.integrations.langsmith.export import export_run
from lockstitch.model import Run, Stitch, Thread, codec
from lockstitch.model.statistics import TOOL_ERRORS
from lockstitch.server.auth import Caller, Reader
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.pages.common.render import base_path, render_page
from lockstitch.server.pages.feedback.view import feedback_on_run
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.pages.run import panel, parts
from lockstitch.server.pages.run.compare import counterpart
from lockstitch.server.pages.run.replay import can_replay, prompt_of
from lockstitch.server.pages.run.time_scale import ticks
from lockstitch.server.pages.run.waterfall import Waterfall, waterfall
from lockstitch.server.problems import Problem
from lockstitch.store import Where
from lockstitch.store.reports.trace import Node
from lockstitch.store.reports.traces import Trace


@dataclass(slots=True)
class Sums:
    """Totals of the tree of a run. Times cover the calls of the run and its members. Costs include children."""

    steps: int
    milliseconds: float | None = None
    model: int = 0
    tools: int = 0
    pauses: int = 0
    children: int = 0
    steps_below: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float | None = None
    retries: int = 0
    errors: int = 0

    @property
    def share(self) -> int:
        """Share of the input tokens from the cache, in percent."""
        return round(100 * self.cached / self.input) if self.input else 0


def sums_of(trace: Trace) -> Sums:
    run = trace.run
    sums = Sums(run.steps, trace.root.duration_ms, cost=trace.root.total_cost())
    sums.input, sums.cached, sums.output = run.input_tokens, run.cache_read_tokens, run.output_tokens
    waiting: list[tuple[Node, bool]] = [(trace.root, False)]
    while waiting:
        node, elsewhere = waiting.pop()
        _count(sums, node, elsewhere, trace.root)
        waiting += [(child, elsewhere or node.kind == "thread") for child in node.children]
    return sums


def _count(sums: Sums, node: Node, elsewhere: bool, root: Node) -> None:
    wrong = node.status in TOOL_ERRORS or node.type.endswith(("_error", "_failed"))
    if node.type == "api_retry":
        sums.retries += 1
    elif wrong and node is not root and node.kind not in ("thread", "run") and node.type != "tool_error":
        # The failed call is counted. Its tool_error stitch is the same error.
        sums.errors += 1
    if node.kind == "thread":
        sums.children += 1
    elif node.kind == "run" and node is not root and not elsewhere:
        for name, count in (node.usage or {}).items():
            match name:
                case "input_tokens":
                    sums.input += count
                case "output_tokens":
                    sums.output += count
                case "cache_read_input_tokens":
                    sums.cached += count
                case _:
                    pass
    if elsewhere:
        sums.steps_below += node.step is not None
        return
    sums.pauses += node.pause_ms or 0
    if node.kind == "model":
        sums.model += node.duration_ms or 0
    elif node.kind == "tool":
        sums.tools += node.duration_ms or 0


router = page_router()

FIRST: Final = 60
"""Number of rows in the HTML of the page."""

MOST: Final = 200_000
"""Maximum number of rows."""

_OTHERS: Final = 20
_SECONDS: Final = 5.0
"""Seconds for which a view is cached: the page and its rows are separate requests."""
_CACHE_SIZE: Final = 4

_drawn: "OrderedDict[tuple[object, ...], tuple[float, RunPageView]]" = OrderedDict()


@dataclass(frozen=True, slots=True)
class RunPageView:
    """The waterfall of a run and its totals."""

    rows: Waterfall
    sums: Sums


@router.get("/run/{ref}")
async def run_page(request: Request, caller: Reader, ref: str, at: str = "", against: str = "") -> HTMLResponse:
    """Render a run, by its id or its id in the source system."""
    run, head = await _load_run(caller, ref)
    run_page_view = await view_of(caller, run, head)
    before, after = await _neighbours(caller, run)
    other_runs = await _other_runs(caller, run)
    may_replay = can_replay(caller, run, head)
    if not against:
        against = str(await counterpart(caller.store, run, head) or "")
    return render_page(
        request,
        caller,
        "run/run.html",
        run=run,
        thread=head,
        person=any(wait.needs_person for wait in head.waits),
        sums=run_page_view.sums,
        before=before,
        after=after,
        other_runs=other_runs,
        against="" if against == "none" else against,
        at=at,
        can_replay=may_replay,
        prompt=await prompt_of(caller, run) if may_replay else "",
        panel=await panel_at(caller, run, at or "run"),
        given=await feedback_on_run(caller, run),
        run_path=_path(request, run),
        shared=False,
        **first_rows(run_page_view),
    )


@router.get("/run/{ref}/rows")
async def run_rows(caller: Reader, ref: str) -> Response:
    """Return all rows of the waterfall as columns: a JSON header, then arrays of numbers."""
    run, head = await _load_run(caller, ref)
    run_page_view = await view_of(caller, run, head)
    return Response(run_page_view.rows.packed(), media_type="application/octet-stream")


@router.get("/run/{ref}/panel")
async def run_panel(request: Request, caller: Reader, ref: str, at: str = "run") -> HTMLResponse:
    """Render the panel of a row."""
    run, _ = await _load_run(caller, ref)
    shown, path = await panel_at(caller, run, at), _path(request, run)
    return render_page(request, caller, "run/panel.html", run=run, at=at, panel=shown, run_path=path, shared=False)


@router.get("/run/{ref}/text")
async def run_text(caller: Reader, ref: str, at: str, of: str = "stitch", pointer: str = "") -> Response:
    """Return a full text of which the panel shows the start."""
    run, _ = await _load_run(caller, ref)
    return Response(await parts.text_at(caller.store, run, at, of, pointer), media_type="text/plain; charset=utf-8")


async def view_of(caller: Caller, run: Run, head: Thread) -> RunPageView:
    """Return the view of a run, cached for a few seconds."""
    key = (id(caller.state.store.identity), caller.project, run.id, head.position, head.fence, head.updated_at)
    known = _drawn.pop(key, None)
    if known is None or known[0] < time.monotonic():
        with _without_garbage_collection():
            trace = await caller.store.trace_outline(run.id, limit=MOST)
            now = caller.store.clock.now()
            drawn = RunPageView(waterfall(trace, head, now), sums_of(trace))
        known = (time.monotonic() + _SECONDS, drawn)
    _drawn[key] = known
    while len(_drawn) > _CACHE_SIZE:
        _drawn.popitem(last=False)
    return known[1]


@contextmanager
def _without_garbage_collection() -> Generator[None]:
    """Disable garbage collection while a tree is built. It would take a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


async def _load_run(caller: Caller, ref: str) -> tuple[Run, Thread]:
    run = await caller.store.run(ref)
    add_log_fields(run=run.id, thread=run.thread_id)
    return run, await caller.store.thread(run.thread_id)


def first_rows(run_page_view: RunPageView) -> dict[str, Any]:
    """Return the context of the waterfall: its first rows and its time axis."""
    rows = run_page_view.rows
    return {"rows": rows, "first": list(rows.rows(FIRST)), "ticks": ticks(rows.scale)}


def _path(request: Request, run: Run) -> str:
    return f"{base_path(request)}/run/{run.id}"


async def panel_at(caller: Caller, run: Run, at: str) -> panel.Panel:
    """Return the panel of a row, or a panel with the error."""
    try:
        return await panel.panel_of(caller.store, run, at)
    except (LockstitchError, Problem) as exc:
        return panel.broken(str(exc))


async def _neighbours(caller: Caller, run: Run) -> tuple[Run | None, Run | None]:
    """Return the previous and the next run of the thread. Runs of members are skipped."""
    find, of = caller.store.find_runs, (run.thread_id, Where("parent_run_id", "is null"))
    before = await find(*of, Where("sequence", "<", run.sequence), order=("-sequence",), limit=1)
    after = await find(*of, Where("sequence", ">", run.sequence), limit=1)
    return (before or [None])[0], (after or [None])[0]


async def _other_runs(caller: Caller, run: Run) -> list[Run]:
    """Return the latest other runs of the thread."""
    top_level = Where("parent_run_id", "is null")
    runs = await caller.store.find_runs(run.thread_id, top_level, order=("-sequence",), limit=_OTHERS + 1)
    return [other_run for other_run in runs if other_run.id != run.id][:_OTHERS]


FORMATS: Final = ("langsmith", "log", "bundle")


@router.get("/run/{ref}/export/{form}")
async def export(caller: Reader, ref: str, form: str) -> Response:
    """Download the run in a format."""
    if form not in FORMATS:
        raise Problem(404, "Unknown format", f"Use one of: {', '.join(FORMATS)}.")
    run = await caller.store.run(ref)
    add_log_fields(run=run.id, thread=run.thread_id)
    match form:
        case "langsmith":
            body = codec.dumps(await export_run(caller.store, str(run.id)))
            return _file(f"run-{run.id}.langsmith.json", "application/json", body)
        case "log":
            log = await caller.store.log(run.id)
            headers = _named(f"run-{run.id}.jsonl")
            return StreamingResponse(_lines(log), headers=headers, media_type="application/jsonl")
        case _:
            with TemporaryDirectory(prefix="lockstitch-") as folder:
                path = Path(folder) / "bundle.zip"
                await export_bundle(caller.store, run.thread_id, path)
                return _file(f"thread-{run.thread_id}.zip", "application/zip", path.read_bytes())


def _lines(log: list[Stitch]) -> Iterator[bytes]:
    for start in range(0, len(log), 500):
        yield b"".join(codec.dumps(stitch.as_json()) + b"\n" for stitch in log[start : start + 500])


def _file(name: str, media_type: str, body: bytes) -> Response:
    return Response(body, headers=_named(name), media_type=media_type)


def _named(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
