"""Bulk exports with the documented columns: objects as JSON text, times as timestamps, ids as text."""

import builtins
import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lockstitch.errors import Unreadable
from lockstitch.integrations.langsmith import read
from tests.integrations.langsmith.recorded import all_facts_of, runs_of, spans

RUNS = runs_of("batch_invoke")
JSON_COLUMNS = ("inputs", "outputs", "extra", "events")


def _row(run: dict[str, Any], lists: bool) -> dict[str, Any]:
    line = [part.split("Z", 1)[1] for part in run["dotted_order"].split(".")]
    return {
        "id": run["id"],
        "tenant_id": "t",
        "session_id": "s",
        "trace_id": run["trace_id"],
        "parent_run_id": run.get("parent_run_id"),
        "parent_run_ids": line[:-1] if lists else json.dumps(line[:-1]),
        "name": run["name"],
        "run_type": run["run_type"],
        "start_time": datetime.fromisoformat(run["start_time"]).astimezone(UTC),
        "end_time": datetime.fromisoformat(run["end_time"]).astimezone(UTC),
        "status": "error" if run.get("error") else "success",
        "is_root": len(line) == 1,
        "dotted_order": run["dotted_order"],
        "error": run.get("error"),
        "tags": run["tags"] if lists else json.dumps(run["tags"]),
        "total_tokens": 274,
        "total_cost": "0.0125",
        **{key: json.dumps(run.get(key)) for key in JSON_COLUMNS},
    }


def _file(path: Path, lists: bool = True) -> Path:
    pq.write_table(pa.Table.from_pylist([_row(run, lists) for run in RUNS]), path, compression="zstd")
    return path


@pytest.mark.parametrize("lists", [True, False], ids=["lists", "text"])
def test_bulk_export_gives_same_items_as_runs(tmp_path: Path, lists: bool):
    file = _file(tmp_path / "runs.parquet", lists)
    by_id = spans(read(file))
    same = spans(read(json.dumps(RUNS).encode()))
    assert list(by_id) == list(same)
    for key, span in by_id.items():
        alike = ("trace_id", "parent_id", "start", "end", "inputs", "outputs", "error", "tags", "metadata", "thread_id")
        assert {field: span.get(field) for field in alike} == {field: same[key].get(field) for field in alike}
    root = next(iter(by_id.values()))
    assert (root["session_id"], root["total_tokens"], root["total_cost"]) == ("s", 274, 0.0125)
    assert root["extra"]["tenant_id"] == "t"
    facts = all_facts_of(read(file))
    assert [span_facts.tokens.input for span_facts in facts if span_facts.tokens] == [120, 120]


def test_reads_bulk_export_from_stream(tmp_path: Path):
    file = _file(tmp_path / "x")
    assert spans(read(io.BytesIO(file.read_bytes()), "-")) == spans(read(file))


def test_reports_incomplete_export(tmp_path: Path):
    file = _file(tmp_path / "x")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(Unreadable, match="not a valid Parquet file"):
        list(read(file))


def test_names_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = _file(tmp_path / "x")
    for name in [module for module in sys.modules if module.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def refusing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "pyarrow":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refusing)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unreadable, match=r"pip install 'lockstitch\[parquet\]'"):
        list(read(file))
