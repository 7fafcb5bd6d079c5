"""The README: its code runs, its commands, figures and links exist."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.__main__ import write_comparison
from benchmarks.comparison import WORKS
from benchmarks.places import SQL
from benchmarks.report import Row
from benchmarks.scale import FULL
from benchmarks.workers import AT_ONCE, row_name
from tests.cli.calling import Call
from tests.docs.pages import ROOT, run_page
from tools import generate_comparison

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_does_what_it_says(tmp_path: Path) -> None:
    run_page(ROOT / "README.md", tmp_path)


def test_finds_commands_and_links(call: Call) -> None:
    help_text = call("--help").out
    commands = set(re.findall(r"^lockstitch (\w+)", README, re.MULTILINE))
    assert commands
    assert all(re.search(rf"^\W*{command}\b", help_text, re.MULTILINE) for command in commands)
    targets = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE)) <= targets
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert link.startswith("https://") or (ROOT / link).exists(), link


def test_figures_are_the_measured_ones() -> None:
    assert generate_comparison.readme(json.loads(generate_comparison.RESULTS.read_text())) == README


def test_comparison_replaces_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme, results = tmp_path / "README.md", tmp_path / "results.json"
    readme.write_text(README, encoding="utf-8")
    monkeypatch.setattr(generate_comparison, "README", readme)
    monkeypatch.setattr(generate_comparison, "RESULTS", results)
    rows = list(_measured_rows())
    write_comparison(rows[1:], load=0.5)
    assert "README.md is unchanged" in capsys.readouterr().out
    assert readme.read_text(encoding="utf-8") == README
    assert not results.exists()
    write_comparison(rows, load=0.5)
    text = readme.read_text(encoding="utf-8")
    assert text == generate_comparison.readme(json.loads(results.read_text()))
    before, after = README.split(generate_comparison.BEGIN)[0], README.split(generate_comparison.END)[1]
    assert text.startswith(before)
    assert text.endswith(after)
    version = generate_comparison.versions()["LangGraph"]
    assert f"| runs of 10 steps | LangGraph {version}, sync | 2.00 (1.00 to 3.00) | 2.00 (1.00 to 3.00) |" in text
    assert "| processor time of a step, in runs of 10 and 100 steps | 3.00 ms, 3.00 ms | 3.00 ms, 3.00 ms |" in text


def _measured_rows() -> Iterator[Row]:
    """Return the rows that a complete run has. The median of three rounds is twice the baseline."""
    pairs = [(3.0, 3.0), (1.0, 2.0), (1.0, 3.0)]
    workers = row_name(2)
    for backend in SQL:
        for work in WORKS:
            for peer in work.peers:
                if backend in peer.backends:
                    yield Row.compared(work.row_name(peer), backend, pairs, "threads/s", None, work.at_once)
        name = "append" if backend == "sqlite" else "append, compared with one statement"
        yield from (Row.compared(name, backend, pairs, "appends/s", None, number) for number in FULL.concurrencies)
        yield Row.compared(f"{workers}, compared with the baseline", backend, pairs, "threads/s", None, 2 * AT_ONCE)
        yield Row(f"{workers}: commits a thread", backend, 3.0, "commits", None, None, 2 * AT_ONCE)
        yield Row(f"bytes of {FULL.turns} turns through agent.run", backend, 3.0, "bytes", 1.5)
        yield from (Row(f"processor time of a step, {steps} steps", backend, 3.0, "ms") for steps in (10, 100))
        yield Row("next commit after kill -9 of a worker, worst", backend, 3.0, "s")
