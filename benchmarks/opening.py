"""Loading pages: threads and runs among very many stitches over HTTP, and one very long run in a browser.

It runs only if it is named: it needs Chromium, and filling the full size takes minutes.
"""

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx2

from benchmarks.filling import put_all
from benchmarks.measure import percentile
from benchmarks.places import SQL, Places
from benchmarks.prose import Prose
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale
from lockstitch.model import CHAIN_TYPES, Entry, Run, Stitch, Thread, at_position
from lockstitch.store import Store, open_store
from tools.browser import find

BACKENDS = SQL

PAGES = 100
"""Pages of each kind that are loaded."""

LENGTH = 100
"""Stitches of a usual run."""

LONG = 30_000
"""Stitches of the run that is opened in a browser."""

PAGE_MS = 200.0
OPEN_MS = 1_500.0
FRAME_MS = 33.0

_FRAMES = """() => new Promise((done) => {
  const times = [];
  let last = 0;
  const step = (now) => {
    if (last) times.push(now - last);
    last = now;
    if (times.length === 120) { times.sort((a, b) => a - b); done(times); return; }
    scrollBy(0, 240);
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    rows: list[Row] = []
    notes: list[str] = []
    with places.fresh(backend) as url:
        async with open_store(url) as store:
            usual = [await _filled(store, number, LENGTH) for number in range(scale.opened // LENGTH)]
            long = await _filled(store, len(usual), LONG)
        await places.settle(url)
        with _served(url) as address:
            among = f"among {scale.opened:,} stitches"
            for name, paths in (
                ("thread page", [f"/threads/{run.thread_id}" for run in usual]),
                ("run page", [f"/run/{run.id}" for run in usual]),
            ):
                spent = await _asked(address, paths)
                for share, says in ((0.5, "median"), (0.95, "p95")):
                    figure = percentile(spent, share)
                    aim = within(PAGE_MS) if share > 0.5 else None
                    rows.append(Row(f"{name} {among}, {says}", backend, figure, "ms", aim=aim))
            browser = await asyncio.to_thread(find)
            if browser is None:
                notes.append("No browser is installed, so the long run was not opened: run `python -m tools.browser`.")
            else:
                rows += await _opened(f"{address}/run/{long.id}", backend, browser)
    return Measured(rows, notes)


async def _filled(store: Store, number: int, length: int) -> Run:
    """Return a thread with one run: model calls with two tools each."""
    head = await store.create(title=f"Conversation {number}", agent="bench")
    now = store.clock.now()
    run = store.new_run(head, status="completed", stop_reason="end_turn", input_position=1, model="bench-1").changed(
        output_position=length,
        steps=length // 3,
        total_cost=0.001 * (length // 3),
        input_tokens=length * 100,
        output_tokens=length * 10,
        completed_at=now + timedelta(seconds=length / 10),
    )
    entries = list(_entries(run, length))
    tip = None
    stitches: list[Stitch] = []
    for position, entry in enumerate(entries, 1):
        stitch = at_position(entry, head.id, position, tip, head.fence, now)
        tip = stitch.id if stitch.type in CHAIN_TYPES else tip
        stitches.append(stitch)
    filled: Thread = head.changed(position=length, tip_id=tip, last_sequence=1, last_turn=1, total_runs=1)
    await put_all(store, [run])
    await put_all(store, stitches)
    await store._backend.put([filled])
    return run


def _entries(run: Run, length: int) -> Iterator[Entry]:
    prose = Prose(3)
    at = run.started_at
    yield Entry(type="input", run_id=run.id, step_number=0, message={"role": "user", "content": prose.take(80)}, at=at)
    position, step = 2, 0
    while position <= length:
        step += 1
        asking = position
        uses: list[dict[str, Any]] = [
            {"type": "tool_use", "id": f"call_{step}_{index}", "name": f"tool_{index}", "input": {"query": step}}
            for index in range(min(2, length - position))
        ]
        at += timedelta(milliseconds=200)
        blocks = [{"type": "text", "text": prose.take(200)}, *uses]
        yield Entry(
            type="llm_call",
            run_id=run.id,
            step_number=step,
            name="bench-1",
            status="tool_use" if uses else "end_turn",
            message={"role": "assistant", "content": blocks},
            data={"cost": 0.001, "first_token_ms": 40},
            duration_ms=150,
            input_tokens=300,
            output_tokens=30,
            at=at,
        )
        position += 1
        for index, use in enumerate(uses):
            at += timedelta(milliseconds=30)
            result = {"type": "tool_result", "tool_use_id": use["id"], "content": prose.take(300)}
            yield Entry(
                type="tool_call",
                run_id=run.id,
                step_number=step,
                name=use["name"],
                call_id=use["id"],
                call_index=index,
                reply_to=asking,
                status="ok",
                message=result,
                duration_ms=25,
                at=at,
            )
            position += 1


@contextmanager
def _served(url: str) -> Iterator[str]:
    """Start a server in a separate process and return its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.processes.serve", url], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()


async def _asked(address: str, paths: Sequence[str]) -> list[float]:
    """Return the milliseconds of each page, loaded one after the other. The first pages are a warm-up."""
    chosen = random.Random(4).choices(paths, k=PAGES + 5)
    spent: list[float] = []
    async with httpx2.AsyncClient(base_url=address, timeout=60, headers={"Accept": "text/html"}) as client:
        for path in chosen:
            started = time.perf_counter()
            answer = await client.get(path)
            spent.append((time.perf_counter() - started) * 1000)
            assert answer.status_code == 200, (path, answer.status_code)
    return spent[5:]


async def _opened(address: str, backend: str, path: str) -> list[Row]:
    from playwright.async_api import async_playwright

    opened: list[tuple[float, float]] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        frames: list[float] = []
        for _ in range(3):
            context = await browser.new_context(viewport={"width": 1280, "height": 900})
            page = await context.new_page()
            await page.goto(address)
            await page.wait_for_selector("#waterfall[data-ready]")
            first = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            every = "Number(document.getElementById('waterfall').dataset.ready)"
            opened.append((await page.evaluate(first), await page.evaluate(every)))
            frames = await page.evaluate(_FRAMES)
            await context.close()
        await browser.close()
    first, every = sorted(opened)[1]
    name = f"run of {LONG:,} stitches in Chromium"
    return [
        Row(f"{name}, first rows", backend, first, "ms"),
        Row(f"{name}, all rows", backend, every, "ms", aim=within(OPEN_MS)),
        Row(f"{name}, frame while scrolling, p95", backend, percentile(frames, 0.95), "ms", aim=within(FRAME_MS)),
    ]
