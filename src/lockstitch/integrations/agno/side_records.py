"""`Memories`, `Documents` and `Evaluations`: rows of Agno as `Memory`, `Knowledge` and `Eval` of the record.

So they are shown wherever those of Lockstitch agents are, also in the lens `agno`. A field of Agno without a field in
the record is in the JSON of the record, under `agno`. Records of other writers are not touched.
"""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Generic, TypeVar
from uuid import UUID, uuid5

from lockstitch.errors import Conflict
from lockstitch.model import Json, Record
from lockstitch.model.side_records import Eval, Knowledge, Memory
from lockstitch.store import Condition, Store, Where

R = TypeVar("R", Memory, Knowledge, Eval)

_OWN: Final = "agno"
"""Key of the fields that only Agno has."""

_IDS: Final = UUID("0c5ff8a2-6a0f-5f3a-9d0e-3d9f8f1b2f7c")
"""Namespace of the ids of records whose id in Agno is no UUID."""


class _SideRecords(Generic[R]):
    """The records of one class that Agno has written in a project."""

    kind: ClassVar[type[Record]]
    json_field: ClassVar[str]
    """Field with the values that only Agno has."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def _record(self, id: UUID, row: Json) -> R:
        raise NotImplementedError

    def _row(self, record: R) -> Json:
        raise NotImplementedError

    async def get(self, id: str) -> Json | None:
        """Return the row with an id, or None."""
        record = await self._stored(id)
        return None if record is None else self._row(record)

    async def find(self, *where: Condition) -> list[Json]:
        """Return the rows that meet all conditions, in the order of their creation."""
        rows: list[Any] = await self._store.table(self.kind).find(*self._of_agno(), *where, order=("created_at", "id"))
        return [self._row(row) for row in rows]

    async def put(self, row: Json) -> None:
        """Write a row. It replaces the stored row with the same id."""
        first, second = self._ids(row["id"])
        table = self._store.table(self.kind)
        holder: Any = await table.get_or_none(first)
        # The id may be in use in another project, or by a record of another writer.
        taken = holder is not None and (holder.project != self._store.project or self._own(holder).get("id") is None)
        await table.put(self._record(second if taken else first, row))

    async def create(self, row: Json) -> None:
        """Write a new row. Raises `Conflict` if there is one with the same id."""
        if await self._stored(row["id"]) is not None:
            raise Conflict(f"{self.kind.__name__} {row['id']} exists. Nothing was written.")
        await self.put(row)

    async def delete(self, ids: Collection[str] | None, user_id: str | None = None) -> int:
        """Delete rows. Return their number.

        Args:
            ids: Ids of the rows. None: all.
            user_id: Only rows of this user. None: of all users.
        """
        where = [*self._of_agno()]
        if ids is not None:
            where.append(Where("id", "in", [candidate for id in ids for candidate in self._ids(id)]))
        if user_id is not None:
            where.append(self.of_user(user_id))
        return await self._store.table(self.kind).delete(*where)

    def of_user(self, user_id: str) -> Condition:
        """Return the condition that a row belongs to a user."""
        return self.own_value("user_id", user_id)

    def own_value(self, name: str, value: Any) -> Condition:
        """Return the condition on a field that only Agno has. None: it has no value."""
        path = (_OWN, name)
        if value is None:
            return Where(self.json_field, "is null", path=path)
        return Where(self.json_field, "=", value, path=path)

    async def _stored(self, id: str) -> R | None:
        for candidate in self._ids(id):
            record: Any = await self._store.table(self.kind).get_or_none(candidate)
            if record is not None and record.project == self._store.project and self._own(record).get("id") == id:
                return record
        return None

    def _of_agno(self) -> list[Condition]:
        is_of_agno = Where(self.json_field, "is not null", path=(_OWN, "id"))
        return [Where("project", "=", self._store.project), is_of_agno]

    def _own(self, record: R) -> Json:
        values: Json = getattr(record, self.json_field)
        return values.get(_OWN) or {}

    def _ids(self, id: str) -> tuple[UUID, UUID]:
        """Return the ids that the record of a row may have. The first one is free in most cases."""
        derived = uuid5(_IDS, f"{self._store.project}\n{self.kind.__name__}\n{id}")
        try:
            own = UUID(id)
        except ValueError:
            return derived, derived
        return (own, derived) if str(own) == id else (derived, derived)


class Memories(_SideRecords[Memory]):
    """Memories about users."""

    kind = Memory
    json_field = "metadata"

    def of_user(self, user_id: str) -> Condition:
        return Where("user_id", "=", user_id)

    def _record(self, id: UUID, row: Json) -> Memory:
        own = ("id", "agent_id", "team_id", "created_at", "updated_at", "topics")
        return Memory(
            id=id,
            project=self._store.project,
            user_id=row.get("user_id"),
            agent=row.get("agent_id") or row.get("team_id"),
            text=row["memory"],
            tags=[topic for topic in row.get("topics") or () if isinstance(topic, str)],
            metadata={
                "input": row.get("input"),
                "feedback": row.get("feedback"),
                _OWN: {name: row.get(name) for name in own},
            },
            **_times(row),
        )

    def _row(self, record: Memory) -> Json:
        own = self._own(record)
        return {
            "memory_id": own["id"],
            "memory": record.text,
            "topics": own["topics"],
            "input": record.metadata.get("input"),
            "feedback": record.metadata.get("feedback"),
            "user_id": record.user_id,
            **{name: own.get(name) for name in ("agent_id", "team_id", "created_at", "updated_at")},
        }


class Documents(_SideRecords[Knowledge]):
    """Contents of the knowledge of agents."""

    kind = Knowledge
    json_field = "metadata"

    _COLUMNS: ClassVar = ("name", "description", "type", "size", "status")
    _SHOWN: ClassVar = ("linked_to", "access_count", "status_message", "external_id")
    """Fields that the lens `agno` reads from the metadata."""

    def _record(self, id: UUID, row: Json) -> Knowledge:
        rest = {name: value for name, value in row.items() if name not in (*self._COLUMNS, *self._SHOWN)}
        return Knowledge(
            id=id,
            project=self._store.project,
            **{name: row.get(name) for name in self._COLUMNS},
            metadata={**{name: row.get(name) for name in self._SHOWN}, _OWN: rest},
            **_times(row),
        )

    def _row(self, record: Knowledge) -> Json:
        columns = {name: getattr(record, name) for name in self._COLUMNS}
        return {**columns, **{name: record.metadata.get(name) for name in self._SHOWN}, **self._own(record)}


class Evaluations(_SideRecords[Eval]):
    """Results of evaluations."""

    kind = Eval
    json_field = "input"

    def _record(self, id: UUID, row: Json) -> Eval:
        rest = {name: value for name, value in row.items() if name not in ("eval_data", "eval_input", "eval_type")}
        has_input = row.get("eval_input") is not None
        return Eval(
            id=id,
            project=self._store.project,
            name=row.get("name") or "",
            type=row["eval_type"],
            agent=row.get("agent_id") or row.get("team_id") or row.get("workflow_id"),
            input={**(row.get("eval_input") or {}), _OWN: {**rest, "has_input": has_input}},
            result=row["eval_data"],
            **_times(row),
        )

    def _row(self, record: Eval) -> Json:
        own = {name: value for name, value in self._own(record).items() if name not in ("id", "has_input")}
        eval_input = {name: value for name, value in record.input.items() if name != _OWN}
        return {
            **own,
            "run_id": self._own(record)["id"],
            "eval_type": record.type,
            "eval_data": record.result,
            "eval_input": eval_input if self._own(record)["has_input"] else None,
        }


def _times(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the times of a record. Those of Agno are seconds."""
    created_at: int = row.get("created_at") or row.get("updated_at") or 0
    updated_at: int = row.get("updated_at") or created_at
    return {
        "created_at": datetime.fromtimestamp(created_at, UTC),
        "updated_at": datetime.fromtimestamp(updated_at, UTC),
    }
