"""`import`: report, exit codes, and invalid files among valid ones."""

import asyncio
import gzip
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard

from lockstitch.errors import StoreUnreachable
from lockstitch.integrations.spans.rows import MirrorIds
from lockstitch.model import Entry, Json, Stitch
from lockstitch.store import Store, open_store
from lockstitch.store.writes.mirrors import MirrorStore
from tests.cli.calling import Call, CommandResult, run
from tests.integrations.importing import lens
from tests.integrations.langsmith import recorded as langsmith
from tests.integrations.otel import bodies as otel
from tests.integrations.runs import Trace, agent_trace, uid
from tests.integrations.seeing import seen

REPORT = {"traces": 1, "runs": 5, "llm_calls": 2, "tool_calls": 2, "tokens": 240, "skipped": [], "missing": {}}
"""Totals of `agent_trace`: a root, two model calls of 100 + 20 tokens, two tools."""

TABLES = ("traces", "runs", "llm_calls", "tool_calls", "tokens")

Write = Callable[[str, Any], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file. Bytes and text stay unchanged, other values become JSON."""

    def written(name: str, content: Any) -> Path:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return written


def query_store(url: str, look: Callable[[Store], Any], project: str = "default") -> Any:
    async def ask() -> Any:
        async with open_store(url, project=project) as store:
            return await look(store)

    return asyncio.run(ask())


def report(result: CommandResult, code: int = 0) -> Json:
    """Return the output of a command, which is one JSON object on stdout."""
    assert result.code == code, result.err
    assert result.out.count("\n") == 1
    return json.loads(result.out)


def figures(result: CommandResult, code: int = 0) -> dict[str, int]:
    summary = report(result, code)
    return {name: summary[name] for name in TABLES}


GOOD = {name: REPORT[name] for name in TABLES}


def nested(runs: list[Json]) -> Json:
    """Return a trace as `Client.read_run(load_child_runs=True)` does: each run inside its parent."""
    root, *below = runs
    return {**root, "child_runs": [{**child, "parent_run_id": root["id"]} for child in below]}


def jsonl(runs: list[Json]) -> str:
    return "".join(json.dumps(run) + "\n" for run in runs)


SHAPES: dict[str, Callable[[list[Json]], Any]] = {
    "list.json": lambda runs: runs,
    "runs.jsonl": jsonl,
    "webhook.json": lambda runs: {"runs": runs, "rule_id": "r", "feedback_stats": {}},
    "batch.json": lambda runs: {"post": runs, "patch": []},
    "patches.json": lambda runs: {"post": runs[:3], "patch": runs[3:]},
    "nested.json": nested,
    "traces.json": lambda runs: {"traces": [nested(runs)]},
    "packed.json.gz": lambda runs: gzip.compress(json.dumps(runs).encode()),
    "packed.zst": lambda runs: zstandard.ZstdCompressor().compress(jsonl(runs).encode()),
    "by-run-id.json": lambda runs: [{**run, "run_id": run["id"]} for run in runs],
}


@pytest.mark.req("S2-043", "S2-044", "S2-042")
@pytest.mark.parametrize("shape", SHAPES)
def test_every_format_imports_same_trace(lockstitch: Call, store_url: str, write: Write, shape: str) -> None:
    path = write(shape, SHAPES[shape](agent_trace(thread="conv").runs))
    summary = report(lockstitch("import", "langsmith", str(path), "--json"))
    assert summary.pop("files") == [{"file": str(path), "traces": 1, "runs": 5, "skipped": 0, "error": None}]
    assert summary == REPORT
    rows = query_store(store_url, lens)
    assert [len(rows[view]) for view in ("agent_runs", "llm_calls", "tool_calls")] == [1, 2, 2]
    assert rows["agent_runs"][0]["thread_id"] == "conv"


@pytest.mark.req("S2-043")
def test_import_reads_stdin(tmp_path: Path, write: Write) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    traces = write("runs.jsonl", jsonl(agent_trace().runs))
    for source, path, expected in (
        ("langsmith", traces, GOOD),
        ("otel", otel.FIXTURES / "pydantic_ai.body", {**GOOD, "runs": 4, "tool_calls": 1, "tokens": 3060}),
    ):
        with path.open("rb") as piped:
            result = run("import", source, "-", "--json", env={"LOCKSTITCH_STORE": store}, stdin=piped)
        assert figures(result) == expected
        assert result.err == ""


@pytest.mark.req("S2-043", "S2-048")
def test_import_reads_folder_recursively(lockstitch: Call, store_url: str, write: Write) -> None:
    """One of four traces is split over two files, the first of which has no root."""
    for number in (1, 2):
        write(f"{number}/deep/trace.json", agent_trace(number).runs)
    runs = agent_trace(3).runs
    write("3/a.jsonl", jsonl(runs[1:]))
    folder = write("3/b.jsonl", jsonl(runs[:1])).parents[1]
    write(".hidden/not-json", "…")
    write("3/.gitkeep", "")
    assert figures(lockstitch("import", "langsmith", str(folder), "--json")) == {
        name: count * 3 for name, count in GOOD.items()
    }
    second_result = lockstitch("import", "langsmith", str(folder), "--json")
    assert figures(second_result) == {name: count * 3 for name, count in GOOD.items()}
    assert set(query_store(store_url, seen)) == {uid(1000), uid(2000), uid(3000)}


@pytest.mark.req("S2-051", "S2-049")
def test_import_reports_invalid_files_and_imports_others(lockstitch: Call, store_url: str, write: Write) -> None:
    runs = agent_trace(1).runs
    write("1-good.json", runs)
    bad = {
        "2-binary.json": os.urandom(3000),
        "3-cut.json.gz": gzip.compress(json.dumps(agent_trace(3).runs).encode())[:-60],
        "4-words.txt": "There is nothing to see here.",
        "5-empty.json": b"",
        "6-number.json": "17",
        "7-other.json": {"hello": "world"},
        "8-cut.json": json.dumps(runs)[:-40],
    }
    for name, content in bad.items():
        write(name, content)
    folder = write("9-good.jsonl", jsonl(agent_trace(9).runs)).parent
    result = lockstitch("import", "langsmith", str(folder), "--json")
    summary = report(result, code=6)
    assert {Path(skipped["file"]).name for skipped in summary["skipped"]} == set(bad)
    assert all(skipped["why"] and "\n" not in skipped["why"] for skipped in summary["skipped"])
    assert {uid(1000), uid(9000)} <= set(query_store(store_url, seen))
    assert query_store(store_url, lambda store: store.verify()).ok

    text_result = lockstitch("import", "langsmith", str(folder))
    assert text_result.code == 6
    assert text_result.out.startswith("Imported ")
    assert all(name in text_result.err for name in bad)


@pytest.mark.req("S2-051")
@pytest.mark.parametrize("source", ["langsmith", "otel"])
def test_import_of_only_invalid_files_fails(lockstitch: Call, write: Write, source: str) -> None:
    write("a.json", "no")
    folder = write("b.body", b"\x00\xff" * 50).parent
    summary = report(lockstitch("import", source, str(folder), "--json"), code=1)
    assert sorted(Path(skipped["file"]).name for skipped in summary["skipped"]) == ["a.json", "b.body"]
    assert [summary[name] for name in TABLES] == [0, 0, 0, 0, 0]


@pytest.mark.req("S2-051")
def test_import_of_opentelemetry_skips_invalid_body(lockstitch: Call, store_url: str, write: Write) -> None:
    write("1.body", otel.recorded("oi_langchain"))
    write("2.body", otel.recorded("pydantic_ai")[:-200])
    first, document = (otel.as_document(otel.recorded(name)) for name in ("oi_openai", "otel_mode"))
    folder = write("3.jsonl", json.dumps(first) + "\n{broken\n" + json.dumps(document) + "\n").parent
    summary = report(lockstitch("import", "otel", str(folder), "--json"), code=6)
    assert {Path(skipped["file"]).name for skipped in summary["skipped"]} == {"2.body", "3.jsonl"}
    assert summary["tool_calls"] >= 3, "lines after a broken line are read"
    assert {"e775d3d6a26df53e6b7dd2f150896faf", "539559247acf164aed28d18ff23d6511"} <= set(query_store(store_url, seen))


@pytest.mark.parametrize("source", ["langsmith", "otel"])
def test_import_of_nothing_reports_zero_traces(lockstitch: Call, tmp_path: Path, source: str) -> None:
    (tmp_path / "empty").mkdir()
    summary = report(lockstitch("import", source, str(tmp_path / "empty"), "--json"))
    assert summary == {**dict.fromkeys(TABLES, 0), "skipped": [], "missing": {}, "files": []}


def test_import_rejects_unknown_path_and_source(lockstitch: Call, write: Write) -> None:
    assert lockstitch("import", "langsmith", "/nonexistent/x.json").code == 3
    assert lockstitch("import", "otel", "/nonexistent/x.json").code == 3
    unknown = lockstitch("import", "zipkin", str(write("x.json", "{}")))
    assert unknown.code == 2
    assert "langsmith, otel" in unknown.err
    assert lockstitch("import", "langsmith").code == 2


def test_import_names_unreadable_file(lockstitch: Call, write: Write) -> None:
    good = write("good.json", agent_trace().runs)
    (good.parent / "loop.json").symlink_to("loop.json")
    result = lockstitch("import", "langsmith", str(good.parent), "--json")
    assert figures(result, code=result.code) == GOOD


@pytest.mark.req("S2-048")
def test_replace_removes_spans_that_trace_no_longer_contains(lockstitch: Call, store_url: str, write: Write) -> None:
    """Without --replace, missing spans stay: a file can be a part of a trace."""
    trace, other_trace = agent_trace(1), agent_trace(2)
    lockstitch("import", "langsmith", str(write("both.json", [*trace.runs, *other_trace.runs])))
    shorter = str(write("shorter.json", [run for run in trace.runs if run["name"] != "price"][:-1]))

    lockstitch("import", "langsmith", shorter)
    assert len(query_store(store_url, lens)["llm_calls"]) == 4
    result = lockstitch("import", "langsmith", shorter, "--replace")
    assert (result.code, "2 spans removed" in result.out) == (0, True)
    rows = query_store(store_url, lens)
    assert [call["step_index"] for call in rows["llm_calls"] if call["run_id"] == trace.id] == [0]
    assert [call["tool_response"] for call in rows["tool_calls"] if call["tool_name"] == "price"].count("42") == 1
    assert sum(call["run_id"] == other_trace.id for call in rows["llm_calls"]) == 2, "other traces stay unchanged"
    assert query_store(store_url, lambda store: store.verify()).ok


@pytest.mark.req("S2-048", "S2-035")
def test_removed_tool_span_leaves_its_call_in_response(lockstitch: Call, store_url: str, write: Write) -> None:
    """The model's response still contains the call, as if the tool span had never been stored."""
    runs = agent_trace().runs
    lockstitch("import", "langsmith", str(write("whole.json", runs)))
    shorter = write("shorter.json", [run for run in runs if run["name"] != "price"])
    lockstitch("import", "langsmith", str(shorter), "--replace")
    calls = query_store(store_url, lens)["tool_calls"]
    assert {call["tool_call_id"]: call["tool_status"] for call in calls} == {"call_a": "success", "call_b": None}


@pytest.mark.req("S2-048", "X2-11")
@pytest.mark.parametrize("listed", ["child_run_ids", "child_runs"])
def test_root_with_child_list_removes_unlisted_children(
    lockstitch: Call, store_url: str, write: Write, listed: str
) -> None:
    trace = agent_trace()
    lockstitch("import", "langsmith", str(write("whole.json", trace.runs)))
    root, *below = trace.runs[:4]
    document: Any = nested([root, *below])
    if listed == "child_run_ids":
        document = [{**root, "child_run_ids": [run["id"] for run in below]}, *below]
    summary = report(lockstitch("import", "langsmith", str(write("root.json", document)), "--json"))
    assert summary["llm_calls"] == 1
    rows = query_store(store_url, lens)
    assert [call["step_index"] for call in rows["llm_calls"]] == [0]
    assert rows["agent_runs"][0]["total_tokens"] == 120
    assert query_store(store_url, lambda store: store.verify()).ok


def test_root_without_child_list_removes_nothing(lockstitch: Call, store_url: str, write: Write) -> None:
    trace = agent_trace()
    lockstitch("import", "langsmith", str(write("whole.json", trace.runs)))
    lockstitch("import", "langsmith", str(write("root.json", {**trace.runs[0], "child_run_ids": [], "child_runs": []})))
    assert len(query_store(store_url, lens)["llm_calls"]) == 2


@pytest.mark.req("S2-054", "S2-010")
def test_secrets_are_stored_only_with_keep_secrets(lockstitch: Call, store_url: str, write: Write) -> None:
    metadata = {"OPENAI_API_KEY": "abc", "url": "postgres://me:hidden@db/x", "langgraph_step": 3}
    path = str(write("runs.json", agent_trace(metadata=metadata).runs))
    lockstitch("import", "langsmith", path)
    (row,) = query_store(store_url, lens)["agent_runs"]
    assert row["langgraph_metadata"] == {"OPENAI_API_KEY": "[redacted]", "url": "[redacted]", "langgraph_step": 3}
    lockstitch("import", "langsmith", path, "--keep-secrets")
    (row,) = query_store(store_url, lens)["agent_runs"]
    assert row["langgraph_metadata"] == metadata
    lockstitch("import", "langsmith", path)
    (row,) = query_store(store_url, lens)["agent_runs"]
    assert row["langgraph_metadata"]["OPENAI_API_KEY"] == "[redacted]"


@pytest.mark.req("S2-001")
def test_import_writes_to_project_of_caller(lockstitch: Call, store_url: str, write: Write) -> None:
    own_file = write("mine.json", agent_trace(thread="t").runs)
    named = [{**run, "session_name": "other", "session_id": "other", "project": "other"} for run in agent_trace().runs]
    lockstitch("import", "langsmith", str(own_file))
    lockstitch("--project", "second", "import", "langsmith", str(write("named.json", named)))
    assert set(query_store(store_url, seen)) == set(query_store(store_url, seen, "second")) == {uid(1000)}
    assert query_store(store_url, seen, "other") == {}


@pytest.mark.req("S2-049")
def test_import_counts_missing_values(lockstitch: Call, store_url: str, write: Write) -> None:
    trace = Trace()
    trace.root()
    trace.model(1, "hi", kwargs={"id": None, "usage_metadata": None, "response_metadata": {}})
    bare = [{"id": uid(5), "trace_id": uid(5)}, {"id": uid(6), "trace_id": uid(5), "run_type": "llm"}]
    path = str(write("runs.json", [*trace.runs, *bare]))
    summary = report(lockstitch("import", "langsmith", path, "--json"))
    assert summary["skipped"] == []
    assert {"usage_metadata", "message.id", "finish_reason", "model_name"} <= set(summary["missing"])
    rows = query_store(store_url, lens)
    empty = next(row for row in rows["agent_runs"] if row["run_id"] == uid(5))
    assert {name for name, value in empty.items() if value in (None, [], {})} == {
        *("status", "error", "user_id", "session_id", "thread_id", "end_time", "model_name", "tags"),
        *("input_messages", "output_messages", "langgraph_metadata", "total_cost"),
    }
    assert all(call["llm_call_id"] and call["error_flag"] == 0 for call in rows["llm_calls"])
    assert [call["usage_metadata"] for call in rows["llm_calls"]] == [None] * len(rows["llm_calls"])
    assert {call["run_id"]: call["llm_output_text"] for call in rows["llm_calls"]} == {uid(5): None, uid(1000): "hi"}
    result = lockstitch("import", "langsmith", str(write("more.json", Trace(7).root())))
    assert result.out.startswith("Imported 1 trace, 1 run, 0 model calls, 0 tool calls, 0 tokens.")


def test_import_progress_is_shown_only_on_terminal_stderr(
    call: Call, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal it appears on stderr and is removed at the end. Otherwise nothing is printed."""
    monkeypatch.setenv("LOCKSTITCH_STORE", f"sqlite:///{tmp_path / 'store.db'}")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    result = call("import", "langsmith", str(write("runs.json", agent_trace().runs)), "--json")
    assert {**report(result), "files": []} == {**REPORT, "files": []}
    assert "\x1b" not in result.out


def test_import_of_empty_stdin_is_skipped(lockstitch: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b""), isatty=lambda: False))
    summary = report(lockstitch("import", "langsmith", "-", "--json"), code=1)
    assert [skipped["file"] for skipped in summary["skipped"]] == ["standard input"]


def test_import_command_reads_recorded_folders(lockstitch: Call) -> None:
    """All recorded folders of LangSmith clients. The numbers are those of tests/integrations/test_fixtures.py."""
    summary = report(lockstitch("import", "langsmith", str(langsmith.FIXTURES), "--json"))
    assert (summary["traces"], summary["runs"], summary["llm_calls"], summary["tool_calls"]) == (15, 117, 23, 16)
    assert summary["skipped"] == []


def parent_only(number: int) -> list[Json]:
    """Posts that name a parent and no trace, and a patch of one of them."""
    root, child = uid(number * 1000), uid(number * 1000 + 1)
    times = {"start_time": "2026-01-01T00:00:00Z"}
    return [
        {"id": child, "parent_run_id": root, "name": "child", "run_type": "tool", "inputs": {}, **times},
        {"id": child, "end_time": "2026-01-01T00:00:01Z", "outputs": {"output": 1}},
        {"id": root, "name": "root", "run_type": "chain", "inputs": {}, **times},
    ]


def test_imports_runs_that_name_only_their_parent(lockstitch: Call, store_url: str, write: Write) -> None:
    """Regression: such a file ended with exit code 4, and nothing was written."""
    path = write("runs.json", parent_only(1))
    summary = report(lockstitch("import", "langsmith", str(path), "--json"))
    assert (summary["traces"], summary["runs"]) == (1, 2)
    second_summary = report(lockstitch("import", "langsmith", str(path), "--json"))
    assert second_summary == summary
    assert set(query_store(store_url, seen)) == {uid(1000)}


def test_figures_are_the_same_when_files_join_provisional_traces(
    lockstitch: Call, store_url: str, write: Write
) -> None:
    child, patch, root = parent_only(1)
    write("1.json", [{**child, "id": uid(7), "parent_run_id": child["id"]}])
    write("2.json", [child])
    folder = write("3.json", [root, patch]).parent
    first = report(lockstitch("import", "langsmith", str(folder), "--json"))
    assert (first["traces"], first["runs"], [file["runs"] for file in first["files"]]) == (1, 3, [1, 1, 2])
    assert report(lockstitch("import", "langsmith", str(folder), "--json")) == first
    assert set(query_store(store_url, seen)) == {uid(1000)}


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_file_that_cannot_be_written_does_not_affect_the_others(lockstitch: Call, store_url: str, write: Write) -> None:
    """Regression: one such file in a folder lost the five good ones."""
    runs = agent_trace(3).runs
    query_store(store_url, lambda store: occupy(store, runs[2]["id"]))
    for number in (1, 2, 4, 5, 6):
        write(f"{number}.json", agent_trace(number).runs)
    folder = write("3.json", runs).parent
    summary = report(lockstitch("import", "langsmith", str(folder), "--json"), code=6)
    assert [Path(file["file"]).name for file in summary["files"] if file["error"]] == ["3.json"]
    assert [file["runs"] for file in summary["files"]] == [5, 5, 4, 5, 5, 5]
    (skipped,) = summary["skipped"]
    assert runs[2]["id"] in skipped["why"]
    assert set(query_store(store_url, seen)) == {uid(number * 1000) for number in range(1, 7)}
    text_result = lockstitch("import", "langsmith", str(folder))
    assert (text_result.code, "3.json: 1 trace, 4 runs, 1 skipped" in text_result.err) == (6, True)
    only = write("alone/alone.json", [runs[2]])
    assert lockstitch("import", "langsmith", str(only)).code == 4


async def occupy(store: Store, span_id: str) -> None:
    """Give a native thread a stitch with the id of a span, so that the span cannot be written."""
    thread = await store.create()
    await store.append(thread, [Entry(type="system", data={})])
    (stitch,) = await store.stitches(thread)
    await store._backend.put(
        [Stitch.unchecked({**stitch.__dict__, "id": MirrorIds(store.project, "langsmith").span(span_id)})]
    )


def test_store_that_fails_ends_the_import(lockstitch: Call, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreUnreachable("The store cannot be reached.")

    monkeypatch.setattr(MirrorStore, "write", away)
    monkeypatch.setattr(MirrorStore, "write_encoded", away)
    folder = write("1.json", agent_trace(1).runs).parent
    write("2.json", agent_trace(2).runs)
    assert lockstitch("import", "langsmith", str(folder)).code == 5


def test_threads_shows_name_agent_and_age_of_traces(lockstitch: Call) -> None:
    lockstitch("import", "otel", str(otel.FIXTURES / "oi_langchain.body"))
    (row,) = lockstitch("threads", "--json").json
    assert (row["agent"], row["title"]) == ("weather_agent", "Weather in Paris?")
    # The start of the trace in the recording.
    assert row["created_at"] == "2026-11-15T02:01:05.180457Z"
    header, line = lockstitch("threads").out.splitlines()
    assert header.split()[-2:] == ["AGENT", "NAME"]
    assert line.split()[-4:] == ["weather_agent", "Weather", "in", "Paris?"]
    assert lockstitch("threads", "--agent", "weather_agent", "--json").json == [row]
