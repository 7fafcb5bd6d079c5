"""`stats`: the overview, its parts and their JSON."""

import asyncio

import pytest

from lockstitch.store import open_store
from tests.cli.calling import Call
from tests.cli.story import Story, within
from tests.store.worlds import World, mirror, span, world


def put(url: str, world: World) -> World:
    async def run() -> World:
        async with open_store(url) as store:
            return await world.put(store)

    return asyncio.run(run())


@pytest.mark.req("S2-055")
def test_stats_prints_overview(lockstitch: Call, story: Story) -> None:
    lines = lockstitch("stats").lines
    assert lines[0] == ("5 runs (1 failed) · 6,003 tokens in, 320 out · $0.7500 · 1 model call without a known price")
    assert any(line.split() == ["scripted-1", "1", "0", "3,000", "20", "0", "0", "1"] for line in lines)
    assert any(line.split()[:3] == ["charge", "2", "623"] for line in lines)
    assert any(line.split()[:2] == ["completed", "4"] for line in lines)
    assert any(line.endswith("$0.7500  " + "█" * 40) for line in lines)


@pytest.mark.req("S2-055")
def test_stats_json_equals_store_statistics(lockstitch: Call, story: Story) -> None:
    page = lockstitch("stats", "--json").json
    assert list(page) == ["project", "since", "until", "total", "by_model", "tools", "by_status", "by_day"]
    assert (page["project"], page["since"], page["until"]) == ("default", None, None)
    assert page["total"] == {
        "runs": 5,
        "failed_runs": 1,
        "usage": {
            "input_tokens": 6003,
            "output_tokens": 320,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
        "total_cost": 0.75,
        "unpriced": 1,
    }
    table = within(story.url, lambda store: store.statistics.usage("model"))
    assert page["by_model"] == table.as_json()["rows"]
    assert [row["status"] for row in page["by_status"]] == ["completed", "failed"]
    assert page["tools"][0] == {
        "name": "charge",
        "calls": 2,
        "errors": 0,
        "timed": 2,
        "average_ms": 623.0,
        "p50_ms": 12,
        "p95_ms": 1234,
        "p99_ms": 1234,
        "max_ms": 1234,
        "error_rate": 0.0,
    }


def test_stats_supports_every_group_and_filter(lockstitch: Call, store_url: str) -> None:
    put(store_url, world(4))
    totals = [
        lockstitch("stats", "--by", by, "--all-projects", "--json").json["usage"]["total"]
        for by in ("model", "day", "agent", "project", "user", "tree", "status")
    ]
    assert all(total == totals[0] for total in totals)
    both = lockstitch("stats", "--by", "agent", "--by", "status", "--all-projects", "--json").json["usage"]
    assert both["by"] == ["agent", "status"]
    assert {"agent", "status"} < both["rows"][0].keys()
    assert both["total"] == totals[0]
    by_model = lockstitch("stats", "--by", "model", "--all-projects", "--json").json["usage"]["rows"]
    (large,) = [row for row in by_model if row["model"] == "large-1"]
    usage = lockstitch("stats", "--by", "model", "--model", "large-1", "--all-projects", "--json").json["usage"]
    assert usage["rows"] == [large]
    ada = lockstitch("stats", "--by", "user", "--user", "ada", "--all-projects", "--json").json["usage"]["rows"]
    assert [row["user"] for row in ada] == ["ada"]
    days = lockstitch("stats", "--by", "day", "--since", "2026-03-08", "--until", "2026-03-10", "--json").json["usage"]
    assert {row["day"] for row in days["rows"]} <= {"2026-03-08", "2026-03-09"}
    last = lockstitch("stats", "--by", "day", "--all-projects").lines[-1].split()
    assert (last[0], last[1]) == ("total", f"{totals[0]['runs']:,}")


def test_stats_shows_tools_latencies_and_runs(lockstitch: Call, store_url: str) -> None:
    put(store_url, world(5, trees=20))
    page = lockstitch("stats", "--tools", "--latency", "--runs", "slowest", "--limit", "3", "--json").json
    assert [len(page["tools"]), len(page["runs"])] == [3, 3]
    durations = [run["duration_ms"] for run in page["runs"]]
    assert durations == sorted(durations, reverse=True)
    assert {"large-1", "small-1"} <= {row["name"] for row in page["latency"]}
    assert all(0 <= row["error_rate"] <= 1 for row in page["tools"])
    failed = lockstitch("stats", "--runs", "failed", "--json").json["runs"]
    assert {run["status"] for run in failed} == {"failed"}
    newest = [run["started_at"] for run in lockstitch("stats", "--runs", "newest", "--json").json["runs"]]
    assert newest == sorted(newest, reverse=True)
    lines = lockstitch("stats", "--latency", "--runs", "newest").lines
    assert lines[0].split() == ["MODEL", "CALLS", "ERRORS", "AVERAGE", "P50", "P95", "P99", "MAX"]
    assert any(line.startswith("RUN ") for line in lines)


def test_stats_of_empty_store_is_empty(lockstitch: Call, store_url: str) -> None:
    assert lockstitch("migrate").code == 0
    assert lockstitch("stats").lines == ["0 runs · 0 tokens in, 0 out"]
    page = lockstitch("stats", "--json").json
    assert (page["by_model"], page["tools"], page["by_day"]) == ([], [], [])
    assert page["total"]["total_cost"] is None
    for option in (["--tools"], ["--latency"], ["--runs", "newest"], ["--by", "model"]):
        assert lockstitch("stats", *option).code == 0


def test_stats_chart_shows_tokens_if_no_cost_is_known(lockstitch: Call, store_url: str) -> None:
    world = mirror(input_tokens=90, output_tokens=10, steps=1, model="unheard-of")
    span(world, "unheard-of", type="llm_call", input_tokens=90, output_tokens=10)
    put(store_url, world)
    lines = lockstitch("stats").lines
    assert lines[0].endswith("1 model call without a known price")
    assert any(line.split()[:3] == ["2026-03-10", "100", "█" * 40] for line in lines)


def test_stats_rejects_invalid_options(lockstitch: Call, story: Story) -> None:
    for wrong in (
        ["--by", "colour"],
        ["--runs", "oldest"],
        ["--since", "yesterday"],
        ["--until", "13th"],
        ["--limit", "0"],
        ["nonsense"],
    ):
        result = lockstitch("stats", *wrong)
        assert (result.code, result.out) == (2, ""), wrong
        assert result.err.startswith("lockstitch: ")
