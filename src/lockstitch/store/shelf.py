"""A shelf: the side records of one kind."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import NotFound
from lockstitch.records import Record

R = TypeVar("R", bound=Record)


class Shelf(Generic[R]):
    """Keeps records of one kind: put replaces the one with the same key."""

    def __init__(self, backend: FullBackend, kind: type[R]) -> None:
        self._backend = backend
        self._kind = kind

    async def put(self, *records: R) -> None:
        await self._backend.put(records)

    async def get(self, *key: Any) -> R:
        """The record with this primary key, or NotFound."""
        found = await self._backend.get(self._kind, key)
        if found is None:
            raise NotFound(f"There is no {self._kind.__name__.lower()} {' '.join(map(str, key))} in this store.")
        return found

    async def list(self, *, limit: int | None = None, **equal: Any) -> Sequence[R]:
        """The records whose fields equal these, in the order of their keys."""
        return await self._backend.find(Find(self._kind, _where(equal), order=self._kind.primary_key, limit=limit))

    async def delete(self, **equal: Any) -> int:
        """Delete the records whose fields equal these; how many."""
        return await self._backend.delete(Find(self._kind, _where(equal)))


def _where(equal: dict[str, Any]) -> list[Where]:
    return [Where(field, "is null") if value is None else Where(field, "=", value) for field, value in equal.items()]
