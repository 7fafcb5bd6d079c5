"""`open_store`: open a store by its URL. The only module that imports the backends."""

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from lockstitch.backend import FullBackend
from lockstitch.errors import Refused, StoreUnreachable
from lockstitch.model import Clock, SystemClock
from lockstitch.store.store import Store

_FORMS = "sqlite:///path.db, sqlite:///:memory:, postgresql://user@host/database, file:folder or file:///srv/folder"

SQLITE_OPTIONS = ("synchronous",)
"""Options of a SQLite URL. `backends.postgres.pool` has those of PostgreSQL, and a file URL has none."""


def open_store(
    url: str = "sqlite:///lockstitch.db",
    *,
    project: str = "default",
    clock: Clock | None = None,
    migrate: bool = True,
    create: bool = True,
) -> Store:
    """Return the store at a URL. Use it with `async with`, which creates or migrates its schema.

    URLs are `sqlite:///path.db`, `sqlite:///:memory:`, `postgresql://user@host/database`, `file:folder` and
    `file:///srv/folder`. SQLite accepts `?synchronous=full|normal|extra`.

    Args:
        url: URL of the store.
        project: Project of new threads. Keys and ids are looked up in it.
        clock: Current time, for tests. None: the clock of the system.
        migrate: Create or migrate the schema when the store is entered.
        create: Create a store that does not exist.

    Returns:
        The store. It is not open yet.

    Raises:
        Refused: If the URL is not valid, or if the driver of the backend is not installed.
        StoreUnreachable: If `create` is False and there is no store. Entering the store may raise it instead.
    """
    clock = clock or SystemClock()
    backend, again = _backend(url, clock, create)
    return Store(
        backend, clock=clock, project=project, migrate=migrate, create=create, again=again, scratch=open_memory_store
    )


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite URL. None: the URL is of another backend, or of a store in memory."""
    parts = urlsplit(url, allow_fragments=False)
    if parts.scheme != "sqlite":
        return None
    path = _path(url, parts.netloc, parts.path)
    return None if path == ":memory:" else Path(path)


def open_memory_store() -> Store:
    """Return a new store in memory."""
    return open_store("sqlite:///:memory:")


def _backend(url: str, clock: Clock, create: bool) -> tuple[FullBackend, Callable[[], FullBackend] | None]:
    """Return a backend, and a function that opens another one for the same store in another OS thread.

    The function is None for a store in memory. A relative path refers to the current folder of this call.
    """
    try:
        # A # is part of the path. As a fragment, it would silently select another file.
        parts = urlsplit(url, allow_fragments=False)
    except ValueError as exc:
        raise Refused(f"{redacted_url(url)!r} is not a store URL ({exc}). Use one of: {_FORMS}.") from exc
    scheme = parts.scheme
    if scheme == "sqlite":
        from lockstitch.backends.sqlite.backend import SqliteBackend

        options = _options(parts.query, SQLITE_OPTIONS, "SQLite")
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
            raise Refused(f"Module {exc.name} is not installed. Run: pip install 'lockstitch[postgres]'") from exc
        return PostgresBackend(url, clock), partial(PostgresBackend, url, clock)
    if scheme == "file":
        from lockstitch.backends.files import disk
        from lockstitch.backends.files.backend import FilesBackend

        _options(parts.query, (), "file")
        path = _folder(url, parts.netloc, parts.path)
        if not create:
            _require(Path(path) / disk.STORE, path)
        return FilesBackend(Path(path), clock), partial(FilesBackend, Path(path).absolute(), clock)
    raise Refused(f"{redacted_url(url)!r} is not a store URL. Use one of: {_FORMS}.")


def _options(query: str, known: Sequence[str], kind: str) -> dict[str, list[str]]:
    """Return the options of a URL. Raises `Refused` if an option is unknown: ignoring it would hide a typing error."""
    options = parse_qs(query, keep_blank_values=True)
    unknown = [name for name in options if name not in known]
    if unknown:
        valid = ", ".join(known) or "none"
        raise Refused(
            f"{', '.join(unknown)} is not an option. Options of a {kind} URL: {valid}. Write a ? in a name as %3F."
        )
    return options


def _path(url: str, host: str, path: str) -> str:
    """Return the path of a SQLite URL. Three slashes start a relative path, four an absolute one."""
    if host:
        raise Refused(f"{url!r} has a host. Use three slashes before the path: {_FORMS}.")
    path = unquote(path).removeprefix("/")
    if not path:
        raise Refused(f"{url!r} has no file name. Use one of: {_FORMS}.")
    return path


def _folder(url: str, host: str, path: str) -> str:
    """Return the path of a file URL. `file:///srv/agents` is absolute, `file:agents` is relative."""
    if host:
        raise Refused(f"{url!r} has a host. Use one of: {_FORMS}.")
    path = unquote(path)
    if not path.strip("/"):
        raise Refused(f"{url!r} has no folder name. Use one of: {_FORMS}.")
    return re.sub("^/+", "/", path)


def _require(file: Path, path: str) -> None:
    """Raise `StoreUnreachable` if the store does not exist. A backend would create its file."""
    try:
        there = file.exists()
    except (OSError, ValueError) as exc:
        raise StoreUnreachable(f"{path} cannot be opened: {exc}.") from exc
    if not there:
        raise StoreUnreachable(
            f"No store found at {path}. Run `lockstitch migrate` to create it, or check the URL and the current folder."
        )


def redacted_url(url: str) -> str:
    """Return a URL without its password and its options, for messages."""
    return re.sub(r"(://[^:/?]*:).*@", r"\1***@", url.partition("?")[0])
