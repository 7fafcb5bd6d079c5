"""Opening a store by its URL. The one place that names concrete backends."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from lockstitch.backend import FullBackend
from lockstitch.errors import Refused, StoreUnreachable
from lockstitch.model import Clock, SystemClock
from lockstitch.store.store import Store

_FORMS = "sqlite:///path.db, sqlite:///:memory:, postgresql://user@host/database, file:folder or file:///srv/folder"


def open_store(
    url: str = "sqlite:///lockstitch.db",
    *,
    project: str = "default",
    clock: Clock | None = None,
    migrate: bool = True,
    create: bool = True,
) -> Store:
    """The store at `url`, for `async with`. Entering it makes or migrates its schema, unless told not to.

    `project` is the tenancy boundary: what this store object creates and finds by key is in it. With
    `create=False` a store that is not there yet is StoreUnreachable, and nothing is made in its place.
    """
    clock = clock or SystemClock()
    backend, again = _backend(url, clock, create)
    return Store(
        backend, clock=clock, project=project, migrate=migrate, create=create, again=again, scratch=open_memory_store
    )


def open_memory_store() -> Store:
    return open_store("sqlite:///:memory:")


def _backend(url: str, clock: Clock, create: bool) -> tuple[FullBackend, Callable[[], FullBackend] | None]:
    """A backend, and how to make another one for the same place, for a thread with a loop of its own.

    None where there is only this one. A relative path means where the process was when it opened the store.
    """
    try:
        # A # belongs to the path: without this the store would quietly be another file.
        parts = urlsplit(url, allow_fragments=False)
    except ValueError as exc:
        raise Refused(f"{redacted_url(url)!r} is no store ({exc}). Write {_FORMS}.") from exc
    scheme = parts.scheme
    if scheme == "sqlite":
        from lockstitch.backends.sqlite.backend import SqliteBackend

        options = parse_qs(parts.query)
        synchronous = options.get("synchronous", ["full"])[0].upper()
        if synchronous not in ("FULL", "NORMAL", "EXTRA"):
            raise Refused(f"synchronous={synchronous} is not one of full, normal and extra.")
        path = _path(url, parts.netloc, parts.path)
        if not create and path != ":memory:":
            _require(Path(path), path)
        backend = SqliteBackend(path, clock, synchronous=synchronous)
        if path == ":memory:":
            return backend, None
        return backend, partial(SqliteBackend, os.path.abspath(path), clock, synchronous=synchronous)
    if scheme in ("postgresql", "postgres"):
        try:
            from lockstitch.backends.postgres.backend import PostgresBackend
        except ModuleNotFoundError as exc:
            raise Refused(f"{exc.name} is missing: pip install 'lockstitch[postgres]'") from exc
        return PostgresBackend(url, clock), partial(PostgresBackend, url, clock)
    if scheme == "file":
        from lockstitch.backends.files import disk
        from lockstitch.backends.files.backend import FilesBackend

        path = _folder(url, parts.netloc, parts.path)
        if not create:
            _require(Path(path) / disk.STORE, path)
        return FilesBackend(Path(path), clock), partial(FilesBackend, Path(path).absolute(), clock)
    raise Refused(f"{redacted_url(url)!r} is no store. Write {_FORMS}.")


def _path(url: str, host: str, path: str) -> str:
    """Three slashes and a name is relative to here, four begin at the root."""
    if host:
        raise Refused(f"{url!r} names a host; write three slashes before the path: {_FORMS}.")
    path = unquote(path).removeprefix("/")
    if not path:
        raise Refused(f"{url!r} names no file. Write {_FORMS}.")
    return path


def _folder(url: str, host: str, path: str) -> str:
    """As everywhere, file:///srv/agents begins at the root; file:agents is relative to here."""
    if host:
        raise Refused(f"{url!r} names a host; write {_FORMS}.")
    path = unquote(path)
    if not path.strip("/"):
        raise Refused(f"{url!r} names no folder. Write {_FORMS}.")
    return re.sub("^/+", "/", path)


def _require(file: Path, path: str) -> None:
    """Say that there is no store before a backend opens, and so makes, its file."""
    try:
        there = file.exists()
    except (OSError, ValueError) as exc:
        raise StoreUnreachable(f"{path} cannot be opened: {exc}.") from exc
    if not there:
        raise StoreUnreachable(
            f"There is no store at {path}. `lockstitch migrate` makes one; or check the URL and the folder you are in."
        )


def redacted_url(url: str) -> str:
    """A URL as people may see it: without its password and its options."""
    return re.sub(r"(://[^:/?]*:).*@", r"\1***@", url.partition("?")[0])
