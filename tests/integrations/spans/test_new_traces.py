"""Traces that the store does not know are written at once. The record is the same as in the general case."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstitch.backend import Find
from lockstitch.backends.files import log
from lockstitch.integrations import importer
from lockstitch.integrations.langsmith import LangSmith
from lockstitch.integrations.spans.ingest import SpanIngest
from lockstitch.integrations.spans.new_traces import NewTraces
from lockstitch.integrations.spans.reader_process import ReaderProcesses
from lockstitch.model import FakeClock, MirroredModelCall, Record, Run, Stitch, Thread, codec
from lockstitch.store import Store, open_store
from lockstitch.store.writes.mirrors import MirrorStore
from tests.integrations.importing import import_bytes, import_path
from tests.integrations.langsmith import recorded as langsmith
from tests.integrations.otel import bodies as otel
from tests.integrations.runs import agent_trace, items
from tests.integrations.seeing import seen

pytestmark = pytest.mark.anyio

KINDS: tuple[type[Record], ...] = (Thread, Run, Stitch, MirroredModelCall)
FOLDERS = [("otel", otel.FIXTURES), ("langsmith", langsmith.FIXTURES)]


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that turns the fast path off."""

    async def never(*_: object, **__: object) -> bool:
        return False

    return lambda: monkeypatch.setattr(SpanIngest, "_write_new", never)


async def record(store: Store) -> dict[str, list[Any]]:
    """Return all records of imported traces. The number in the whole log depends on the order of the threads."""
    rows: dict[str, list[Any]] = {}
    for kind in KINDS:
        found = await store._backend.find(Find(kind))
        rows[kind.__name__] = sorted(
            sorted((key, repr(value)) for key, value in row.__dict__.items() if key != "log_id") for row in found
        )
    return rows


async def imported(url: str, source: str, path: Path, clock: FakeClock) -> tuple[Any, Any]:
    async with open_store(url, clock=clock) as store:
        report = await import_path(store, source, path)
        return await record(store), report.as_json()


@pytest.mark.parametrize(("source", "folder"), FOLDERS, ids=["otel", "langsmith"])
async def test_record_is_the_same_as_in_general(
    store_url: str, tmp_path: Path, source: str, folder: Path, general: Any
) -> None:
    clock = FakeClock()
    fast = await imported(store_url, source, folder, clock)
    general()
    assert await imported(f"sqlite:///{tmp_path}/general.db", source, folder, clock) == fast
    assert len(fast[0]["Stitch"]) > 40


@pytest.mark.parametrize(("source", "folder"), FOLDERS, ids=["otel", "langsmith"])
async def test_another_process_reads_large_files(
    store_url: str, tmp_path: Path, source: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    here = await imported(f"sqlite:///{tmp_path}/here.db", source, folder, clock)
    monkeypatch.setattr(importer, "SEPARATE", 0)
    started: list[ReaderProcesses] = []
    monkeypatch.setattr(
        importer, "ReaderProcesses", lambda number: started.append(ReaderProcesses(number)) or started[-1]
    )
    assert await imported(store_url, source, folder, clock) == here
    assert len(started) == 1
    assert [process._process.poll() is not None for process in started[0]._processes] == [True, True], "they have ended"


@pytest.fixture
def use_processes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Return a function that sets the number of processes that read a file and the bytes of a stretch."""

    def use(number: int, stretch: int) -> None:
        monkeypatch.setattr(importer, "SEPARATE", 0)
        monkeypatch.setattr(importer, "ReaderProcesses", lambda _: ReaderProcesses(number, stretch))

    return use


async def test_order_does_not_depend_on_the_number_of_processes(
    store_url: str, tmp_path: Path, use_processes: Callable[[int, int], None]
) -> None:
    """The runs of two traces alternate, so each trace is in several stretches. Ten traces have one conversation."""
    lines: list[bytes] = []
    for number in range(1, 20, 2):
        first, second = agent_trace(number, thread="conversation").runs, agent_trace(number + 1).runs
        lines += [codec.dumps(run) + b"\n" for pair in zip(first, second, strict=True) for run in pair]
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"".join(lines))
    results: list[Any] = []
    for number in (1, 2, 3):
        use_processes(number, 3_000)
        url = store_url if number == 3 else f"sqlite:///{tmp_path}/{number}.db"
        results.append(await imported(url, "langsmith", path, FakeClock()))
    assert results[1] == results[0]
    assert results[2] == results[0]
    assert (len(results[0][0]["Thread"]), len(results[0][0]["Run"])) == (11, 20)


@pytest.mark.parametrize("stretch", [1, 1 << 20])
async def test_items_before_damage_are_read(
    store_url: str, tmp_path: Path, use_processes: Callable[[int, int], None], stretch: int
) -> None:
    path = tmp_path / "runs.jsonl"
    lines = [codec.dumps(run) + b"\n" for run in agent_trace(1).runs]
    path.write_bytes(b"".join(lines) + b'{"id": "')
    _, here = await imported(f"sqlite:///{tmp_path}/here.db", "langsmith", path, FakeClock())
    use_processes(2, stretch)
    _, report = await imported(store_url, "langsmith", path, FakeClock())
    assert report == here
    assert (report["runs"], len(report["skipped"])) == (len(lines), 1)


@pytest.mark.parametrize("backend", ["files"])
async def test_new_traces_are_written_without_reading_other_logs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files backend has no index of stitch ids. A search for them would read the logs of all threads."""
    await import_path(store, "otel", otel.FIXTURES)
    read: list[str] = []
    each = log.each

    def noted(folder: Any, path: str, *ranges: Any) -> Any:
        read.append(path)
        return each(folder, path, *ranges)

    monkeypatch.setattr(log, "each", noted)
    report = await import_bytes(store, "otel", otel.as_protobuf(otel.made({})))
    assert (report.traces, report.skipped) == (1, [])
    assert read == []


async def test_file_is_read_here_when_the_process_is_killed(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    folder = otel.FIXTURES
    here = await imported(f"sqlite:///{tmp_path}/here.db", "otel", folder, clock)
    monkeypatch.setattr(importer, "SEPARATE", 0)
    written = MirrorStore.write_encoded
    killed: list[int] = []
    processes: list[ReaderProcesses] = []
    monkeypatch.setattr(
        importer, "ReaderProcesses", lambda number: processes.append(ReaderProcesses(number)) or processes[-1]
    )

    async def kill_after(self: MirrorStore, rows: Any, *, new_ids: bool) -> None:
        await written(self, rows, new_ids=new_ids)
        if not killed:
            killed.append(processes[0].pids[0])
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(MirrorStore, "write_encoded", kill_after)
    assert await imported(store_url, "otel", folder, clock) == here
    assert len(killed) == 1


async def test_unreadable_file_is_reported_by_the_process(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.body").write_bytes((otel.FIXTURES / "oi_openai.body").read_bytes())
    (folder / "2.body").write_bytes(b'{"resourceSpans": 1')
    here = await imported(f"sqlite:///{tmp_path}/here.db", "otel", folder, FakeClock())
    monkeypatch.setattr(importer, "SEPARATE", 0)
    assert await imported(store_url, "otel", folder, FakeClock()) == here
    assert "2.body" in here[1]["skipped"][0]["why"]


async def test_stored_and_new_traces_of_one_batch(store: Store, tmp_path: Path, general: Any) -> None:
    first, second = agent_trace(1, thread="a").runs, agent_trace(2, thread="b").runs
    await SpanIngest(store, LangSmith()).write(items(*first[:2]))
    outcome = await SpanIngest(store, LangSmith()).write(items(*first, *second))
    assert len(outcome.traces) == 2
    general()
    async with open_store(f"sqlite:///{tmp_path}/general.db") as other:
        await SpanIngest(other, LangSmith()).write(items(*first, *second))
        assert await seen(other) == await seen(store)


async def test_second_trace_of_a_conversation_joins_its_thread(store: Store) -> None:
    for number in (1, 2):
        await SpanIngest(store, LangSmith()).write(items(*agent_trace(number, thread="conversation").runs))
    (thread,) = await store.threads(kind="trace")
    assert [run.sequence for run in await store.runs(thread)] == [1, 2]
    assert (await store.verify()).ok


async def test_trace_that_another_writer_stores_meanwhile_is_merged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other writer stores its part after the check and before the write."""
    parts = [items(*agent_trace(1).runs[:2]), items(*agent_trace(1).runs[2:])]
    other = SpanIngest(store, LangSmith())
    written = SpanIngest.write_new
    raced: list[NewTraces] = []

    async def race(self: SpanIngest, new: NewTraces, outcome: Any) -> bool:
        if not raced:
            raced.append(new)
            await other.write(parts[1])
        return await written(self, new, outcome)

    monkeypatch.setattr(SpanIngest, "write_new", race)
    await SpanIngest(store, LangSmith()).write(parts[0])
    (thread,) = await store.threads(kind="trace")
    (run,) = await store.runs(thread)
    assert (run.status, run.steps) == ("completed", 2)
    assert (await store.verify()).ok


async def test_duplicate_of_a_stored_model_call_is_counted_once(store: Store) -> None:
    """The second trace names the response of the first. A claim of the first is stored."""
    paths = [otel.FIXTURES / name for name in ("openll_openai.body", "oi_openai.body")]
    for path in paths:
        await import_path(store, "otel", path)
    claims = await store._backend.find(Find(MirroredModelCall))
    assert claims
    counted = sum([run.steps for thread in await store.threads(kind="trace") for run in await store.runs(thread)])
    async with open_store("sqlite:///:memory:") as one:
        for path in reversed(paths):
            await import_path(one, "otel", path)
        other = sum([run.steps for thread in await one.threads(kind="trace") for run in await one.runs(thread)])
    assert counted == other
