"""The code and the commands in docs/howto/several-machines.md, on a real PostgreSQL."""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lockstitch import sync
from lockstitch.backend import Find
from lockstitch.errors import KeyTaken
from lockstitch.model import Limit
from tests.cli.calling import SOURCE, Call
from tests.cli.workers import wait_for
from tests.docs.warm import warm_commands
from tests.servers import PostgresServer

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "several-machines.md").read_text()
URL = "postgresql://agents:secret@db.internal/agents"
MODEL = "anthropic:claude-sonnet-5"
MODULE = re.compile(r"# (\w+\.py)\n")
"""The first line of a block that is a module."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """Return the URL of a new, empty database."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert MODEL in PAGE
    (tmp_path / "script.json").write_text(json.dumps({"replies": [["Done."]], "side_calls": {"title": "T"}}))
    for code in blocks("python"):
        if (name := MODULE.match(code)) is not None:
            scripted = code.replace(MODEL, "scripted:script.json").replace("provider:anthropic", "provider:scripted")
            (tmp_path / name[1]).write_text(scripted)
    return tmp_path


def lines(number: int) -> list[str]:
    """Return the `lockstitch` commands of a shell block, without comments."""
    commands = [line.partition("#")[0].strip() for line in blocks("sh")[number].splitlines()]
    return [line for line in commands if line.startswith("lockstitch ")]


def begin(folder: Path, url: str, line: str, *more: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [warm_commands() / "lockstitch", *shlex.split(line)[1:], *more],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": SOURCE, "LOCKSTITCH_STORE": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def command(folder: Path, url: str, line: str) -> str:
    with begin(folder, url, line) as process:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, (line, err)
        return out


@pytest.fixture
def looking(call: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Run commands that need no app, in this process."""
    monkeypatch.setenv("LOCKSTITCH_STORE", url)

    def look(line: str) -> None:
        result = call(*shlex.split(line)[1:])
        assert result.code == 0, (line, result.err)

    return look


def functions(url: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    for code in blocks("python"):
        if MODULE.match(code) is None:
            exec(code.replace(URL, url), namespace)
    return namespace


def test_runs_commands_and_code_of_page(url: str, folder: Path, looking: Callable[[str], None]) -> None:
    migrate, (works,), starts, looks = lines(0)[0], lines(1), lines(2), lines(3)
    looking(migrate)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (number int PRIMARY KEY)")
    with begin(folder, url, works, "--json", "--grace", "60") as worker:
        try:
            now, later = (command(folder, url, line).strip() for line in starts)
            code = functions(url)
            code["order"](7)
            with psycopg.connect(url) as connection:
                connection.execute("DELETE FROM orders")
            with pytest.raises(KeyTaken):
                code["order"](7)
            asyncio.run(code["later"]())
            with sync.open_store(url) as store:
                wait_for(lambda: store.thread(now).ended and store.thread("order-7").ended)
                # The time on the page may be in the past. A thread with a later time has not started.
                assert store.thread(later).goal == "Open the shop"
                assert (store.thread("reminder-7").status, store.thread("order-7").status) == ("waiting", "completed")
                limits = store.portal.call(store.async_store._backend.find(Find(Limit, order=("name",))))
                assert [(limit.name, limit.at_most) for limit in limits] == [
                    ("agent:clerk", 20),
                    ("provider:scripted", 50),
                ]
            for line in looks:
                looking(line.replace("THREAD", now).replace("lockstitch watch", "lockstitch watch --once"))
        finally:
            os.kill(worker.pid, signal.SIGTERM)
        _, err = worker.communicate(timeout=60)
        assert (worker.returncode, err) == (0, "")
    assert command(folder, url, "lockstitch run clerk 'Which orders are open?' --app clerks:app").startswith("Done.")


def test_starts_thread_when_role_can_only_insert(url: str, looking: Callable[[str], None]) -> None:
    looking("lockstitch migrate")
    role = f"clerk_{os.getpid()}"
    with psycopg.connect(url, autocommit=True) as owner, sync.open_store(url) as store:
        owner.execute(f"CREATE ROLE {role}")
        try:
            owner.execute(f"GRANT USAGE ON SCHEMA lockstitch TO {role}")
            owner.execute(f"GRANT INSERT ON lockstitch.threads TO {role}")
            with psycopg.connect(url) as connection:
                connection.execute(f"SET ROLE {role}")
                store.start("clerk", "g", key="k", connection=connection)
            assert store.thread("k").status == "pending"
        finally:
            owner.execute(f"DROP OWNED BY {role}")
            owner.execute(f"DROP ROLE {role}")


def test_systemd_unit_waits_longer_than_worker() -> None:
    unit = blocks("ini")[0]
    grace, stop = re.search(r"--grace (\d+)", unit), re.search(r"TimeoutStopSec=(\d+)", unit)
    assert grace
    assert stop
    assert int(stop[1]) > int(grace[1])
