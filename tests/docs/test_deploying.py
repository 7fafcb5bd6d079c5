"""The files in docs/howto/deploying.md: units, image and compose file use existing commands, with time to drain."""

import configparser
import json
import re
import shlex

import pytest
import typer
import yaml

from lockstitch.cli.app import command
from tests.docs.pages import DOCS, blocks

FILES = {block.title: block.code for block in blocks(DOCS / "howto" / "deploying.md") if block.title is not None}


def option(arguments: list[str], name: str) -> float:
    return float(arguments[arguments.index(name) + 1])


def parsed(arguments: list[str]) -> str:
    """Return the name of the command. Raises an error if the command or an option does not exist."""
    with pytest.raises(typer.Exit) as done, command.make_context("lockstitch", [*arguments, "--help"]) as context:
        command.invoke(context)
    assert done.value.exit_code == 0
    return arguments[0]


def unit(title: str) -> tuple[list[str], float]:
    """Return the arguments of `lockstitch` in a systemd unit, and the seconds that it has to stop."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(FILES[title])
    service = parser["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert program.endswith("/lockstitch")
    return arguments, float(service["TimeoutStopSec"])


def test_units_run_existing_commands_and_wait_for_drain() -> None:
    for title, name in (("lockstitch-server.service", "serve"), ("lockstitch-worker@.service", "worker")):
        arguments, seconds = unit(title)
        assert parsed(arguments) == name
        assert option(arguments, "--grace") < seconds


def test_image_runs_existing_command() -> None:
    instructions = dict(re.findall(r"^(ENTRYPOINT|CMD) (.*)$", FILES["Dockerfile"], re.MULTILINE))
    assert json.loads(instructions["ENTRYPOINT"]) == ["lockstitch"]
    assert parsed(json.loads(instructions["CMD"])) == "worker"
    assert re.search(r"^COPY shop\.py", FILES["Dockerfile"], re.MULTILINE)
    assert "shop.py" in FILES


def test_compose_file_runs_existing_commands_and_waits_for_drain() -> None:
    services = yaml.safe_load(FILES["compose.yaml"])["services"]
    commands = {name: service["command"] for name, service in services.items() if "command" in service}
    assert {name: parsed(arguments) for name, arguments in commands.items()} == {
        "migrate": "migrate",
        "server": "serve",
        "worker": "worker",
    }
    for name in ("server", "worker"):
        seconds = float(services[name]["stop_grace_period"].removesuffix("s"))
        assert option(commands[name], "--grace") < seconds
        assert services[name]["environment"]["LOCKSTITCH_STORE"].startswith("postgresql://")
        assert set(services[name]["depends_on"]) <= set(services)
