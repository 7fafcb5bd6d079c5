"""Global options at any place, and help of every command."""

import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from lockstitch.cli import commands
from lockstitch.cli.app import COMMANDS
from lockstitch.cli.stdio import move_global_options, wants_json
from tests.cli.calling import Call
from tests.cli.story import tell


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("threads --json", "--json threads"),
        ("threads --store S --limit 3", "--store S threads --limit 3"),
        ("threads --store=S --project P --json", "--store=S --project P --json threads"),
        ("--json threads", "--json threads"),
        ("title T -- --json", "title T -- --json"),
        ("threads --store", "--store threads"),
        ("stats tokens --json --days 7", "--json stats tokens --days 7"),
        ("", ""),
    ],
)
def test_move_global_options_moves_them_first(typed: str, meant: str) -> None:
    assert move_global_options(typed.split()) == meant.split()


def test_wants_json_only_before_double_dash() -> None:
    assert wants_json(["threads", "--json"])
    assert not wants_json(["title", "T", "--", "--json"])


def test_options_work_before_and_after_command(call: Call, tmp_path: Path) -> None:
    url = tell(f"sqlite:///{tmp_path / 'store.db'}").url
    after = call("threads", "--store", url, "--project", "elsewhere", "--json").json
    before = call("--json", "--store", url, "--project=elsewhere", "threads").json
    assert after == before
    assert [row["project"] for row in after] == ["elsewhere"]
    assert call("title", "customer-42", "--store", url, "--", "--json").code == 0
    assert call("show", "customer-42", "--store", url, "--json").json["title"] == "--json"


def test_environment_variable_sets_store(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTITCH_STORE", tell(f"sqlite:///{tmp_path / 'store.db'}").url)
    assert len(call("threads", "--json").json) == 4


def test_default_store_is_file_in_current_folder(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("threads").code == 5
    assert call("migrate").code == 0
    assert (tmp_path / "lockstitch.db").exists()
    assert call("threads", "--json").json == []


def leaves() -> list[list[str]]:
    """Return every command as it is typed."""
    typed: list[list[str]] = []
    for name, module in COMMANDS.items():
        app = import_module(f"lockstitch.cli.commands.{module}").app
        subcommands: Any = getattr(typer.main.get_group(app).commands[name], "commands", {})
        typed += [[name, subcommand] for subcommand in subcommands] or [[name]]
    return typed


def test_every_command_is_in_a_help_section(call: Call) -> None:
    modules = pkgutil.iter_modules(commands.__path__, "lockstitch.cli.commands.")
    groups = [typer.main.get_group(import_module(module.name).app) for module in modules]
    assert sorted(name for group in groups for name in group.commands) == sorted(COMMANDS)
    result = call("--help")
    assert all(len(line) <= 80 for line in result.lines)
    assert "..." not in result.out.partition("Run agents")[2], "every line of help fits"


@pytest.mark.parametrize("name", leaves(), ids=" ".join)
def test_every_command_has_help_with_examples(call: Call, name: list[str]) -> None:
    result = call(*name, "--help")
    assert result.code == 0
    assert f"    lockstitch {' '.join(name)}" in result.out or "| lockstitch" in result.out
    assert "Example" in result.out
    assert "--json" in result.out
    assert call(*name, "-h").out == result.out
