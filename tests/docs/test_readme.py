"""The README: its code runs, its commands, figures and links exist."""

import re
from pathlib import Path

from benchmarks.__main__ import GROUPS
from tests.cli.calling import Call
from tests.docs.pages import ROOT, run_page

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


SOURCES = (
    ("0008-engine", "ratio of steps to LangGraph 1.2.20", slice(0, 2), "comparison"),
    ("0010-worker", "5-step threads/s / LangGraph, DBOS", slice(0, 1), "comparison"),
    ("0010-worker", "5-step threads/s / LangGraph, DBOS", slice(1, 2), "comparison"),
    ("0010-worker", "next commit after kill -9 of a worker", slice(0, 1), "surviving"),
)
"""Of each row of figures: the decision and its row with the measured values, the quoted values, the benchmark."""


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_figures_are_the_measured_ones_and_name_their_benchmark() -> None:
    figures = re.search(r"^\| figure .*?\n\n", README, re.MULTILINE | re.DOTALL)
    assert figures is not None
    rows = figures[0].strip().splitlines()[2:]
    for row, (decision, name, quoted, benchmark) in zip(rows, SOURCES, strict=True):
        text = (ROOT / f"docs/decisions/{decision}-measurements.md").read_text(encoding="utf-8")
        measured = next(_cells(line) for line in text.splitlines() if line.startswith(f"| {name}"))
        assert _cells(row)[1:] == [
            ", ".join(measured[1].split(", ")[quoted]),
            ", ".join(measured[2].split(", ")[quoted]),
            f"`{benchmark}`",
        ]
        assert benchmark in GROUPS
