"""`Statistics`: all groups have the same totals, on every backend."""

from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from itertools import combinations
from math import ceil
from typing import Any

import pytest

from lockstitch.backend import Find
from lockstitch.errors import NotFound, Refused
from lockstitch.model import DailyMetric, FakeClock, Run, Stitch
from lockstitch.model.statistics import GROUPS, TOOL_ERRORS, StatsFilter, UsageRow, sum_usage
from lockstitch.store import Store
from tests.samples import turn
from tests.store.worlds import NOW, World, mirror, span, world

pytestmark = pytest.mark.anyio

SEEDS = (1, 2)


def by_hand(world: World, runs: list[Run]) -> UsageRow:
    costs = [run.total_cost for run in runs if run.total_cost is not None]
    return UsageRow(
        (),
        len(runs),
        sum(run.status == "failed" for run in runs),
        sum(run.input_tokens for run in runs),
        sum(run.output_tokens for run in runs),
        sum(run.cache_read_tokens for run in runs),
        sum(run.cache_write_tokens for run in runs),
        pytest.approx(sum(costs), abs=1e-9) if costs else None,
        sum(run.cost.get("unpriced", 0) if run.cost or run.total_cost else run.steps for run in runs),
    )


KEYS: dict[str, Callable[[World, Run], str | None]] = {
    "day": lambda world, run: run.started_at.date().isoformat(),
    "hour": lambda world, run: run.started_at.isoformat()[:13],
    "agent": lambda world, run: run.agent,
    "project": lambda world, run: world.head(run).project,
    "user": lambda world, run: world.head(run).user_id,
    "tree": lambda world, run: str(world.root(world.head(run)).id),
    "status": lambda world, run: run.status,
    "version": lambda world, run: f"{run.agent} v{run.version}" if run.agent and run.version else None,
}


@pytest.mark.req("S2-055")
@pytest.mark.parametrize("seed", SEEDS)
async def test_every_grouping_has_the_same_total_as_the_runs(store: Store, seed: int) -> None:
    result = await world(seed).put(store)
    usage_row = (await store.statistics.usage(all_projects=True)).total
    assert usage_row == by_hand(result, result.runs)
    pairs = [*combinations(GROUPS[:8], 2), ("day", "version"), ("model", "tag")]
    for by in [*[(group,) for group in GROUPS], *pairs, GROUPS]:
        table = await store.statistics.usage(*by, all_projects=True)
        assert table.total == usage_row, by
        assert len({row.group for row in table.rows}) == len(table.rows), by
        # A run with several tags is in several rows.
        assert "tag" in by or sum_usage(table.rows) == usage_row, by


@pytest.mark.parametrize("seed", SEEDS)
async def test_each_group_counts_its_own_runs(store: Store, seed: int) -> None:
    result = await world(seed).put(store)
    for name, key in KEYS.items():
        groups: defaultdict[str | None, list[Run]] = defaultdict(list)
        for run in result.runs:
            groups[key(result, run)].append(run)
        rows = {row.group[0]: row for row in (await store.statistics.usage(name, all_projects=True)).rows}  # type: ignore[arg-type]
        assert rows.keys() == groups.keys()
        for value, runs in groups.items():
            assert rows[value]._replace(group=()) == by_hand(result, runs), (name, value)
    groups_of_overview = ("model", "agent", "status", "day")
    separate = [await store.statistics.usage(group, all_projects=True) for group in groups_of_overview]
    assert await store.statistics.breakdown(*groups_of_overview, all_projects=True) == separate
    with pytest.raises(Refused, match="several tags"):
        await store.statistics.breakdown("day", "tag")


@pytest.mark.parametrize("seed", SEEDS)
async def test_groups_with_the_highest_cost_have_their_own_rows(store: Store, seed: int) -> None:
    await world(seed).put(store)
    for by in ("user", "model", "tag"):
        rows = (await store.statistics.usage("day", by, all_projects=True)).rows
        names = [row.group[0] for row in (await store.statistics.usage(by, all_projects=True)).rows]
        for limit in (2, len(names)):
            largest = await store.statistics.largest("day", by, limit, all_projects=True)
            shown = names if limit == len(names) else names[:1]
            assert {name: sorted(own) for name, own in largest.groups} == {
                name: [row._replace(group=row.group[:1]) for row in rows if row.group[1] == name] for name in shown
            }
            rest = sum_usage(row for row in rows if row.group[1] not in shown)
            assert (sum_usage(largest.rest), bool(largest.rest)) == (rest, len(shown) < len(names))
    table = await store.statistics.usage("user", all_projects=True)
    most = await store.statistics.usage("user", all_projects=True, most=1)
    assert (most.rows, most.total, most.more, table.more) == (table.rows[:1], table.total, True, False)


async def test_run_counts_in_the_group_of_each_of_its_tags(store: Store) -> None:
    result = await world(SEEDS[0]).put(store)
    rows = {row.group[0]: row for row in (await store.statistics.usage("tag", all_projects=True)).rows}
    assert rows.keys() == {None, "new", "eu"}
    for tag in ("new", "eu"):
        assert rows[tag]._replace(group=()) == by_hand(result, [run for run in result.runs if tag in run.tags])


@pytest.mark.req("S2-055")
@pytest.mark.parametrize("seed", SEEDS)
async def test_counts_tokens_and_cost_for_each_called_model(store: Store, seed: int) -> None:
    """Usage that no call in the log has counts for the model of the run."""
    result = await world(seed).put(store)
    tokens: defaultdict[str | None, int] = defaultdict(int)
    cost: defaultdict[str | None, float] = defaultdict(float)
    unpriced: defaultdict[str | None, int] = defaultdict(int)
    for run in result.runs:
        calls = [stitch for stitch in result.stitches if stitch.run_id == run.id and stitch.type == "llm_call"]
        tokens[run.model] += run.input_tokens
        for call in calls:
            tokens[run.model] -= call.input_tokens or 0
            tokens[call.name or run.model] += call.input_tokens or 0
            cost[call.name or run.model] += call.data.get("cost", {}).get("total_cost", 0)
            unpriced[call.name or run.model] += "cost" not in call.data
    rows = {row.group[0]: row for row in (await store.statistics.usage("model", all_projects=True)).rows}
    for model, row in rows.items():
        assert (row.input_tokens, row.unpriced) == (tokens[model], unpriced[model]), model
        assert (row.cost or 0) == pytest.approx(cost[model], abs=1e-9), model
        assert row.runs == sum(run.model == model for run in result.runs)


@pytest.mark.parametrize("seed", SEEDS)
async def test_filter_returns_the_row_of_its_group(store: Store, seed: int) -> None:
    await world(seed).put(store)
    for name in ("agent", "model", "user", "status"):
        for row in (await store.statistics.usage(name, all_projects=True)).rows:
            if row.group[0] is not None:
                only: Any = {name: row.group[0]}
                filtered = (await store.statistics.usage(all_projects=True, **only)).total
                assert filtered == row._replace(group=()), (name, row.group)
    days = await store.statistics.usage("day", all_projects=True)
    midnight = NOW.replace(hour=0)
    for ago in range(6):
        since = midnight - timedelta(days=ago)
        usage_table = await store.statistics.usage(
            "day", all_projects=True, since=since, until=since + timedelta(days=1)
        )
        assert usage_table.rows == [row for row in days.rows if row.group[0] == since.date().isoformat()]
    here = await store.statistics.usage("project")
    assert [row.group for row in here.rows] == [("default",)]
    projects = await store.statistics.usage("project", all_projects=True)
    elsewhere = sum_usage(row for row in projects.rows if row.group[0] == "elsewhere")
    assert (await store.in_project("elsewhere").statistics.usage()).total == elsewhere


@pytest.mark.req("S4-031")
@pytest.mark.parametrize("seed", SEEDS)
async def test_daily_metrics_equal_those_that_a_purge_stores(store: Store, seed: int) -> None:
    result = await world(seed).put(store)
    other_runs = [
        run.changed(status="completed", completed_at=NOW) if run.status == "running" else run for run in result.runs
    ]
    await store._backend.put(other_runs)
    groupings = [("day",), ("agent",), ("model",), ("project",), ("day", "model"), ("agent", "model"), ()]
    before = [await store.statistics.usage(*by) for by in groupings]  # type: ignore[arg-type]
    recomputed = await store.statistics.daily()
    elsewhere = await store.in_project("elsewhere").statistics.usage("model")

    assert await store.purge(before=NOW + timedelta(days=1)) > 0

    daily_metrics = await store._backend.find(Find(DailyMetric, order=("day", "agent", "model")))
    assert daily_metrics == recomputed
    assert await store.statistics.daily() == []
    assert [await store.statistics.usage(*by) for by in groupings] == before  # type: ignore[arg-type]
    assert await store.in_project("elsewhere").statistics.usage("model") == elsewhere
    by_user = await store.statistics.usage("user")
    assert ([row.group for row in by_user.rows], by_user.total) == ([(None,)], before[-1].total)


async def test_every_purge_adds_to_the_daily_metrics(timed_store: Store, clock: FakeClock) -> None:
    """Usage of deleted runs counts in whole days only, and only without a filter by user."""
    for _ in range(2):
        head = await timed_store.create(agent="helper", user_id="ada")
        await turn(timed_store, head, "q", "a", input_tokens=10, total_cost=0.1)
        head = await timed_store.create(agent="helper", user_id="ada")
        await turn(timed_store, head, "q", "a", input_tokens=5, total_cost=0.2)
        now = clock.now()
        clock.advance(60)
        await timed_store.purge(before=clock.now())
    (metric,) = await timed_store._backend.find(Find(DailyMetric))
    assert (metric.runs, metric.input_tokens, metric.total_cost) == (4, 30, pytest.approx(0.6))
    figures = timed_store.statistics
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    assert (await figures.usage(since=midnight)).total.runs == 4
    assert (await figures.usage(since=midnight, until=midnight + timedelta(days=1))).total.runs == 4
    assert (await figures.usage(since=midnight + timedelta(seconds=1))).total.runs == 0
    assert (await figures.usage(until=midnight + timedelta(hours=23))).total.runs == 0
    assert (await figures.usage(user="ada")).total.runs == 0
    assert (await figures.usage(agent="helper")).total.runs == 4
    assert (await figures.usage(agent="unknown")).rows == []


def measured(stitches: list[Stitch]) -> dict[str, Any]:
    times = sorted(stitch.duration_ms for stitch in stitches if stitch.duration_ms is not None)

    def rank(percent: int) -> int | None:
        return times[ceil(len(times) * percent / 100) - 1] if times else None

    return {
        "calls": len(stitches),
        "timed": len(times),
        "average_ms": pytest.approx(sum(times) / len(times)) if times else None,
        "p50_ms": rank(50),
        "p95_ms": rank(95),
        "p99_ms": rank(99),
        "max_ms": times[-1] if times else None,
    }


@pytest.mark.req("S2-055")
@pytest.mark.parametrize("seed", SEEDS)
async def test_returns_latencies_and_error_rates(store: Store, seed: int) -> None:
    result = await world(seed, trees=30).put(store)
    runs = {run.id: run for run in result.runs}
    tools = await store.statistics.tools(all_projects=True)
    assert len(tools) == 3
    assert [tool.average_ms for tool in tools] == sorted((tool.average_ms for tool in tools), reverse=True)  # type: ignore[type-var]
    for latency_row in tools:
        calls = [stitch for stitch in result.stitches if stitch.type == "tool_call" and stitch.name == latency_row.name]
        wrong = sum(stitch.status in TOOL_ERRORS for stitch in calls)
        assert latency_row._asdict() == {"name": latency_row.name, "errors": wrong, **measured(calls)}
        assert latency_row.error_rate == wrong / len(calls)
    assert await store.statistics.tools(all_projects=True, since=NOW - timedelta(days=10_000)) == tools
    for latency_row in await store.statistics.models(all_projects=True):
        calls = [stitch for stitch in result.stitches if stitch.type == "llm_call"]
        calls = [stitch for stitch in calls if (stitch.name or runs[stitch.run_id].model) == latency_row.name]  # type: ignore[index]
        assert latency_row._asdict() == {
            "name": latency_row.name,
            "errors": sum(stitch.status == "error" for stitch in calls),
            **measured(calls),
        }
    (only,) = await store.statistics.models(all_projects=True, model="large-1")
    assert only in await store.statistics.models(all_projects=True)
    for per, length in (("day", 10), ("hour", 13)):
        for kind, types in (("tool", ("tool_call",)), ("model", ("llm_call", "api_error"))):
            spans = await store.statistics.latency(kind, per, all_projects=True)  # type: ignore[arg-type]
            assert [span.name for span in spans] == sorted({span.name for span in spans})  # type: ignore[type-var]
            for latency_row in spans:
                calls = [stitch for stitch in result.stitches if stitch.type in types]
                calls = [
                    stitch
                    for stitch in calls
                    if runs[stitch.run_id].started_at.isoformat()[:length] == latency_row.name
                ]  # type: ignore[index]
                assert {**latency_row._asdict(), "errors": 0} == {
                    "name": latency_row.name,
                    "errors": 0,
                    **measured(calls),
                }
    since = NOW - timedelta(days=1)
    recent = [stitch for stitch in result.stitches if stitch.type == "tool_call" and stitch.at and stitch.at >= since]
    assert sum(tool.calls for tool in await store.statistics.tools(all_projects=True, since=since)) == len(recent)


async def test_percentiles_of_few_calls_are_measured_times(store: Store) -> None:
    world = mirror()
    for number, seconds in enumerate((5, 1, 2, 4, 3)):
        span(world, "look", type="tool_call", call_id=f"c{number}", took=seconds)
    span(world, "idle", type="tool_call", call_id="d", took=0).changed(duration_ms=None)
    world.stitches[-1] = world.stitches[-1].changed(duration_ms=None)
    await world.put(store)
    look, idle = await store.statistics.tools()
    assert (look.p50_ms, look.p95_ms, look.p99_ms, look.max_ms, look.average_ms) == (3000, 5000, 5000, 5000, 3000.0)
    assert (idle.calls, idle.timed, idle.p50_ms, idle.average_ms, idle.error_rate) == (1, 0, None, None, 0.0)


async def test_counts_unreachable_model_as_an_error(store: Store) -> None:
    world = mirror(model="large-1")
    span(world, "", type="api_error", status=None, took=0)
    world.stitches[0] = world.stitches[0].changed(name=None, duration_ms=None)
    await world.put(store)
    (latency_row,) = await store.statistics.models()
    assert (latency_row.name, latency_row.calls, latency_row.errors, latency_row.error_rate) == ("large-1", 1, 1, 1.0)


@pytest.mark.req("S2-055")
@pytest.mark.parametrize("seed", SEEDS)
async def test_lists_newest_slowest_and_failed_runs(store: Store, seed: int) -> None:
    result = await world(seed).put(store)
    runs = [run for run in result.runs if result.head(run).project == "default"]
    newest = sorted(runs, key=lambda run: (run.started_at, run.id), reverse=True)
    assert await store.statistics.runs(limit=1000) == newest
    assert await store.statistics.runs(limit=3) == newest[:3]
    assert await store.statistics.runs(status="failed") == [run for run in newest if run.status == "failed"]
    finished_runs = [run for run in runs if run.completed_at is not None]
    slowest = sorted(finished_runs, key=lambda run: (run.started_at - run.completed_at, run.id))  # type: ignore[operator]
    assert await store.statistics.runs(order="slowest", limit=1000) == slowest


async def test_empty_store_has_no_usage(store: Store) -> None:
    for by in ((), ("model",), ("day", "tree")):
        table = await store.statistics.usage(*by)  # type: ignore[arg-type]
        assert (table.rows, table.total) == ([], UsageRow())
        assert table.as_json()["total"]["total_cost"] is None
    assert await store.statistics.tools() == await store.statistics.models() == await store.statistics.daily() == []
    assert await store.statistics.runs() == []


async def test_rejects_unknown_group_or_filter(store: Store) -> None:
    wrong: Any = "colour"
    with pytest.raises(Refused, match="Unknown filter or group: colour"):
        await store.statistics.usage(wrong)
    with pytest.raises(Refused, match="Unknown filter or group: colour"):
        await store.statistics.tools(**{wrong: "red"})
    with pytest.raises(Refused, match="NUL"):
        await store.statistics.usage(agent="a\0b")


async def test_hostile_trace_does_not_break_statistics(store: Store) -> None:
    """Neither by counts and costs that no sum can hold nor by a cost that is none."""
    for number in range(5):
        world = mirror(foreign_id=f"t{number}", model="m", input_tokens=2**62, total_cost=1.7e308)
        for name, cost in (("a", "much"), ("b", {"total_cost": "\0"}), ("c", 1e308), ("d", {"total_cost": None})):
            span(world, name, type="llm_call", data={"cost": cost, "inputs": {"text": "\0"}}, input_tokens=2**60)
        await world.put(store)
    table = await store.statistics.usage("model")
    assert table.total.runs == 5
    assert table.total.input_tokens == pytest.approx(5 * 2**62)
    assert table.total.cost is not None


async def test_finds_imported_run_by_its_foreign_id(store: Store) -> None:
    ids = ("4bf92f3577b34da6a3ce929d0e0e4736", "0198c0de-0000-7000-8000-000000000000", "käse'; --")
    for foreign_id in ids:
        world = await mirror(foreign_id=foreign_id).put(store)
        await mirror(project="elsewhere", foreign_id=foreign_id).put(store)
        run = await store.run(foreign_id)
        assert run == world.runs[0] == await store.run(world.runs[0].id)
    with pytest.raises(NotFound):
        await store.in_project("nowhere").run(ids[0])
    with pytest.raises(NotFound):
        await store.run("nothing")
    assert await store._backend.usage(StatsFilter(threads=[])) in ([], [UsageRow()])


async def test_runs_are_selected_by_their_groups(store: Store) -> None:
    states: dict[str, Any] = {
        "a": {"group": "a"},
        "b": {"group": "b", "said": "with\x00NUL"},
        "none": {},
        "empty": {"group": ""},
    }
    runs: dict[str, Run] = {}
    for name, state in states.items():
        head = await store.create()
        runs[name] = store.new_run(head, status="completed").changed(state=state)
        await store.append(head, [], new_runs=[runs[name]])
    head = await store.create()
    runs["foreign"] = store.new_run(head, status="completed").changed(source="langsmith")
    await store.append(head, [], new_runs=[runs["foreign"]])

    async def found(*groups: str) -> set[str]:
        ids = {run.id for run in await store.statistics.runs(groups=groups)}
        return {name for name, run in runs.items() if run.id in ids}

    assert await found("a") == {"a"}
    assert await found("a", "b") == {"a", "b"}
    assert await found("never") == set()
    assert await found() == set()
    unnamed = {"none", "empty"} | ({"foreign"} if store.project == "default" else set())
    assert await found(store.project) == unnamed
    assert "foreign" in await found("default")
    assert (await store.statistics.usage(groups=["a"])).total.runs == 1
