"""`python -m benchmarks.receivers [TRACES]`: send the same spans to Lockstitch, MLflow and Phoenix, each on SQLite.

It takes minutes. The peers are installed from PyPI the first time, each into a separate environment in build/peers. The
measured time ends when the spans are durable: rows of the peer's table, counted by another process.
"""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.foreign.otel import SPANS
from benchmarks.receiving import BODY, PATIENCE, Bodies, Received, free_port, receive, received, running, write_bodies

PEERS = Path("build/peers")
CONCURRENCY = 1
"""One request after the other: with concurrent requests MLflow on SQLite answered 503 (database locked)."""


class Peer(NamedTuple):
    package: str
    command: Callable[[Path, Path, int], list[str]]
    """The command that starts it, from its programs, its database and its port."""
    environment: Callable[[Path, int], dict[str, str]]
    health: str
    headers: tuple[str, ...] = ()


def _mlflow(programs: Path, database: Path, port: int) -> list[str]:
    store = f"sqlite:///{database}"
    place = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    return [str(programs / "mlflow"), "server", "--backend-store-uri", store, *place]


def _phoenix(programs: Path, database: Path, port: int) -> list[str]:
    return [str(programs / "phoenix"), "serve"]


def _phoenix_environment(database: Path, port: int) -> dict[str, str]:
    return {
        "PHOENIX_WORKING_DIR": str(database.parent),
        "PHOENIX_SQL_DATABASE_URL": f"sqlite:///{database}",
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }


PEER = {
    "MLflow": Peer("mlflow", _mlflow, lambda _, __: {}, "/health", ("x-mlflow-experiment-id=0",)),
    "Phoenix": Peer("arize-phoenix", _phoenix, _phoenix_environment, "/healthz"),
}


def main() -> None:
    traces = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with TemporaryDirectory(prefix="lockstitch-receivers-") as folder:
        bodies = write_bodies(Path(folder), traces, CONCURRENCY)
        print(f"{bodies.spans:,} spans in requests of {BODY * SPANS}", flush=True)
        figures = receive(f"sqlite:///{folder}/ours.db", bodies)
        _tell("Lockstitch", figures)
        rates = [_measured(name, peer, Path(folder), bodies) for name, peer in PEER.items()]
    best = max(rates)
    print(f"Lockstitch makes {figures.acknowledged / best:.1f} times as many spans a second durable as the best peer,")
    print(f"and has {figures.recorded / best:.1f} times as many in its tables.")


def _measured(name: str, peer: Peer, folder: Path, bodies: Bodies) -> float:
    """Return the durable spans per second of a peer."""
    programs = _installed(peer.package)
    database, port = folder / name.lower() / "peer.db", free_port()
    database.parent.mkdir()
    # Lockstitch's packages must not come before those of the peer.
    environment = {**peer.environment(database, port), "PYTHONPATH": ""}
    command = peer.command(programs, database, port)
    with running(command, port, peer.health, environment, PATIENCE) as (process, start):
        endpoint = f"http://127.0.0.1:{port}/v1/traces"
        figures = received(process.pid, start, endpoint, bodies, lambda: _rows(database), *peer.headers)
    _tell(name, figures)
    return figures.recorded


def _rows(database: Path) -> int:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        return connection.execute("SELECT count(*) FROM spans").fetchone()[0]


def _installed(package: str) -> Path:
    """Return the folder of a peer's programs."""
    home = (PEERS / package).absolute()
    if not (home / "installed").exists():
        print(f"installing {package} into {home}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        environment = {**os.environ, "PYTHONPATH": ""}
        subprocess.run([str(home / "bin/python"), "-m", "pip", "install", "-q", package], check=True, env=environment)
        (home / "installed").touch()
    return home / "bin"


def _tell(name: str, figures: Received) -> None:
    rounded = {key: round(value, 2) for key, value in figures._asdict().items()}
    print(f"{name}: {json.dumps(rounded)}", flush=True)


if __name__ == "__main__":
    main()
