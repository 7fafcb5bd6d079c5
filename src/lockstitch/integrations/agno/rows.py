"""`Rows`: the rows of the tables of Agno that are neither sessions nor runs."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from lockstitch.errors import Conflict
from lockstitch.integrations.agno.records import EXTENSION, StoredRow
from lockstitch.model import Json
from lockstitch.store import Condition, Fields, Store, Transaction, Where

ATTEMPTS: Final = 20
"""Attempts of a change while other processes change the same row."""


class Rows:
    """The rows of one kind in one project."""

    def __init__(self, store: Store, kind: str) -> None:
        self._store = store
        self._kind = kind

    async def get(self, id: str) -> Json | None:
        """Return a row, or None."""
        row = await self._get(id)
        return None if row is None else row.content

    async def find(
        self, *where: Condition, order: Sequence[str] = (), limit: int | None = None, page: int | None = None
    ) -> list[Json]:
        """Return a page of rows.

        Args:
            where: Conditions on fields of `StoredRow`. `equal` returns those on values of the rows.
            order: Fields to sort by.
            limit: Maximum number of rows. None: all.
            page: Number of the page, from 1.
        """
        await self._store.extend(EXTENSION)
        offset = ((page or 1) - 1) * (limit or 0)
        table = self._store.table(StoredRow)
        rows = await table.find(*self._of_kind(), *where, order=order, limit=limit, offset=offset)
        return [row.content for row in rows]

    async def count(self, *where: Condition) -> int:
        """Return the number of rows that meet all conditions."""
        await self._store.extend(EXTENSION)
        return await self._store.table(StoredRow).count(*self._of_kind(), *where)

    async def put(self, rows: Sequence[tuple[str, Json, Fields]]) -> None:
        """Write rows in one transaction. A row replaces the stored row with the same id.

        Args:
            rows: Ids, contents and further fields of `StoredRow`.
        """
        await self._store.extend(EXTENSION)
        if rows:
            await self._store.table(StoredRow).put(*(self._row(*row) for row in rows))

    async def change(self, id: str, change: Callable[[Json | None], tuple[Json, Fields] | None]) -> Json | None:
        """Replace a row by the one that `change` returns. If another writer was first, call `change` again.

        Args:
            id: Id of the row.
            change: Function that gets the stored row, or None if there is none. It returns the new row and its fields,
                or None to change nothing.

        Returns:
            The new row, or None if nothing changed.
        """
        for attempt in range(ATTEMPTS):
            row = await self._get(id)
            changed = change(None if row is None else row.content)
            if changed is None:
                return None
            transaction = Transaction()
            if row is not None:
                # The new row conflicts with a stored one of another version, which this does not delete.
                same = (Where("id", "=", id), Where("version", "=", row.version))
                transaction.delete(StoredRow, *self._of_kind(), *same)
            version = 1 if row is None else row.version + 1
            transaction.new_records.append(self._row(id, *changed).changed(version=version))
            try:
                await self._store.commit(transaction)
            except Conflict:
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            return changed[0]
        raise AssertionError

    async def delete(self, *where: Condition) -> int:
        """Delete the rows that meet all conditions. Return their number."""
        await self._store.extend(EXTENSION)
        return await self._store.table(StoredRow).delete(*self._of_kind(), *where)

    async def _get(self, id: str) -> StoredRow | None:
        await self._store.extend(EXTENSION)
        return await self._store.table(StoredRow).get_or_none(self._store.project, self._kind, id)

    def _of_kind(self) -> tuple[Condition, ...]:
        return Where("project", "=", self._store.project), Where("kind", "=", self._kind)

    def _row(self, id: str, content: Json, fields: Fields) -> StoredRow:
        return StoredRow(project=self._store.project, kind=self._kind, id=id, content=content, **fields)


def equal(**values: Any) -> list[Condition]:
    """Return conditions on values of rows. A value that is None sets no condition."""
    return [Where("content", "=", value, path=(name,)) for name, value in values.items() if value is not None]


def seconds(value: int | None) -> str:
    """Return a time in seconds as a text that sorts by time."""
    return f"{max(0, value or 0):020}"


def sorted_rows(rows: Sequence[Json], sort_by: str | None, sort_order: str | None) -> list[Json]:
    """Return rows in the order of a field, the last first unless `sort_order` is `asc`. Rows without a value are last.

    `updated_at` of a row that never changed is its `created_at`, as in Agno. An unknown field changes nothing.
    """
    if sort_by is None or not any(sort_by in row for row in rows):
        return [*rows]

    def value(row: Json) -> Any:
        own = row.get(sort_by)
        return row.get("created_at") if own is None and sort_by == "updated_at" else own

    with_value = [row for row in rows if value(row) is not None]
    ordered = sorted(with_value, key=value, reverse=sort_order != "asc")
    return [*ordered, *(row for row in rows if value(row) is None)]


def page_of(rows: Sequence[Json], limit: int | None, page: int | None) -> list[Json]:
    """Return a page of rows. Without a limit, return all."""
    if limit is None:
        return [*rows]
    first = ((page or 1) - 1) * limit
    return [*rows[first : first + limit]]
