"""Loading pages: every page, filter, order and search among very many stitches over HTTP, and one very long run in a
browser.

It runs only if it is named: it needs Chromium, and filling the full size takes minutes.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import httpx2

from benchmarks import paths, varied
from benchmarks.counting import Processor
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

CALLS = 20
"""Number of requests of each path. With this number, the 95th percentile is the slowest one."""

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
            # The long run comes first. Written later, its stitches would fill the free space of many pages.
            long = await _filled(store, 0, LONG)
            known = await varied.fill(store, scale.opened)
        await places.settle(url)
        with served(url) as server:
            rows += await requests(server, url, backend, known, f"among {scale.opened:,} stitches")
            browser = await asyncio.to_thread(find)
            if browser is None:
                notes.append("No browser is installed, so the long run was not opened: run `python -m tools.browser`.")
            else:
                rows += await _opened(f"{server.address}/run/{long.id}", backend, browser)
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


class Server(NamedTuple):
    """A server in a separate process."""

    address: str
    pid: int


@contextmanager
def served(url: str) -> Iterator[Server]:
    """Start `lockstitch serve` in a separate process."""
    command = (sys.executable, "-m", "lockstitch", "--json", "--store", url, "serve", "--no-work", "--port", "0")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield Server(json.loads(process.stdout.readline())["url"], process.pid)
    finally:
        process.terminate()
        process.wait()


async def requests(server: Server, url: str, backend: str, known: varied.Varied, among: str) -> list[Row]:
    """Return the rows of all paths: elapsed time, and processor time of the server and the database."""
    rows: list[Row] = []
    async with httpx2.AsyncClient(base_url=server.address, timeout=60, follow_redirects=True) as client:

        async def asked(path: str) -> float:
            headers = {"Accept": "application/json" if path.startswith("/api") else "text/html"}
            started = time.perf_counter()
            answer = await client.get(path, headers=headers)
            spent = (time.perf_counter() - started) * 1000
            assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
            return spent

        # The first search and the first reports find no index and no totals.
        await asked("/sql")
        for name, path in (("search", "/?q=the"), ("report", "/stats/panel/cost")):
            rows.append(Row(f"first {name} {among}", backend, await asked(path), "ms", aim=within(PAGE_MS)))
        await _prepared(url)
        with Processor(server.pid, url) as processor:
            for name, path in (paths.of_list(known) | paths.of_pages(known) | paths.of_api(known)).items():
                await asked(path)
                before = processor.milliseconds
                spent = [await asked(path) for _ in range(CALLS)]
                work = (processor.milliseconds - before) / CALLS
                figure = percentile(spent, 0.95)
                rows.append(Row(f"{name} {among}, p95", backend, figure, "ms", aim=within(PAGE_MS)))
                rows.append(Row(f"{name} {among}, mean processor time", backend, work, "ms", aim=within(PAGE_MS)))
    return rows


async def _prepared(url: str) -> None:
    """Wait until the index of words and the totals of past days are stored, as the processes of a server do."""
    async with open_store(url) as store:
        while await store.prepare_reports():
            pass


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
