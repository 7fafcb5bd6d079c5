"""The baseline of imports writes the same rows as an import, and the generated traces are valid."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.floors.mirrors import taken, written
from benchmarks.foreign import langsmith, otel
from benchmarks.memory import watched
from lockstitch.integrations.importer import Report, TraceImport, open_source
from lockstitch.store import Store, open_store
from tests.servers import PostgresServer

pytestmark = pytest.mark.anyio

TRACES = 3

Write = Callable[[Path], int]

FORMS: dict[str, tuple[str, Write]] = {
    "langsmith": ("langsmith", lambda path: langsmith.write(path, langsmith.agents(TRACES))),
    "protobuf": ("otel", lambda path: otel.write_protobuf(path, otel.agents(TRACES))),
    "lines": ("otel", lambda path: otel.write_lines(path, otel.agents(TRACES))),
}


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def another_url(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of a second store with the same backend."""
    if backend == "sqlite":
        yield f"sqlite:///{tmp_path / 'another.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database()
    yield url
    server.drop_database(url)


async def _import(store: Store, source: str, path: Path) -> Report:
    opened = open_source(source, str(path), io.BytesIO())
    return await TraceImport(store, opened.source).run(opened.sources)


@pytest.mark.parametrize("form", FORMS)
async def test_imports_generated_traces_completely(form: str, tmp_path: Path) -> None:
    source, write = FORMS[form]
    assert write(tmp_path / "traces") == TRACES * 10
    async with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        report = (await _import(store, source, tmp_path / "traces")).as_json()
    counts = {name: report[name] for name in ("traces", "runs", "llm_calls", "tool_calls", "tokens", "skipped")}
    # Two model calls of 900 and 120 tokens, and two tools each.
    assert counts == {
        "traces": TRACES,
        "runs": 10 * TRACES,
        "llm_calls": 2 * TRACES,
        "tool_calls": 2 * TRACES,
        "tokens": 2 * 1020 * TRACES,
        "skipped": [],
    }


async def test_imports_every_span_of_large_trace(tmp_path: Path) -> None:
    spans = langsmith.whole(95)
    assert langsmith.write(tmp_path / "whole", [spans]) == 95
    async with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        report = await _import(store, "langsmith", tmp_path / "whole")
    assert (report.traces, report.spans, report.skipped) == (1, 95, [])


@pytest.mark.parametrize("form", ["langsmith", "protobuf"])
async def test_baseline_writes_rows_of_import(
    form: str, backend: str, store_url: str, another_url: str, tmp_path: Path
) -> None:
    source, write = FORMS[form]
    write(tmp_path / "traces")
    async with open_store(store_url) as store:
        await _import(store, source, tmp_path / "traces")
    tables = taken(store_url)
    async with open_store(another_url) as store:
        assert written(another_url, tables) > 0
        assert (await store.verify()).ok
        assert taken(another_url) == tables
        # The rows equal those of an import, so another import changes nothing.
        report = await _import(store, source, tmp_path / "traces")
        assert report.spans == 10 * TRACES
    assert taken(another_url) == tables


def test_ends_file_at_requested_size(tmp_path: Path) -> None:
    for write in (
        lambda path: langsmith.write(path, langsmith.agents(), 50_000),
        lambda path: otel.write_lines(path, otel.agents(), 50_000),
    ):
        assert write(tmp_path / "file") % 10 == 0
        assert 50_000 <= (tmp_path / "file").stat().st_size < 75_000


def test_measures_memory_of_command_only(tmp_path: Path) -> None:
    allocated = bytearray(400_000_000)
    peak = watched(f"sqlite:///{tmp_path}/store.db", "migrate")
    assert len(allocated) / 1e6 > peak.megabytes > 5
