"""Daily totals: reports that read them equal reports that read all runs, after every kind of change."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lockstitch.backend import Find, Where
from lockstitch.backends.sql import reports, totals
from lockstitch.model import FakeClock, Run, Stitch, new_id
from lockstitch.model.statistics import StatsFilter
from lockstitch.store import open_store
from tests.integrations.importing import import_items, items_of
from tests.integrations.otel.bodies import FIXTURES
from tests.samples import asked, begin_turn, finish_turn, turn
from tests.samples import result as tool_call
from tests.store.test_archive import old_chat
from tests.store.worlds import NOW, world

pytestmark = pytest.mark.anyio


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path / 'store.db'}"


FILTERS = [
    StatsFilter(),
    *(StatsFilter(by=(group,)) for group in totals.GROUPS),
    StatsFilter(by=("day", "model"), project="default"),
    StatsFilter(by=("user", "model"), project="default"),
    StatsFilter(by=("tag", "day", "version")),
    StatsFilter(by=("day", "agent"), since=NOW - timedelta(days=4, hours=5), until=NOW - timedelta(days=1, hours=3)),
    StatsFilter(by=("model",), status="completed"),
    StatsFilter(by=("day", "user"), largest=1),
    StatsFilter(model="gpt-5"),
]


async def settled_days(url: str) -> set[str]:
    """Assert that reports with and without daily totals are equal. Return the settled days."""
    async with open_store(url) as store:
        backend: Any = store._backend
        threads = [thread.id for thread in await store.threads(all_projects=True, limit=None)]
        for stats_filter in FILTERS:
            every = replace(stats_filter, threads=threads)
            assert sorted(await backend.usage(stats_filter), key=str) == sorted(await backend.usage(every), key=str)
            if len(stats_filter.by) < 2 and stats_filter.by in ((), ("day",)):
                for kind in ("tool", "model"):
                    rows = await backend.latencies(stats_filter, kind)
                    assert sorted(rows, key=str) == sorted(await backend.latencies(every, kind), key=str)
        return {day.day for day in backend._days._days}


async def test_reports_stay_exact_after_every_kind_of_change(url: str) -> None:
    clock = FakeClock(NOW - timedelta(days=9))
    async with open_store(url, clock=clock) as store:
        chat = await old_chat(store, clock)
        result = await world(1).put(store)
        days = await settled_days(url)
        assert len(days) > 8
        # The turns of the chat lose stitches, which other reports count for the model of their runs.
        assert await store.archive(clock.now() - timedelta(seconds=1))
        assert await settled_days(url) == days

        # The usage of a run arrives late.
        late = next(run for run in result.runs if run.status == "completed")
        await store._backend.put([late.changed(input_tokens=late.input_tokens + 5, total_cost=3.0)])
        assert await settled_days(url) == days
        # A run moves to another day.
        await store._backend.put([late.changed(started_at=late.started_at - timedelta(days=2))])
        assert await settled_days(url) == days
        # Stitches arrive without their run, one and many: a copy of a store writes them separately.
        call = next(stitch for stitch in result.stitches if stitch.run_id == late.id and stitch.type == "llm_call")
        for number in (1, 60):
            rows = [call.changed(id=new_id(), position=1000 * number + more, log_id=None) for more in range(number)]
            await store._backend.put(rows)
            assert await settled_days(url) == days
        # A stitch is replaced.
        await store._backend.put([call.changed(name="other-1", model="other-1")])
        assert await settled_days(url) == days
        # A run without stitches is added.
        await store._backend.put([late.changed(id=new_id(), sequence=90, turn=90)])
        assert await settled_days(url) == days
        # Stitches are deleted alone.
        where = (Where("thread_id", "=", call.thread_id), Where("position", ">=", 1000), Where("position", "<=", 10**6))
        assert await store._backend.delete(Find(Stitch, where)) > 60
        assert await settled_days(url) == days
        # Threads are deleted, with their runs and stitches.
        await store.delete(chat)
        await store.delete(result.root(result.head(late)), force=True)
        assert await settled_days(url) < days


@pytest.mark.parametrize("order", ["newest", "slowest"])
async def test_lists_of_runs_are_exact_wherever_they_are_read(
    url: str, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list is read along an index, from the days that have matches, or from the runs of a project."""
    filters = [
        *FILTERS,
        StatsFilter(status="failed"),
        StatsFilter(status="failed", project="elsewhere"),
        StatsFilter(project="missing"),
        StatsFilter(agent="scout", model="large-1", until=NOW - timedelta(days=2)),
    ]
    async with open_store(url, clock=FakeClock(NOW)) as store:
        result = world(1)
        # Only one day has open runs, which are not settled.
        open_runs = [run for run in result.runs if run.completed_at is None]
        result.runs = [run.changed(status="completed") if run in open_runs[1:] else run for run in result.runs]
        await result.put(store)
        assert len(await settled_days(url)) > 2
        backend: Any = store._backend
        everywhere = {head.id: head.project for head in await store.threads(all_projects=True, limit=None)}
        for walked in (0, 3, 1000):
            monkeypatch.setattr(reports, "_WALKED", walked)
            for stats_filter in filters:
                selected = [run for run in result.runs if _is_selected(run, everywhere[run.thread_id], stats_filter)]
                for limit in (1, 5):
                    runs = await backend.list_runs(stats_filter, order, limit)
                    assert runs == _in_order(selected, order)[:limit], (walked, stats_filter, limit)


def _is_selected(run: Run, project: str, stats_filter: StatsFilter) -> bool:
    wanted = (stats_filter.status, stats_filter.model, stats_filter.agent, stats_filter.project)
    own = (run.status, run.model, run.agent, project)
    return (
        all(value in (None, mine) for value, mine in zip(wanted, own, strict=True))
        and (stats_filter.since is None or run.started_at >= stats_filter.since)
        and (stats_filter.until is None or run.started_at < stats_filter.until)
    )


def _in_order(runs: list[Run], order: str) -> list[Run]:
    if order == "newest":
        return sorted(runs, key=lambda run: (run.started_at, run.id), reverse=True)
    ended = [(run.completed_at - run.started_at, run) for run in runs if run.completed_at is not None]
    return [run for _, run in sorted(ended, key=lambda item: (-item[0], item[1].id))]


async def test_day_with_open_run_is_not_settled(url: str) -> None:
    clock = FakeClock(NOW)
    async with open_store(url, clock=clock) as store:
        committed, run = await begin_turn(store, await store.create(), "question")
        clock.advance(86_400)
        await turn(store, await store.create(), "two", "second")
        first, second = NOW.date().isoformat(), clock.now().date().isoformat()
        assert {first, second} & await settled_days(url) == {second}
        # The open run gets a tool call without a change of its row.
        calls = [asked("a", run_id=run.id), tool_call("a", 0, 3, run_id=run.id)]
        head = (await store.append(committed.head, calls)).head
        assert first not in await settled_days(url)
        await finish_turn(store, head, run, "answer")
        assert first in await settled_days(url)


@pytest.mark.parametrize("name", ["oi_langchain", "pydantic_ai"])
async def test_spans_that_arrive_later_are_counted(url: str, name: str) -> None:
    spans = [_earlier(span) for span in items_of("otel", FIXTURES / f"{name}.body")]
    async with open_store(url) as store:
        for number, part in enumerate((spans[:1], spans[1:3], spans[3:])):
            await import_items(store, "otel", part)
            assert "2026-03-01" in await settled_days(url), number


def _earlier(span: Any) -> Any:
    """Return a span with a start on a day that can be settled."""
    return {**span, **{name: f"2026-03-01{span[name][10:]}" for name in ("start", "end") if span.get(name)}}


async def test_report_stores_the_totals_of_many_days_in_parts(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "_BATCH_RUNS", 1)
    monkeypatch.setattr(totals, "_SETTLE_SECONDS", 0.0)
    clock = FakeClock(NOW - timedelta(days=9))
    async with open_store(url, clock=clock) as store:
        for day in range(4):
            await turn(store, await store.create(), f"question {day}", "answer")
            clock.advance(86_400)
        backend: Any = store._backend
        seen: list[int] = []
        while (rows := await backend.usage(StatsFilter())) and len(backend._days._days) < 4:
            assert rows[0].runs == 4
            seen.append(len(backend._days._days))
        assert seen[:3] == [1, 2, 3]
