"""Malicious traces: nothing in them is executed, leaves the store, or needs unlimited memory."""

import asyncio
import base64
import gzip
import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from lockstitch.backend import Find
from lockstitch.integrations.importer import TraceImport, open_source
from lockstitch.integrations.spans.span import Attachment
from lockstitch.model import Blob, File, Json
from lockstitch.store import Store, open_store
from tests.cli.calling import environment
from tests.integrations.importing import import_bytes, import_items, lens
from tests.integrations.otel import bodies as otel
from tests.integrations.runs import Trace, agent_trace, items, uid
from tests.integrations.seeing import rows_of, seen

pytestmark = pytest.mark.anyio

NASTY = [
    "a\x00b",
    "a\nb\r\tc",
    "'; DROP TABLE stitches; --",
    '"}]}\\',
    "\u202etxt.exe",
    "🧵" * 50,
    "../../etc/passwd",
    "%s%n{0}{x.__class__}",
    "$(touch /tmp/x)",
    "x" * 20_000,
    "\ud800",
    " ",
]


def jsonl(*runs: Json) -> bytes:
    return b"".join(json.dumps(run).encode() + b"\n" for run in runs)


CODE = [
    "__import__('os').system('touch {mark}')",
    "{{'a': __import__('pathlib').Path('{mark}').touch()}}",
    "[open('{mark}', 'w') for _ in (1,)]",
    "f\"{{open('{mark}', 'w')}}\"",
    "(lambda: open('{mark}', 'w'))()",
    "content=open('{mark}', 'w') name='x' tool_call_id='call_a'",
    "content='x'.__class__.__mro__[1].__subclasses__() tool_call_id='call_a'",
]


@pytest.mark.req("S2-052")
async def test_python_text_is_never_executed(store: Store, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for number, code in enumerate(CODE, start=1):
        text = code.format(mark=mark)
        trace = Trace(number)
        trace.root()
        asking = trace.model(1, calls=[("call_a", "shell", {})])
        asking["outputs"]["generations"][0][0]["message"]["kwargs"]["tool_calls"][0]["args"] = text
        trace.tool(2, "shell", "call_a", text, inputs={"input": text})
        trace.run("tool", "other", 3, {"input": text}, {"output": text})
        report = await import_bytes(store, "langsmith", jsonl(*trace.runs))
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "x"}
        span = otel.made({**attributes, "gen_ai.tool.call.arguments": text}, traceId=f"{number:032x}")
        await import_bytes(store, "otel", json.dumps(span).encode())
        assert report.skipped == [], code
        assert not mark.exists(), code
    arguments = [call["tool_args"] for call in (await lens(store))["tool_calls"]]
    assert not mark.exists()
    for code in CODE:
        text = code.format(mark=mark)
        assert any(text in (args, *(args.values() if isinstance(args, dict) else ())) for args in arguments), (
            f"{code} is not stored as text"
        )


@pytest.mark.parametrize(
    "name",
    ["../../x", "/etc/cron.d/x", "..", "a/b\\c", "C:\\x", "x\x00y", "", "-rf", "~/.bashrc", "x" * 9_000, "\ud800"],
)
async def test_attachments_are_stored_inside_store_with_any_name(store: Store, tmp_path: Path, name: str) -> None:
    before = _files(tmp_path)
    trace = agent_trace()
    items_found = [*items(*trace.runs), Attachment(trace.runs[1]["id"], name, "text/plain", b"#!/bin/sh")]
    report = await import_items(store, "langsmith", items_found)
    stored_files = await store._backend.find(Find(File))
    assert len(stored_files) + len(report.skipped) == 1
    for file in stored_files:
        assert (file.storage_path or "").startswith("blob:")
        blob = await store._backend.get(Blob, ((file.storage_path or "").removeprefix("blob:"),))
        assert blob is not None
        assert blob.content == b"#!/bin/sh"
    new_files = _files(tmp_path) - before
    assert all(path.is_relative_to(tmp_path / "store") or path.name.startswith("store.db") for path in new_files)


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.req("S2-001", "S2-048")
async def test_traces_with_any_ids_and_names_are_imported(store: Store) -> None:
    """Each becomes a separate trace, is recognised when it comes again, and does not affect other traces."""
    valid_trace = agent_trace(9)
    await import_bytes(store, "langsmith", jsonl(*valid_trace.runs))
    runs: list[Json] = []
    for number, nasty in enumerate(NASTY):
        trace = agent_trace(number + 20, thread=nasty, metadata={nasty: nasty, "user_id": nasty})
        for run in trace.runs:
            run |= {"name": nasty, "tags": [nasty], "error": None, "session_id": nasty, "session_name": nasty}
        trace.runs[0]["id"] = trace.runs[0]["trace_id"] = f"{nasty}{number}"
        for run in trace.runs[1:]:
            run["trace_id"] = run["parent_run_id"] = f"{nasty}{number}"
        calls = trace.runs[1]["outputs"]["generations"][0][0]["message"]["kwargs"]
        calls["id"] = nasty
        calls["tool_calls"][0] |= {"id": nasty, "name": nasty}
        runs += trace.runs
    first = await import_bytes(store, "langsmith", jsonl(*runs))
    before = await seen(store), await lens(store)
    second_report = await import_bytes(store, "langsmith", jsonl(*runs))
    assert (await seen(store), await lens(store)) == before
    assert first.skipped == second_report.skipped == []
    assert first.traces == len(NASTY)
    assert before[1]["agent_runs"] != []
    own_calls = [call for call in before[1]["llm_calls"] if call["run_id"] == valid_trace.id]
    assert len(own_calls) == 2
    assert (await store.verify()).ok


async def test_python_attribute_names_are_plain_keys(store: Store) -> None:
    keys = ["__class__", "__proto__", "__init__", "constructor", "self", "id", "type", "data", "$ref", "", "a.b", "0"]
    nested = {key: {key: [{key: key}]} for key in keys}
    trace = agent_trace(metadata=nested)
    for run in trace.runs:
        run["inputs"] |= nested
        run["outputs"] |= nested
        run |= dict.fromkeys(("__class__", "__proto__", "constructor"), nested)
        run["extra"] |= nested
    report = await import_bytes(store, "langsmith", jsonl(*trace.runs))
    assert report.skipped == []
    (shown_run,) = (await lens(store))["agent_runs"]
    assert {key: shown_run["langgraph_metadata"][key] for key in keys} == nested
    span = otel.made(dict.fromkeys([*keys[:5], "gen_ai.__class__", "langsmith.metadata.__class__"], "x"))
    assert (await import_bytes(store, "otel", json.dumps(span).encode())).spans == 1


NUMBERS = [
    "1e999",
    "1e308",
    "4611686018427387904",
    "-1e999",
    "1208925819614629174706176",
    "-0.0",
    "NaN",
    "Infinity",
    "1e-400",
    "9" * 400,
]


async def test_numbers_beyond_columns_are_imported(store: Store) -> None:
    """As a count, a time, a score and an argument. Values that cannot be stored are left out or reported."""
    for place, number in enumerate(NUMBERS, start=1):
        await _keeps_or_names(store, place, number)
    counts = Counter(call["run_id"] for call in (await lens(store))["llm_calls"])
    assert counts.items() >= {agent_trace(place).id: 2 for place in range(1, len(NUMBERS) + 1)}.items()
    assert (await store.verify()).ok


async def _keeps_or_names(store: Store, place: int, number: str) -> None:
    trace = agent_trace(place)
    asking = trace.runs[1]["outputs"]["generations"][0][0]["message"]["kwargs"]
    asking["usage_metadata"] = {"input_tokens": "@@", "output_tokens": "@@", "total_tokens": "@@"}
    trace.runs[4]["outputs"]["generations"][0][0]["message"]["kwargs"]["usage_metadata"] = asking["usage_metadata"]
    asking["tool_calls"][0]["args"] = {"n": "@@"}
    trace.runs[4] |= {"prompt_cost": "@@", "completion_cost": "@@"}
    trace.runs[0] |= {"total_tokens": "@@", "total_cost": "@@", "prompt_tokens": "@@"}
    trace.runs[2]["end_time"] = "@@"
    feedback = {"id": uid(place * 1000 + 77), "run_id": trace.runs[1]["id"], "key": "k", "score": "@@"}
    body = jsonl(*trace.runs, feedback).replace(b'"@@"', number.encode())
    report = await import_bytes(store, "langsmith", body)
    assert report.traces == 1, number
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 7}
    document = json.dumps(otel.made(attributes, traceId=f"{place:032x}"))
    await import_bytes(store, "otel", document.replace('"intValue": "7"', f'"intValue": {number}').encode())
    priced = json.dumps(otel.made({**attributes, "operation.cost": 0.5}, traceId=f"{place:032x}"))
    await import_bytes(store, "otel", priced.replace("0.5", number).encode())


TIMES = [
    *("0000-01-01T00:00:00Z", "99999-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
    *("yesterday", "", -1, 0, 10**30, 253402300800, None, {}, [1], True),
]


async def test_times_beyond_calendars_are_imported(store: Store) -> None:
    """Each in a separate trace, which is imported twice."""
    for number, time in enumerate(TIMES, start=1):
        trace = agent_trace(number)
        for run in trace.runs:
            run |= {"start_time": time, "end_time": time}
        report = await import_bytes(store, "langsmith", jsonl(*trace.runs))
        assert report.as_json()["llm_calls"] == 2, time
        await import_bytes(store, "langsmith", jsonl(*trace.runs))
    counts = Counter(call["run_id"] for call in (await lens(store))["llm_calls"])
    assert counts == {agent_trace(number).id: 2 for number in range(1, len(TIMES) + 1)}
    assert (await store.verify()).ok


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("levels", [200, 5_000, 200_000])
async def test_deeply_nested_values_are_imported_or_skipped(store: Store, levels: int) -> None:
    valid_lines = jsonl(*agent_trace(1).runs)
    invalid_line = json.dumps({**agent_trace(2).runs[0], "inputs": "@@"}).replace('"@@"', deep(levels)).encode()
    report = await import_bytes(store, "langsmith", valid_lines + invalid_line + b"\n")
    assert {uid(1000)} <= set(await seen(store))
    assert report.traces + len(report.skipped) == 2
    document = json.dumps(otel.made({"x": "@@"})).replace('{"stringValue": "@@"}', deep(levels))
    await import_bytes(store, "otel", document.encode())
    inside = json.dumps(otel.made({"gen_ai.input.messages": deep(levels)}))
    await import_bytes(store, "otel", inside.encode())
    text = {**agent_trace(3).runs[0], "inputs": {"input": deep(levels)}, "run_type": "tool"}
    await import_bytes(store, "langsmith", jsonl(text))
    assert (await store.verify()).ok


@pytest.mark.req("S2-001")
@pytest.mark.parametrize("source", ["langsmith", "otel"])
async def test_projects_with_same_ids_stay_separate(store: Store, source: str) -> None:
    """The same bodies in two projects: separate rows in the core, and neither affects the other."""
    first = jsonl(*agent_trace(thread="shared").runs) if source == "langsmith" else otel.recorded("pydantic_ai")
    other_store = store.in_project("other")
    await import_bytes(store, source, first)
    own_view = await seen(store)
    await import_bytes(other_store, source, first.replace(b"search", b"stolen").replace(b"get_weather", b"got_stolen!"))
    await import_bytes(other_store, source, first, replace=True)
    assert await seen(store) == own_view
    assert (await seen(other_store)).keys() == own_view.keys()
    answer = await store.sql(
        "SELECT t.project, count(*) FROM stitches s JOIN threads t ON t.id = s.thread_id "
        "WHERE t.kind = 'trace' GROUP BY t.project ORDER BY t.project"
    )
    counts = dict(answer.rows)
    assert counts["default"] == counts["other"] > 3
    assert (
        len({row.id for project_store in (store, other_store) for row in await rows_of(project_store, "llm_call")}) == 4
    )
    (thread,) = await other_store.threads(kind="trace")
    await other_store.delete(thread)
    assert await seen(store) == own_view


BOMB = 300 * 1024 * 1024


def bombs() -> Iterator[tuple[str, bytes]]:
    """Yield small files with large content: one value, many empty records, and content compressed twice."""
    zeros = zstandard.ZstdCompressor().compress(b'{"id": "' + b"a" * BOMB)
    yield "one text in zstd", zeros
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=9) as out:
        out.write(b'{"id": "')
        for _ in range(BOMB // (1 << 20)):
            out.write(b"a" * (1 << 20))
    yield "one text in gzip", packed.getvalue()
    yield "gzip in gzip", gzip.compress(packed.getvalue())
    spaces = zstandard.ZstdCompressor().compress(b" " * BOMB)
    yield "nothing but spaces", spaces
    saved = json.dumps({"body_base64": base64.b64encode(zeros).decode(), "headers": {}, "endpoint": "/runs/batch"})
    yield "inside of a saved request", saved.encode()


WATCHED = """
import sys
from lockstitch.cli.entry import run
code = run(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("PEAK", int(peak.split()[1]) // 1024, code, file=sys.stderr)
"""


def watched(tmp_path: Path, source: str, path: Path) -> tuple[int, int, Json]:
    """Import in a separate process. Return its exit code, its peak memory in MB, and its report."""
    tmp_path.mkdir(exist_ok=True)
    command = [sys.executable, "-c", WATCHED, "--store", f"sqlite:///{tmp_path / path.stem}.db", "--json"]
    command += ["import", source, str(path)]
    process = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    words = next(line for line in process.stderr.splitlines() if line.startswith("PEAK")).split()
    return int(words[2]), int(words[1]), json.loads(process.stdout)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux")
def test_compression_bombs_are_reported_and_need_little_memory(tmp_path: Path) -> None:
    folder = tmp_path / "bombs"
    folder.mkdir()
    for number, (kind, bomb) in enumerate(bombs()):
        assert len(bomb) < 1_000_000, kind
        (folder / f"{number} {kind}.bin").write_bytes(bomb)
    # A file of spaces contains nothing, so it need not be reported.
    named = {path.name for path in folder.iterdir() if "spaces" not in path.name}
    for source in ("langsmith", "otel"):
        code, peak, report = watched(tmp_path / source, source, folder)
        assert (code, report["runs"]) == (1, 0)
        skipped = {Path(skipped_file["file"]).name for skipped_file in report["skipped"]}
        assert {name for name in skipped if "spaces" not in name} == named
        assert peak < 450


def langsmith_line(number: int, size: int) -> bytes:
    """Return a line of about twice that size: one run of a trace of ten."""
    trace, place = divmod(number, 10)
    new_trace = Trace(trace + 1)
    root = new_trace.root()
    run = root if place == 0 else {**new_trace.model(place, "x" * size), "id": uid((trace + 1) * 1000 + place)}
    run["inputs"] = {"messages": [{"type": "human", "content": f"{number} " + "y" * size}]}
    return json.dumps(run).encode() + b"\n"


def otel_line(number: int, size: int) -> bytes:
    trace, place = divmod(number, 10)
    message_text = json.dumps([{"role": "user", "parts": [{"type": "text", "content": f"{number} " + "y" * size}]}])
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": message_text, "filler": "x" * size}
    parent = {"parentSpanId": f"{trace * 10 + 1:016x}"} if place else {}
    span = otel.made(attributes, traceId=f"{trace + 1:032x}", spanId=f"{number + 1:016x}", **parent)
    return json.dumps(span).encode() + b"\n"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux")
@pytest.mark.parametrize(("source", "line"), [("langsmith", langsmith_line), ("otel", otel_line)])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, source: str, line: Callable[[int, int], bytes]) -> None:
    """A gigabyte needs as much memory as 24 MB. The benchmarks test larger files."""
    peaks: list[int] = []
    for lines in (60, 240):
        path = tmp_path / f"{lines}.jsonl"
        with path.open("wb") as file:
            for number in range(lines):
                file.write(line(number, 50_000))
        assert path.stat().st_size > lines * 100_000
        code, peak, report = watched(tmp_path, source, path)
        assert (code, report["runs"], report["traces"]) == (0, lines, lines // 10)
        peaks.append(peak)
    assert max(peaks) < 250, peaks
    assert peaks[1] - peaks[0] < 40, peaks


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux")
@pytest.mark.parametrize("source", ["langsmith", "otel"])
def test_text_of_hundred_megabytes_is_imported(tmp_path: Path, source: str) -> None:
    """The text exceeds the maximum length of a record: it is reported, and the other files are imported."""
    folder = tmp_path / "in"
    folder.mkdir()
    valid_content = jsonl(*agent_trace().runs) if source == "langsmith" else otel.recorded("pydantic_ai")
    (folder / "1.jsonl").write_bytes(valid_content)
    line = langsmith_line(0, 50 << 20) if source == "langsmith" else otel_line(0, 50 << 20)
    assert len(line) > 100 << 20 or source == "langsmith"
    (folder / "2.jsonl").write_bytes(line if len(line) > 100 << 20 else line.replace(b"y" * 1000, b"y" * 2100))
    code, peak, report = watched(tmp_path, source, folder)
    assert (code, report["traces"]) == (6, 1)
    assert [Path(skipped["file"]).name for skipped in report["skipped"]] == ["2.jsonl"]
    assert peak < 600


def test_imports_report_only_their_own_traces() -> None:
    """The traces of one import are not part of the next import's report."""

    async def both() -> list[int]:
        async with open_store("sqlite:///:memory:") as store:
            counts: list[int] = []
            for number in (1, 2):
                opened = open_source("langsmith", "-", io.BytesIO(jsonl(*agent_trace(number).runs)))
                report = await TraceImport(store, opened.source).run(opened.sources)
                counts.append(report.traces)
            return counts

    assert asyncio.run(both()) == [1, 1]
