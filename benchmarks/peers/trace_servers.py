"""MLflow and Phoenix as servers that receive OTLP over HTTP, each on SQLite.

Their dependencies exclude each other and those of Lockstitch, so each has a separate environment in build/peers.
`python -m benchmarks.peers.trace_servers` installs them from PyPI.
"""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

ENVIRONMENTS = Path("build/peers")


class TraceServer(NamedTuple):
    package: str
    command: Callable[[Path, Path, int], list[str]]
    """The command that starts it, from its programs, its database and its port."""
    variables: Callable[[Path, int, int], dict[str, str]]
    """Environment variables, from its database, its port and a second free port."""
    health: str
    headers: tuple[str, ...] = ()

    @property
    def home(self) -> Path:
        return (ENVIRONMENTS / self.package).absolute()

    @property
    def is_installed(self) -> bool:
        return (self.home / "installed").exists()


def _mlflow(programs: Path, database: Path, port: int) -> list[str]:
    store = f"sqlite:///{database}"
    place = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    return [str(programs / "mlflow"), "server", "--backend-store-uri", store, *place]


def _phoenix(programs: Path, database: Path, port: int) -> list[str]:
    return [str(programs / "phoenix"), "serve"]


def _phoenix_variables(database: Path, port: int, grpc_port: int) -> dict[str, str]:
    return {
        "PHOENIX_WORKING_DIR": str(database.parent),
        "PHOENIX_SQL_DATABASE_URL": f"sqlite:///{database}",
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc_port),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }


SERVERS = {
    "MLflow": TraceServer("mlflow", _mlflow, lambda *_: {}, "/health", ("x-mlflow-experiment-id=0",)),
    "Phoenix": TraceServer("arize-phoenix", _phoenix, _phoenix_variables, "/healthz"),
}


def stored_spans(database: Path) -> int:
    """Return the number of rows in the table of spans. Both servers have a table with this name."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        return connection.execute("SELECT count(*) FROM spans").fetchone()[0]


def install(server: TraceServer) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(server.home)], check=True)
    # Lockstitch's packages must not come before those of the peer.
    environment = {**os.environ, "PYTHONPATH": ""}
    pip = [str(server.home / "bin/python"), "-m", "pip"]
    subprocess.run([*pip, "install", "-q", server.package], check=True, env=environment)
    (server.home / "installed").touch()


def main() -> None:
    for name, server in SERVERS.items():
        if not server.is_installed:
            print(f"installing {name} into {server.home}", flush=True)
            install(server)


if __name__ == "__main__":
    main()
