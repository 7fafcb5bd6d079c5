"""Looking at a run: the page, its rows as one answer, and the panel of whatever row is chosen."""

import gc
import time
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from lockstitch.backend import Find, Where
from lockstitch.errors import LockstitchError
from lockstitch.records import Run, Thread
from lockstitch.records.thread import PERSONAL
from lockstitch.server.access import Caller, Reader
from lockstitch.server.guard import mention
from lockstitch.server.pages.frame import page
from lockstitch.server.pages.run import panel, texts
from lockstitch.server.pages.run.sums import Sums, sums_of
from lockstitch.server.pages.run.waterfall import Waterfall, waterfall
from lockstitch.server.problems import Problem

router = APIRouter(include_in_schema=False)

FIRST: Final = 60
"""Rows that come with the page."""

MOST: Final = 200_000
"""Rows that are drawn at most."""

_OTHERS: Final = 20
_SECONDS: Final = 5.0
"""How long a picture is good for: the page and its rows are asked for one after the other."""
_KEPT: Final = 4

_drawn: "OrderedDict[tuple[object, ...], tuple[float, Picture]]" = OrderedDict()


@dataclass(frozen=True, slots=True)
class Picture:
    """A run drawn, and its figures."""

    rows: Waterfall
    sums: Sums


@router.get("/run/{ref}")
async def run_page(request: Request, caller: Reader, ref: str, at: str = "", against: str = "") -> HTMLResponse:
    """One run, by our id or by that of the system it comes from."""
    run, head = await _found(caller, ref)
    picture = await picture_of(caller, run, head)
    before, after = await _neighbours(caller, run)
    others = await _others(caller, run)
    return page(
        request,
        caller,
        "run/run.html",
        run=run,
        thread=head,
        person=any(one.get("kind") in PERSONAL for one in head.waiting_for),
        rows=picture.rows,
        first=list(picture.rows.rows(FIRST)),
        sums=picture.sums,
        ticks=ticks(picture.rows.end),
        before=before,
        after=after,
        others=others,
        against="" if against == "none" else against or (str(before.id) if before else ""),
        at=at,
        panel=await _panel(caller, run, at or "run"),
    )


@router.get("/run/{ref}/rows")
async def run_rows(caller: Reader, ref: str) -> Response:
    """All rows of the waterfall in columns: a header of JSON, then one array of numbers behind the other."""
    run, head = await _found(caller, ref)
    picture = await picture_of(caller, run, head)
    return Response(picture.rows.packed(), media_type="application/octet-stream")


@router.get("/run/{ref}/panel")
async def run_panel(request: Request, caller: Reader, ref: str, at: str = "run") -> HTMLResponse:
    """What is known of one row."""
    run, _ = await _found(caller, ref)
    return page(request, caller, "run/panel.html", run=run, at=at, panel=await _panel(caller, run, at))


@router.get("/run/{ref}/text")
async def run_text(caller: Reader, ref: str, at: str, of: str = "stitch", pointer: str = "") -> Response:
    """A text of a row that its panel shows the beginning of, whole."""
    run, _ = await _found(caller, ref)
    return Response(await texts.whole(caller.store, run, at, of, pointer), media_type="text/plain; charset=utf-8")


async def picture_of(caller: Caller, run: Run, head: Thread) -> Picture:
    """The run as it is drawn now; a moment later it need not be drawn again."""
    key = (id(caller.house.store.backend), caller.project, run.id, head.position, head.fence, head.updated_at)
    known = _drawn.pop(key, None)
    if known is None or known[0] < time.monotonic():
        with _uncollected():
            trace = await caller.store.shape(run.id, limit=MOST)
            now = caller.store.clock.now()
            drawn = Picture(waterfall(trace, head, now), sums_of(trace))
        known = (time.monotonic() + _SECONDS, drawn)
    _drawn[key] = known
    while len(_drawn) > _KEPT:
        _drawn.popitem(last=False)
    return known[1]


@contextmanager
def _uncollected() -> Generator[None]:
    """Nothing of a tree that is being built is garbage: looking for some over and over takes a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def ticks(end: float) -> list[dict[str, Any]]:
    """Round moments along the axis: about six of them, with where they stand in percent."""
    whole = max(end, 1.0)
    step = next(step for step in _steps() if whole / step <= 7)
    return [
        {"x": 100 * number * step / whole, "says": _moment(number * step, step)}
        for number in range(int(whole // step) + 1)
    ]


def _steps() -> Any:
    for power in range(4):
        yield from (10**power, 2 * 10**power, 5 * 10**power)
    yield from (10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000, 3_600_000)
    hours = 2
    while True:
        yield hours * 3_600_000
        hours *= 2


def _moment(milliseconds: float, step: float) -> str:
    if step < 1000:
        return f"{milliseconds:g} ms"
    if step < 60_000:
        return f"{milliseconds / 1000:g} s"
    return f"{milliseconds / 60_000:g} m" if step < 3_600_000 else f"{milliseconds / 3_600_000:g} h"


async def _found(caller: Caller, ref: str) -> tuple[Run, Thread]:
    run = await caller.store.run(ref)
    mention(run=run.id, thread=run.thread_id)
    return run, await caller.store.thread(run.thread_id)


async def _panel(caller: Caller, run: Run, at: str) -> panel.Panel:
    """What is known of a row; that it cannot be read is said in its place, and takes nothing else with it."""
    try:
        return await panel.panel_of(caller.store, run, at)
    except (LockstitchError, Problem) as exc:
        return panel.broken(str(exc))


async def _neighbours(caller: Caller, run: Run) -> tuple[Run | None, Run | None]:
    """The runs before and after, among those that are nobody's members."""
    own = (Where("thread_id", "=", run.thread_id), Where("parent_run_id", "is null"))
    find = caller.store.backend.find
    before = await find(Find(Run, (*own, Where("sequence", "<", run.sequence)), order=("-sequence",), limit=1))
    after = await find(Find(Run, (*own, Where("sequence", ">", run.sequence)), order=("sequence",), limit=1))
    return (before or [None])[0], (after or [None])[0]


async def _others(caller: Caller, run: Run) -> list[Run]:
    """The latest runs of the thread, to compare with."""
    where = (Where("thread_id", "=", run.thread_id), Where("parent_run_id", "is null"))
    found = await caller.store.backend.find(Find(Run, where, order=("-sequence",), limit=_OTHERS + 1))
    return [one for one in found if one.id != run.id][:_OTHERS]
