"""Another process reads a long queue. The record is the same, and no failure of it loses a body."""

import os
import signal
from typing import Any

import httpx2
import pytest

from lockstitch.backend import Find
from lockstitch.integrations.spans.reader_process import Part, ReaderProcesses, _Process
from lockstitch.model import Run
from lockstitch.server.ingest import processor
from lockstitch.store import Store
from tests.server.ingest.killing import _otlp
from tests.server.ingest.sending import PROTOBUF, run_of, settled
from tests.server.ingest.test_queue import DATABASES, names, poison
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[ReaderProcesses]:
    """Let another process read every body. Return the processes that were started."""
    started: list[ReaderProcesses] = []
    monkeypatch.setattr(processor, "BACKLOG", 0)
    monkeypatch.setattr(processor, "APART", 0)
    monkeypatch.setattr(processor, "ReaderProcesses", lambda: started.append(ReaderProcesses()) or started[-1])
    return started


async def ready(http: httpx2.AsyncClient, processes: list[ReaderProcesses]) -> None:
    """Send a body, which starts the process, and wait until it is ready."""
    await http.post("/runs", json=run_of(name="first"))
    await settled(http)
    await processes[-1]._processes[0].starting


async def test_other_process_reads_bodies(store: Store, processes: list[ReaderProcesses], parts: list[Part]) -> None:
    async with serving(store) as url, caller(url) as http:
        await ready(http, processes)
        assert parts == []
        await http.post("/v1/traces", content=_otlp(["a", "b"]), headers=PROTOBUF)
        await http.post("/runs", json=run_of(name="c"))
        queue = await settled(http)
        assert (queue["waiting"], queue["quarantined"]) == (0, 0)
        assert await names(store) == {"first", "a", "b", "c"}
        assert parts
    assert len(processes) == 1
    assert processes[0]._processes[0]._process.poll() is not None, "it ends with the server"


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """Return the parts that other processes sent."""
    received: list[Part] = []
    inner = _Process.receive

    async def noted(self: _Process) -> Any:
        value = await inner(self)
        received.extend([value] if isinstance(value, Part) else [])
        return value

    monkeypatch.setattr(_Process, "receive", noted)
    return received


async def test_bodies_are_read_here_when_the_process_is_killed(store: Store, processes: list[ReaderProcesses]) -> None:
    async with serving(store) as url, caller(url) as http:
        await ready(http, processes)
        os.kill(processes[0].pids[0], signal.SIGKILL)
        await http.post("/v1/traces", content=_otlp(["a", "b"]), headers=PROTOBUF)
        queue = await settled(http)
        assert (queue["waiting"], queue["quarantined"]) == (0, 0)
        assert await names(store) == {"first", "a", "b"}


@DATABASES
async def test_quarantines_only_the_body_that_cannot_be_written(store: Store, processes: list[ReaderProcesses]) -> None:
    bad = await poison(store)
    async with serving(store) as url, caller(url) as http:
        await ready(http, processes)
        await http.post("/runs/batch", json={"post": [run_of(name="before"), bad, run_of(name="after")]})
        await http.post("/v1/traces", content=_otlp(["later"]), headers=PROTOBUF)
        queue = await settled(http)
        assert (queue["waiting"], queue["quarantined"]) == (0, 1)
        assert {"before", "after", "later"} <= await names(store)


async def test_more_data_of_a_stored_trace_is_merged(store: Store, processes: list[ReaderProcesses]) -> None:
    run = run_of(name="run")
    end = {"outputs": {"output": 1}, "end_time": run.pop("end_time")}
    async with serving(store) as url, caller(url) as http:
        await ready(http, processes)
        await http.post("/runs", json=run)
        await settled(http)
        await http.patch(f"/runs/{run['id']}", json=end)
        await settled(http)
    runs = {run.agent: run for run in await store._backend.find(Find(Run))}
    assert runs["run"].status == "completed"
