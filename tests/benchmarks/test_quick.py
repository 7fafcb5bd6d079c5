"""`python -m benchmarks --quick` runs and writes valid rows. The speed is not checked."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

KEYS = {"name", "backend", "concurrency", "value", "unit", "floor", "ratio", "aim", "bound", "met"}


BOTH = "append,workers,lenses"
"""Groups that also run on PostgreSQL. The other groups use the same code there."""


def test_quick_run_writes_complete_rows(tmp_path: Path) -> None:
    """One test: the run takes half a minute, and several processes of tests would each repeat it."""
    rows = bench(tmp_path, "--backends", "sqlite") + bench(tmp_path, "--backends", "postgres", "--only", BOTH)
    check_baselines(rows)
    check_appends(rows)
    check_names_and_requirements(rows)
    check_workers(rows)
    check_imports_and_lenses(rows)


def bench(folder: Path, *options: str) -> list[dict[str, Any]]:
    output = folder / "bench.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--output", str(output), *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(output.read_text())


def check_baselines(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert row.keys() - {"req"} == KEYS, row
        assert row["floor"] is not None or row["bound"] is not None, row
        assert (row["met"] is None) == (row["aim"] is None) == (row["bound"] is None), row
        if row["floor"]:
            assert row["ratio"] == pytest.approx(row["value"] / row["floor"], rel=1e-3), row


def check_appends(rows: list[dict[str, Any]]) -> None:
    measured = {(row["backend"], row["concurrency"]) for row in rows if row["name"].startswith("append")}
    assert measured >= {(backend, number) for backend in ("sqlite", "postgres") for number in (1, 10, 50)}


def check_names_and_requirements(rows: list[dict[str, Any]]) -> None:
    names = [(row["name"], row["backend"], row["concurrency"]) for row in rows]
    assert len(names) == len(set(names))
    assert {row["req"] for row in rows if "req" in row} == {
        *("S0-154", "S1-090", "S1-091", "S1-094", "S1-097", "S2-060", "S3-068"),
    }


def check_workers(rows: list[dict[str, Any]]) -> None:
    assert {row["backend"] for row in rows if row["name"].startswith("5-step threads")} >= {"sqlite", "postgres"}
    for kind in ("parent continues", "next commit after kill -9 of a worker", "idle: "):
        assert any(row["name"].startswith(kind) for row in rows), kind


def check_imports_and_lenses(rows: list[dict[str, Any]]) -> None:
    assert any(row["name"].startswith("import of 20 traces") for row in rows)
    kinds = ("three_table: Pattern 5", "agno: Count runs", "agno_sessions.runs of")
    for kind in kinds:
        measured = {row["backend"] for row in rows if row["name"].startswith(kind)}
        assert measured >= {"sqlite", "postgres"}, kind
