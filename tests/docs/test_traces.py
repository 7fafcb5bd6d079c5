"""The commands, code, links and lists in the pages about traces and lenses."""

import io
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstitch.lenses import catalog
from tests.cli.calling import Call

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FIXTURES = ROOT / "tests" / "integrations"
TRACE = "01a1dce5-6830-70ab-8b49-86234471db8c"
OTHER = "01a1dce5-7860-7133-a172-f1892a589aa2"
PAGES = ["howto/traces.md", "howto/lenses.md", "explanation/mirrors.md", "reference/log.md"]
PAGES += ["decisions/0012-lenses-and-mirrors.md"]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def commands(page: str) -> list[str]:
    lines = [line.partition("  #")[0].strip() for block in blocks(page, "sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("lockstitch ")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES / "langsmith" / "fixtures", tmp_path / "exports")
    (tmp_path / "langfuse").mkdir()
    shutil.copy(FIXTURES / "langfuse" / "fixtures" / "trace.json", tmp_path / "langfuse")
    shutil.copy(FIXTURES / "otel" / "fixtures" / "otel_mode.body", tmp_path / "traces.jsonl")
    return tmp_path


def test_runs_commands_of_both_pages(folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(line: str) -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SELECT 1")))
        result = call(*shlex.split(line.replace("RUN OTHER-RUN", f"{TRACE} {OTHER}"))[1:])
        assert result.code == 0, (line, result.err)
        return result.out

    monkeypatch.chdir(folder)
    monkeypatch.setenv("LOCKSTITCH_STORE", "sqlite:///agents.db")
    outputs = {line: command(line) for page in PAGES[:2] for line in commands(page)}
    assert len(outputs) >= 15
    assert outputs["lockstitch import langsmith exports/"].startswith("Imported 15 traces, 117 runs, 23 model calls")
    assert "get_weather" in outputs[f"lockstitch show {TRACE}"]
    assert (folder / "run.json").is_file()
    code: dict[str, Any] = {}
    (block,) = blocks("howto/lenses.md", "python")
    exec(block, code)
    spent = dict(code["spent"](f"sqlite:///{folder / 'agents.db'}"))
    assert spent["claude-sonnet-4-5-20250929"] > 0


@pytest.mark.parametrize("page", PAGES)
def test_finds_link_targets(page: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", (DOCS / page).read_text()):
        assert (DOCS / page).parent.joinpath(link).exists(), link


def test_lists_every_lens() -> None:
    assert tuple(re.findall(r"^\| \[(\w+)\]", (DOCS / "howto/lenses.md").read_text(), re.MULTILINE)) == catalog.NAMES
