"""The size and the pages of answers about a run of 30,000 stitches."""

from typing import Any

import pytest

from lockstitch.model import Entry, Run, Thread
from lockstitch.store import open_store
from tests.integrations.mcp.sessions import LONGEST, on_stdio
from tests.samples import turn

pytestmark = pytest.mark.anyio

STITCHES = 30_000


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def write_long_run(url: str) -> Thread:
    """Write a failed run with short and long entries: calls, failures with different causes, and a large result."""
    async with open_store(url) as store:
        head = await store.create(key="long", agent="helper", title="t" * 255, goal="g" * 50_000)
        run = store.new_run(head, status="failed", agent="helper").changed(error="e" * 50_000)
        for start in range(0, STITCHES, 6_000):
            entries = [_entry(run, number) for number in range(start, start + 6_000)]
            head = (await store.append(head, entries, new_runs=[] if start else [run])).head
        await turn(store, await store.create(key="short"), "Hello", "Hello.")
        return head


def _entry(run: Run, number: int) -> Entry:
    if number % 100 == 99:
        return Entry(type="error", run_id=run.id, data={"error": f"{chr(97 + number // 100 % 26)} is wrong: " * 90})
    content: Any = '\\"\n' * 20_000 if number == 50 else f"step {number}"
    return Entry(type="llm_call", run_id=run.id, name="m", message={"role": "assistant", "content": content})


async def test_answers_on_long_run_are_short_and_their_pages_rejoin(store_url: str) -> None:
    head = await write_long_run(store_url)
    async with on_stdio(store_url) as session:
        log = await session.rows("run_log", "log", run="long", limit=200)
        assert [line["position"] for line in log] == list(range(1, STITCHES + 1))
        failures = await session.rows("run_log", "log", run="long", limit=200, errors_only=True)
        assert [line["position"] for line in failures] == list(range(100, STITCHES + 1, 100))
        causes = await session.rows("errors", "causes", limit=50)
        assert sum(cause["failures"] for cause in causes) == len(failures)
        assert len(causes) == 26

        async with open_store(store_url) as store:
            large = (await store.stitches(head, 51, 51))[0]
        assert await session.whole(stitch="long:51") == large.as_json()

        query = "SELECT position, message FROM stitches ORDER BY thread_id, position LIMIT 700"
        rows = await session.rows("sql", "rows", query=query, limit=500)
        assert [row[0] for row in rows] == list(range(1, 701))
        for tool, arguments in {
            "list_threads": {},
            "search": {"text": "step"},
            "read_thread": {"thread": "long"},
            "read_stitch": {"stitch": "long:51"},
            "stats": {},
            "compare_runs": {"a": "long", "b": "short"},
        }.items():
            await session.texts(tool, **arguments)
        prompt = (await session.client.get_prompt("why_did_it_fail", {"run": "long"})).messages[0]
        assert len(getattr(prompt.content, "text", "")) <= LONGEST
