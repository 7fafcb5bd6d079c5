"""MLflow and Phoenix as servers that receive OTLP over HTTP, each on SQLite.

Each has a separate environment; see `environment`.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.environment import Environment


class TraceServer(NamedTuple):
    environment: Environment
    command: Callable[[Path, Path, int], list[str]]
    """The command that starts it, from its programs, its database and its port."""
    variables: Callable[[Path, int, int], dict[str, str]]
    """Environment variables, from its database, its port and a second free port."""
    health: str
    headers: tuple[str, ...] = ()


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
    "MLflow": TraceServer(Environment.of("mlflow"), _mlflow, lambda *_: {}, "/health", ("x-mlflow-experiment-id=0",)),
    "Phoenix": TraceServer(Environment.of("arize-phoenix"), _phoenix, _phoenix_variables, "/healthz"),
}


def stored_spans(database: Path) -> int:
    """Return the number of rows in the table of spans. Both servers have a table with this name."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        return connection.execute("SELECT count(*) FROM spans").fetchone()[0]
