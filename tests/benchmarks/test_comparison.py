"""The comparison with peers: environments, turns and rows. Lockstitch is its own peer, so no network is needed."""

import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.comparison import DBOS, PEERS, WORKS, Peer, compare
from benchmarks.peers.environment import ROOT, VERSIONS, Environment
from benchmarks.places import Places
from benchmarks.scale import QUICK

ITSELF = Peer("Lockstitch", "lockstitch", None)

WORK = {work.name: work for work in WORKS}


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let installers read packages only from the returned folder."""
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    for name, value in {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path), "UV_NO_CONFIG": "1"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["runs of 10 steps", "5-step threads, 2 workers"])
async def test_compares_systems_in_turns(name: str, tmp_path: Path) -> None:
    work = replace(WORK[name], peers=(ITSELF, replace(DBOS, backends=("postgres",))), aims=((ITSELF, 0.001),))
    scale = replace(QUICK, rounds=2, goals=4)
    places = Places(tmp_path, durable=False)
    rows = {row.name: row for row in await compare(places, "sqlite", scale, work)}
    assert f"{name}, compared with DBOS" not in rows
    row = rows[f"{name}, compared with Lockstitch"]
    assert row.value > 0
    assert row.met is True
    assert row.spread is not None
    assert row.ratio is not None
    assert row.spread[0] <= row.ratio <= row.spread[1]
    assert row.as_json()["spread"] == pytest.approx(row.spread, rel=1e-3)


@pytest.mark.anyio
async def test_leaves_out_peers_that_cannot_be_installed(offline: Path) -> None:
    environment = Environment("missing", ("missing-peer==1.0",), folder=offline / "peers")
    missing = Peer("missing", "missing", environment)
    work = replace(WORKS[0], peers=(missing,))
    assert await compare(Places(offline, durable=False), "sqlite", QUICK, work) == []
    assert not environment.is_installed


def test_installs_peer_into_its_own_environment(offline: Path) -> None:
    for version in ("1.0", "2.0"):
        _make_wheel(offline, version)
    for version in ("1.0", "2.0"):
        environment = Environment("peer", (f"measured-peer=={version}",), folder=offline / "peers")
        assert not environment.is_installed
        assert environment.install()
        assert environment.is_installed
        assert environment.version == version
        program = "import benchmarks.content, measured_peer as p, sys; print(p.VERSION, 'lockstitch' in sys.modules)"
        command = [environment.python, "-c", f"{program}; import lockstitch"]
        done = subprocess.run(
            command, env=environment.variables, cwd=offline, capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == [version, "False"]
        assert "No module named 'lockstitch'" in done.stderr


def test_every_peer_has_pinned_packages_and_a_module() -> None:
    assert all("==" in package for packages in VERSIONS.values() for package in packages)
    for peer in PEERS:
        assert peer.environment is not None
        assert (ROOT / f"benchmarks/peers/{peer.module}.py").exists()
        assert any(peer in work.peers for work in WORKS)


def _make_wheel(folder: Path, version: str) -> None:
    """Write a package with one module."""
    information = f"measured_peer-{version}.dist-info"
    with zipfile.ZipFile(folder / f"measured_peer-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("measured_peer.py", f"VERSION = {version!r}\n")
        wheel.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: measured-peer\nVersion: {version}\n")
        wheel.writestr(
            f"{information}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{information}/RECORD", "")
