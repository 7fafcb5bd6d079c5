"""Damage behind a store's back: with SQL where it is a database, with an editor where it is files."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from lockstitch.model import codec


class Damage:
    """Change rows of a closed store directly, without the checks of the backend. Values are in their JSON form."""

    def __init__(self, backend: str, url: str) -> None:
        self._backend = backend
        self._url = url

    def head(self, thread_id: UUID, **values: Any) -> None:
        if self._backend == "files":
            self._rewrite(f"heads/{thread_id}.json", lambda record: {**record, **values})
        else:
            self._update("threads", {"id": thread_id}, values)

    def stitch(self, thread_id: UUID, position: int, **values: Any) -> None:
        if self._backend == "files":
            if "data" in values:
                values["action_data"] = values.pop("data")
            self._rewrite(
                f"agent_runs/{thread_id}/*.jsonl",
                lambda record: {**record, **values} if record["position"] == position else record,
            )
            return
        if self._backend == "sqlite" and "previous_id" in values:
            values["previous"] = None
        self._update(self._stitches, self._owner(thread_id) | {"position": position}, values)

    def drop_stitch(self, thread_id: UUID, position: int) -> None:
        if self._backend == "files":
            self._rewrite(
                f"agent_runs/{thread_id}/*.jsonl",
                lambda record: None if record["position"] == position else record,
            )
        else:
            self._delete(self._stitches, self._owner(thread_id) | {"position": position})

    def drop_run(self, thread_id: UUID, run_id: UUID) -> None:
        if self._backend == "files":
            (self._folder / f"runs/{thread_id}/{run_id}.json").unlink()
        else:
            self._delete("run_rows" if self._backend == "sqlite" else "runs", {"id": run_id})

    def drop_blobs(self) -> None:
        if self._backend == "files":
            for path in (self._folder / "blobs").iterdir():
                path.unlink()
        else:
            self._delete("blobs", {})

    # How each backend is changed

    @property
    def _folder(self) -> Path:
        return Path("/" + self._url.removeprefix("file:").lstrip("/"))

    @property
    def _stitches(self) -> str:
        return "stitch_rows" if self._backend == "sqlite" else "stitches"

    def _owner(self, thread_id: UUID) -> dict[str, Any]:
        if self._backend == "postgres":
            return {"thread_id": thread_id}
        with self._connection() as run:
            return {"thread_no": run("SELECT no FROM threads WHERE id = ?", [str(thread_id)]).fetchone()[0]}

    def _rewrite(self, pattern: str, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        for path in self._folder.glob(pattern):
            records = [change(codec.loads(line)) for line in path.read_bytes().splitlines()]
            ending = b"\n" if path.read_bytes().endswith(b"\n") else b""
            path.write_bytes(b"\n".join(codec.dumps(record) for record in records if record) + ending)

    def _update(self, table: str, where: dict[str, Any], values: dict[str, Any]) -> None:
        with self._connection() as run:
            changes = ", ".join(f"{name} = {self._mark}" for name in values)
            run(f"UPDATE {table} SET {changes}{self._where(where)}", self._plain([*values.values(), *where.values()]))

    def _delete(self, table: str, where: dict[str, Any]) -> None:
        with self._connection() as run:
            run(f"DELETE FROM {table}{self._where(where)}", self._plain([*where.values()]))

    @property
    def _mark(self) -> str:
        return "?" if self._backend == "sqlite" else "%s"

    def _where(self, where: dict[str, Any]) -> str:
        return " WHERE " + " AND ".join(f"{name} = {self._mark}" for name in where) if where else ""

    def _plain(self, values: list[Any]) -> list[Any]:
        plain = [codec.dumps(value).decode() if isinstance(value, dict | list) else value for value in values]
        return [str(value) if isinstance(value, UUID) else value for value in plain]

    @contextmanager
    def _connection(self) -> Iterator[Callable[..., Any]]:
        if self._backend == "sqlite":
            path = "/" + self._url.removeprefix("sqlite:").lstrip("/")
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                yield connection.execute
            return
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("SET search_path TO lockstitch")
            # Foreign keys are triggers, and a replica runs none.
            connection.execute("SET session_replication_role = replica")
            yield lambda text, values: connection.execute(sql.SQL(text), values)
