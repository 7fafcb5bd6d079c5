"""SQL of users on SQLite: limited time and memory, no process left running, and only reading."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lockstitch.backend import ANSWER
from lockstitch.errors import Refused, StoreError
from lockstitch.store import Store, open_store
from tests.backends.postgres.until import until
from tests.cli.calling import environment

pytestmark = pytest.mark.anyio

MARGIN = 8.0
"""Seconds that a busy machine may take to start and end a process, in addition to the limit of a query."""

LONG = "hex(zeroblob(30000000))"
"""A text of 60 MB, just below the limit of one value."""


@pytest.fixture(params=["file", "memory", "files"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    urls = {"file": f"sqlite:///{tmp_path / 's.db'}", "memory": "sqlite:///:memory:", "files": f"file://{tmp_path}/f"}
    async with open_store(urls[request.param]) as opened:
        await opened.create(key="k")
        yield opened


@pytest.fixture
async def file_store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(f"sqlite:///{tmp_path / 's.db'}") as opened:
        await opened.create(key="k")
        yield opened


async def test_query_returns_all_kinds_of_values(store: Store) -> None:
    answer = await store.sql(
        "SELECT 1, 2.5, 'é\u2028\U0001f600', x'00ff', NULL, 9223372036854775807, 9e999, key FROM threads"
    )
    assert answer.rows == [(1, 2.5, "é\u2028\U0001f600", b"\x00\xff", None, 2**63 - 1, float("inf"), "k")]
    assert (await store.sql("SELECT title FROM agent_config", lens="three_table")).rows == [(None,)]


MEMORY = [
    "SELECT zeroblob(900000000)",
    "SELECT hex(zeroblob(400000000))",
    "SELECT 'x' || printf('%.*c', 60000000, 'x') || printf('%.*c', 60000000, 'x')",
    "SELECT replace(hex(zeroblob(30000)), '0', hex(zeroblob(30000)))",
    "SELECT group_concat(hex(zeroblob(10000000))) FROM (VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9))",
    "WITH RECURSIVE n(x) AS (SELECT 'x' UNION ALL SELECT x || x FROM n) SELECT max(length(x)) FROM n",
    "SELECT json_group_array(hex(zeroblob(10000000))) FROM (VALUES (1), (2), (3), (4), (5), (6), (7), (8))",
    "SELECT quote(zeroblob(60000000))",
    "SELECT " + ", ".join(f"{LONG} AS a{number}" for number in range(40)),
    "SELECT randomblob(60000000) FROM (VALUES (1), (2), (3)) ORDER BY 1",
]


@pytest.mark.parametrize("query", MEMORY)
async def test_rejects_query_that_needs_too_much_memory(file_store: Store, query: str) -> None:
    before, children = _peak(), _peak_of_children()
    with pytest.raises(Refused, match=r"memory|too big|MiB|longer than"):
        await file_store.sql(query, seconds=10)
    assert _peak() - before < 200 << 20, "this process does not grow"
    # Children of other tests in this process may have been larger.
    assert _peak_of_children() <= max(children, 1100 << 20)


def _peak_of_children() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
TEXT = "hex(zeroblob(8000000))"
START = f"substr({TEXT}, 1, 8000000)"
TIME = [
    ENDLESS,
    # Single functions that call no handler: each would take minutes or hours.
    f"SELECT instr({TEXT}, {START} || 'x')",
    f"SELECT replace({TEXT}, {START} || 'x', 'y')",
    f"SELECT {TEXT} LIKE '%' || substr({TEXT}, 1, 4000) || '_x%'",
    f"SELECT {TEXT} GLOB '*' || substr({TEXT}, 1, 4000) || '?x*'",
    "SELECT count(*) FROM json_each((SELECT json_group_array(1) FROM "
    "(WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 300000) SELECT x FROM n))) b, "
    "(WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n) c",
]


@pytest.mark.parametrize("query", TIME)
async def test_stops_query_at_time_limit(file_store: Store, query: str) -> None:
    started = time.monotonic()
    with pytest.raises(Refused, match=r"longer than 0\.5 s"):
        await file_store.sql(query, seconds=0.5)
    assert time.monotonic() - started < 0.5 + MARGIN
    assert _children() == []


async def test_other_requests_run_during_query(file_store: Store) -> None:
    asking = asyncio.create_task(file_store.sql(TIME[1], seconds=2.5))
    slowest = 0.0
    while not asking.done():
        started = time.monotonic()
        await file_store.thread("k")
        slowest = max(slowest, time.monotonic() - started)
        await asyncio.sleep(0.01)
    with pytest.raises(Refused):
        await asking
    assert slowest < 2.0


async def test_kills_process_when_caller_is_cancelled(file_store: Store) -> None:
    asking = asyncio.create_task(file_store.sql(ENDLESS, seconds=600))
    await until(lambda: bool(_children()))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert _children() == []


async def test_limits_concurrent_queries(file_store: Store) -> None:
    asking = [asyncio.create_task(file_store.sql(ENDLESS, seconds=0.5)) for _ in range(6)]
    most = 0
    while not all(task.done() for task in asking):
        most = max(most, len(_children()))
        await asyncio.sleep(0.01)
    assert all(isinstance(outcome, Refused) for outcome in await asyncio.gather(*asking, return_exceptions=True))
    assert 1 <= most <= 4
    assert _children() == []


ORPHAN = """
import asyncio, sys
from lockstitch.store import open_store

async def main():
    async with open_store(sys.argv[1]) as store:
        print("ready", flush=True)
        await store.sql(sys.argv[2], seconds=600)

asyncio.run(main())
"""


def test_process_ends_when_server_is_killed(tmp_path: Path) -> None:
    """Also while a single function runs, which calls no handler."""
    program = [sys.executable, "-c", ORPHAN, f"sqlite:///{tmp_path / 's.db'}", TIME[1]]
    with subprocess.Popen(program, env=environment(), stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        while not (children := _children(server.pid)):
            time.sleep(0.01)
        server.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while any(_lives(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(_lives(child) for child in children)


def _children(parent: int | None = None) -> list[int]:
    """Return the processes that run a query for this process, or for another one."""
    parent = parent or os.getpid()
    numbers: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                status = (folder / "stat").read_text().rpartition(")")[2].split()
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if int(status[1]) == parent and b"query_process" in command and status[0] != "Z":
                numbers.append(int(folder.name))
    return numbers


def _lives(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_result_is_truncated_when_too_large(file_store: Store) -> None:
    rows = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 500)"
    answer = await file_store.sql(f"{rows} SELECT hex(zeroblob(524288)) FROM n", limit=500)
    assert answer.truncated
    assert sum(len(row[0]) for row in answer.rows) <= ANSWER
    assert len(answer.rows) >= 30
    with pytest.raises(Refused, match="32 MiB"):
        await file_store.sql("SELECT hex(zeroblob(20000000))")


async def test_query_applies_row_limit(file_store: Store) -> None:
    rows = "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3"
    for limit, more in ((2, True), (3, False), (4, False)):
        answer = await file_store.sql(rows, limit=limit)
        assert (len(answer.rows), answer.truncated) == (min(limit, 3), more)


async def test_query_reports_problem_of_store(file_store: Store, tmp_path: Path) -> None:
    (tmp_path / "s.db").unlink()
    with pytest.raises(StoreError, match="cannot be opened"):
        await file_store.sql("SELECT 1")


@pytest.mark.parametrize("query", ["SELECT '\ud800'", "SELECT '\0'", "", " ", "-- nothing", "SELECT ?", "SELECT :a"])
async def test_rejects_text_that_is_not_a_query(file_store: Store, query: str) -> None:
    try:
        answer = await file_store.sql(query)
    except Refused:
        return
    assert (answer.columns, answer.rows) in (([], []), ([":a"], [(None,)]), (["?"], [(None,)]))


async def test_process_is_used_again(file_store: Store) -> None:
    await file_store.sql("SELECT 1")
    (process,) = _children()
    with pytest.raises(Refused, match="no such table"):
        await file_store.sql("SELECT * FROM missing")
    assert (await file_store.sql("SELECT key FROM threads")).rows == [("k",)]
    assert _children() == [process]


async def test_process_is_not_used_again_after_limit(file_store: Store) -> None:
    await file_store.sql("SELECT 1")
    (process,) = _children()
    with pytest.raises(Refused, match="longer than"):
        await file_store.sql(ENDLESS, seconds=0.2)
    assert process not in _children()
    assert (await file_store.sql("SELECT key FROM threads")).rows == [("k",)]


async def test_process_that_has_ended_is_replaced(file_store: Store) -> None:
    await file_store.sql("SELECT 1")
    (process,) = _children()
    os.kill(process, signal.SIGKILL)
    await until(lambda: _children() == [])
    assert (await file_store.sql("SELECT key FROM threads")).rows == [("k",)]


async def test_replaced_file_is_read(tmp_path: Path) -> None:
    """The process keeps no connection between two statements."""
    path = tmp_path / "s.db"
    for key in ("first", "second"):
        for file in tmp_path.iterdir():
            file.unlink()
        async with open_store(f"sqlite:///{path}") as store:
            await store.create(key=key)
            assert (await store.sql("SELECT key FROM threads")).rows == [(key,)]


def test_forked_process_starts_another_process(tmp_path: Path) -> None:
    """Two processes with one pipe would read each other's results."""
    program = [sys.executable, "-c", FORKED, f"sqlite:///{tmp_path / 's.db'}"]
    done = subprocess.run(program, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["child", "0", "parent", "0"]


FORKED = """
import asyncio, os, sys
from lockstitch.backends.sqlite import query_processes
from lockstitch.store import open_store

async def ask():
    async with open_store(sys.argv[1]) as store:
        return (await store.sql("SELECT count(*) FROM threads")).rows[0][0]

asyncio.run(ask())
(idle,) = query_processes._idle
child = os.fork()
name = "parent" if child else "child"
if child:
    assert os.waitpid(child, 0)[1] == 0
print(name, asyncio.run(ask()), flush=True)
assert (query_processes._idle[0] is idle) == bool(child)
"""


FUNCTIONS = [
    ("jsonb_array_length('[1, [2, 3]]')", 2),
    ("jsonb_array_length('{}')", None),
    ("jsonb_array_length('no JSON')", None),
    ("jsonb_array_length(NULL)", None),
    *((f"jsonb_typeof('{value}')", kind) for value, kind in [("{}", "object"), ("[]", "array"), ('"a"', "string")]),
    *(
        (f"jsonb_typeof('{value}')", kind)
        for value, kind in [("-1.50", "number"), ("true", "boolean"), ("null", "null")]
    ),
    ("jsonb_typeof(NULL)", None),
    ("json_typeof('[]')", "array"),
    ("""jsonb_extract_path_text('{"a": [1.50, {"b": "é"}]}', 'a', '0')""", "1.50"),
    ("""jsonb_extract_path_text('{"a": [1.50, {"b": "é"}]}', 'a', 1, 'b')""", "é"),
    ("""jsonb_extract_path_text('{"a": [1.50, true]}', 'a')""", "[1.50, true]"),
    ("""jsonb_extract_path_text('{"a": null}', 'a')""", None),
    ("""jsonb_extract_path_text('{"a": 1}', 'b', 'c')""", None),
    ("""jsonb_extract_path('{"a": "b"}', 'a')""", '"b"'),
    ("""json_extract_path_text('{"a": false}', 'a')""", "false"),
]
"""Calls of functions of PostgreSQL, and their results."""


async def test_functions_of_postgresql_work_in_sql_of_users(store: Store) -> None:
    query = f"SELECT {', '.join(call for call, _ in FUNCTIONS)}"
    expected = tuple(result for _, result in FUNCTIONS)
    for lens in (None, "agno"):
        assert (await store.sql(query, lens=lens)).rows == [expected]
    async with store.lens("agno") as connection:
        assert connection.execute(query).fetchall() == [expected]


async def test_statements_of_the_agno_document_work(store: Store) -> None:
    """The document counts the runs of a session with a function of PostgreSQL."""
    head = await store.thread("k")
    await store.append(head, new_runs=[store.new_run(head)])
    count = "SELECT jsonb_array_length(runs) as num_runs FROM agno_sessions WHERE session_id = 'k'"
    assert (await store.sql(count, lens="agno")).rows == [(1,)]
