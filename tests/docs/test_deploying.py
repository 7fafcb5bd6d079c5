"""The files of deploy/: the how-to shows them, and their commands, variables and drain times are those of the CLI."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import typer
import yaml

from lockstitch.cli.app import command
from tests.cli.calling import run
from tests.cli.servers import server
from tests.docs.pages import DOCS, ROOT, blocks

DEPLOY = ROOT / "deploy"
SHOWN = {
    path.name: path.read_text()
    for path in (
        DEPLOY / "Dockerfile",
        DEPLOY / "compose.yaml",
        DEPLOY / ".env.example",
        DEPLOY / "lockstitch.env.example",
        DEPLOY / "lockstitch.service",
        DEPLOY / "lockstitch-worker@.service",
        DEPLOY / "app" / "shop.py",
    )
}
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(SHOWN["compose.yaml"])["services"]
LIBRARIES = {"PGPASSWORD", "FORWARDED_ALLOW_IPS"}
"""Variables that libpq and uvicorn read."""
UNITS = {"lockstitch.service": "serve", "lockstitch-worker@.service": "worker"}


def instructions(name: str) -> list[str]:
    """Return the arguments of all instructions of the Dockerfile with this name."""
    joined = SHOWN["Dockerfile"].replace("\\\n", "")
    return re.findall(rf"^{name}\s+(.*)$", joined, re.MULTILINE)


def documented(variables: set[str]) -> bool:
    reference = (DOCS / "reference" / "configuration.md").read_text()
    return all(f"`{name}`" in reference for name in variables - LIBRARIES)


def option(arguments: list[str], name: str) -> float:
    return float(arguments[arguments.index(name) + 1])


def parsed(arguments: list[str]) -> str:
    """Return the name of the command. Raises an error if the command or an option does not exist."""
    with pytest.raises(typer.Exit) as done, command.make_context("lockstitch", [*arguments, "--help"]) as context:
        command.invoke(context)
    assert done.value.exit_code == 0
    return arguments[0]


def unit(title: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string(SHOWN[title])
    return parser["Service"]


def test_page_shows_files() -> None:
    page = {block.title: block.code for block in blocks(DOCS / "howto" / "deploying.md")}
    assert {name: page.get(name) for name in SHOWN} == SHOWN


def test_units_run_existing_commands_and_wait_for_drain() -> None:
    for title, name in UNITS.items():
        service = unit(title)
        program, *arguments = shlex.split(service["ExecStart"])
        assert program.endswith("/lockstitch")
        assert parsed(arguments) == name
        assert option(arguments, "--grace") < float(service["TimeoutStopSec"])
        # A process reads the boot id and the states of other processes in /proc.
        assert "ProcSubset" not in service
    settings = re.findall(r"^(\w+)=", SHOWN["lockstitch.env.example"], re.MULTILINE)
    assert documented(set(settings))
    state = unit("lockstitch.service")["StateDirectory"]
    assert f"LOCKSTITCH_STORE=sqlite:////var/lib/{state}/" in SHOWN["lockstitch.env.example"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_units(tmp_path: Path) -> None:
    system = tmp_path / "etc" / "systemd" / "system"
    system.mkdir(parents=True)
    for name in ("sysinit", "basic", "network-online", "multi-user", "shutdown"):
        (system / f"{name}.target").write_text("[Unit]\n")
    for title in UNITS:
        (system / title).write_text(SHOWN[title])
    program = tmp_path / shlex.split(unit("lockstitch.service")["ExecStart"])[0].lstrip("/")
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    names = [title.replace("@", "@1") for title in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", f"--root={tmp_path}", *names], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_image_needs_no_secret_and_no_root() -> None:
    build, final = instructions("FROM")
    assert build == f"{final} AS build"
    assert int(instructions("USER")[-1]) > 0
    assert [name.partition("=")[0] for name in instructions("ARG")] == ["EXTRAS"]
    assert "--mount" not in SHOWN["Dockerfile"]
    copied = {name for line in instructions("COPY") if not line.startswith("--from") for name in line.split()[:-1]}
    sent = re.findall(r"^!(.+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    assert copied == set(sent)
    assert all((ROOT / name).exists() for name in copied)


def test_compose_file_runs_existing_commands_and_waits_for_drain() -> None:
    commands = {name: service["command"] for name, service in SERVICES.items() if name != "db"}
    assert {name: parsed(arguments) for name, arguments in commands.items()} == {
        "migrate": "migrate",
        "server": "serve",
        "worker": "worker",
    }
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["lockstitch"]
    assert json.loads(instructions("CMD")[-1]) == commands["server"]
    for name, arguments in commands.items():
        service = SERVICES[name]
        assert documented(set(service["environment"]))
        assert set(service["depends_on"]) <= set(SERVICES)
        # The health check of the image is that of a server.
        assert service.get("healthcheck") == (None if name == "server" else {"disable": True})
        if name != "migrate":
            assert option(arguments, "--grace") < float(service["stop_grace_period"].removesuffix("s"))
    needed = set(re.findall(r"\$\{(\w+)", SHOWN["compose.yaml"]))
    assert needed <= set(re.findall(r"^(\w+)=", SHOWN[".env.example"], re.MULTILINE))


def test_commands_of_compose_file_work_together(tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "shop.py").write_text(SHOWN["shop.py"].replace("anthropic:claude-sonnet-5", "scripted:script.json"))
    (tmp_path / "script.json").write_text('{"replies": [["Tea."]]}')
    variables = {"LOCKSTITCH_STORE": postgres_url, "LOCKSTITCH_APP": "shop:app", "FORWARDED_ALLOW_IPS": "*"}
    token = run("token", "create", "admin", "--scope", "admin", cwd=tmp_path, env=variables).lines[0]
    assert run(*SERVICES["migrate"]["command"], cwd=tmp_path, env=variables).code == 0

    # On loopback instead of all addresses, so tokens are required explicitly.
    _, *options = SERVICES["server"]["command"]
    with server(*options, "--host", "127.0.0.1", "--tokens", cwd=tmp_path, **variables) as serving:
        program, *arguments = json.loads(instructions("HEALTHCHECK")[0].partition("CMD ")[2])
        assert program == "python"
        check = [sys.executable, *(text.replace("http://127.0.0.1:8765", serving.url) for text in arguments)]
        assert subprocess.run(check, check=False).returncode == 0
        with httpx2.Client(base_url=serving.url, headers={"Authorization": f"Bearer {token}"}) as api:
            started = api.post("/api/agents/clerk/runs", json={"input": "What do you sell?", "thread": "ada"})
            assert started.status_code == 202, started.text
            worker = run(*SERVICES["worker"]["command"], "--until-idle", cwd=tmp_path, env=variables)
            assert worker.code == 0, worker.err
            result = api.get(f"/api/runs/{started.json()['run_id']}/result").json()
            assert (result["status"], result["output_text"]) == ("completed", "Tea.")
        assert serving.end() == 0
        assert subprocess.run(check, stderr=subprocess.DEVNULL, check=False).returncode != 0
