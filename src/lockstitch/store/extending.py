"""Extending: tables of applications in a store, and their queries."""

from typing import Any, TypeVar

from lockstitch.backend import Extends, FullBackend
from lockstitch.errors import Refused
from lockstitch.extension import Extension, known, register
from lockstitch.records import Record

R = TypeVar("R", bound=Record)


async def extend(backend: FullBackend, extension: Extension) -> None:
    register(extension)
    await _able(backend, extension).extend(extension)


async def ask(
    backend: FullBackend,
    extension: Extension,
    name: str,
    parameters: dict[str, Any],
    into: type[R] | None = None,
    *,
    writes: bool = False,
) -> list[Any]:
    return await _able(backend, extension).ask(extension, name, parameters, into, writes=writes)


async def present(backend: FullBackend) -> list[Extension]:
    """The extensions that a store has, as far as their code is here."""
    return known(await backend.extensions()) if isinstance(backend, Extends) else []


async def absent(backend: FullBackend) -> list[str]:
    """The names of those that a store has and whose code is not here."""
    names = await backend.extensions() if isinstance(backend, Extends) else []
    return sorted({*names} - {one.name for one in known(names)})


def _able(backend: FullBackend, extension: Extension) -> Extends:
    if not isinstance(backend, Extends):
        raise Refused(
            f"{extension.name} keeps tables of its own, which a store of files has none of. Use SQLite or PostgreSQL."
        )
    return backend
