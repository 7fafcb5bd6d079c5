"""`LockstitchStore`: the long-term memory of LangGraph in a store."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)

from lockstitch.errors import Refused
from lockstitch.integrations.langgraph.records import EXTENSION, StoredItem
from lockstitch.integrations.loops import LoopBound
from lockstitch.store import AnyOf, Condition, Store, Transaction, Where

SEPARATOR: Final = "."
"""Character after each label of a stored namespace. Labels do not contain it."""

_BEHIND: Final = chr(ord(SEPARATOR) + 1)

_OPERATORS: Final[Mapping[str, Any]] = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}

Namespace = tuple[str, ...]


class LockstitchStore(LoopBound, BaseStore):
    """Items by namespace and key, with filters. It has no search by meaning: `query` is ignored.

    Its methods work from any thread and from any loop. Do not call a sync method on the loop of the store itself.
    """

    def __init__(self, store: Store) -> None:
        """Create a memory for the project of a store.

        Args:
            store: Open store.

        Raises:
            Refused: If no loop runs. Use `open` then.
        """
        LoopBound.__init__(self, store)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Return the results of operations. Reads come first; all writes are one transaction.

        Args:
            ops: The operations.
        """
        return self._wait(self._batch([*ops]))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Return the results of operations. Reads come first; all writes are one transaction.

        Args:
            ops: The operations.
        """
        return await self._on_loop(self._batch([*ops]))

    async def _batch(self, ops: Sequence[Op]) -> list[Result]:
        await self.store.extend(EXTENSION)
        results: list[Result] = []
        puts: dict[tuple[Namespace, str], PutOp] = {}
        for op in ops:
            validate_op_namespace(op)
            if isinstance(op, GetOp):
                results.append(await self._get(op))
            elif isinstance(op, SearchOp):
                results.append(await self._search(op))
            elif isinstance(op, ListNamespacesOp):
                results.append(await self._namespaces(op))
            else:
                puts[op.namespace, op.key] = op
                results.append(None)
        if puts:
            await self._put(puts)
        return results

    async def _get(self, op: GetOp) -> Item | None:
        row = await self.store.table(StoredItem).get_or_none(self.store.project, _text(op.namespace), op.key)
        return None if row is None else Item(**_fields(row))

    async def _put(self, puts: Mapping[tuple[Namespace, str], PutOp]) -> None:
        now = self.store.clock.now()
        keys = [(self.store.project, _text(namespace), key) for namespace, key in puts]
        same = Where(("project", "namespace", "key"), "in", keys)
        created = {(row.namespace, row.key): row.created_at for row in await self.store.table(StoredItem).find(same)}
        transaction = Transaction()
        deleted = [key for key, op in zip(keys, puts.values(), strict=True) if op.value is None]
        if deleted:
            transaction.delete(StoredItem, Where(("project", "namespace", "key"), "in", deleted))
        for (project, namespace, key), op in zip(keys, puts.values(), strict=True):
            if op.value is not None:
                times = {"created_at": created.get((namespace, key), now), "updated_at": now}
                transaction.records.append(
                    StoredItem(project=project, namespace=namespace, key=key, value=dict(op.value), **times)
                )
        await self.store.commit(transaction)

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        conditions = [*self._below(op.namespace_prefix), *filter_conditions((), op.filter or {})]
        order = ("-updated_at", "-namespace", "-key")
        rows = await self.store.table(StoredItem).find(*conditions, order=order, limit=op.limit, offset=op.offset)
        return [SearchItem(**_fields(row)) for row in rows]

    async def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        matches = op.match_conditions or ()
        prefix = next((_literal_prefix(match.path) for match in matches if match.match_type == "prefix"), ())
        found: dict[Namespace, None] = {}
        last: str | None = None
        while True:
            # One index lookup per namespace, so the number of items does not matter.
            after = () if last is None else (Where("namespace", ">", last),)
            row = await self.store.table(StoredItem).first(*self._below(prefix), *after, order=("namespace",))
            if row is None:
                return sorted(found)[op.offset : op.offset + op.limit]
            last = row.namespace
            namespace = _labels(row.namespace)
            if all(_matches(match, namespace) for match in matches):
                found[namespace[: op.max_depth]] = None

    def _below(self, prefix: Sequence[str]) -> list[Condition]:
        """Return the conditions of the items in a namespace and in those below it."""
        conditions: list[Condition] = [Where("project", "=", self.store.project)]
        if prefix:
            start = _text(prefix)
            conditions += [
                Where("namespace", ">=", start),
                Where("namespace", "<", start.removesuffix(SEPARATOR) + _BEHIND),
            ]
        return conditions


def filter_conditions(path: tuple[str, ...], wanted: Mapping[str, Any]) -> list[Condition]:
    """Return the conditions of a filter of LangGraph on the value of an item.

    Raises `Refused` for an unknown operator, and for values that no condition can compare.
    """
    conditions: list[Condition] = []
    for key, value in wanted.items():
        place = (*path, key)
        if not isinstance(value, dict):
            conditions.append(_compared(place, "$eq", value))
        elif any(name.startswith("$") for name in cast("dict[str, Any]", value)):
            conditions += [_compared(place, name, item) for name, item in cast("dict[str, Any]", value).items()]
        else:
            conditions += filter_conditions(place, cast("dict[str, Any]", value))
    return conditions


def _compared(path: tuple[str, ...], operator: str, value: Any) -> Condition:
    if operator == "$eq":
        return Where("value", "is null" if value is None else "=", value, path)
    if operator == "$ne":
        if value is None:
            return Where("value", "is not null", None, path)
        return AnyOf([Where("value", "!=", value, path), Where("value", "is null", None, path)])
    if operator not in _OPERATORS:
        raise Refused(f"Unknown operator {operator}. A filter has $eq, $ne, {', '.join(_OPERATORS)}.")
    return Where("value", _OPERATORS[operator], value, path)


def _text(namespace: Iterable[str]) -> str:
    return "".join(f"{label}{SEPARATOR}" for label in namespace)


def _labels(text: str) -> Namespace:
    return tuple(text.split(SEPARATOR)[:-1])


def _fields(row: StoredItem) -> dict[str, Any]:
    return {
        "namespace": _labels(row.namespace),
        "key": row.key,
        "value": row.value,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _literal_prefix(path: Sequence[str]) -> Namespace:
    """Return the labels of a pattern before its first wildcard."""
    return tuple(path[: path.index("*")] if "*" in path else path)


def _matches(match: MatchCondition, namespace: Namespace) -> bool:
    if len(namespace) < len(match.path):
        return False
    labels = namespace[: len(match.path)] if match.match_type == "prefix" else namespace[-len(match.path) :]
    return all(wanted in ("*", label) for wanted, label in zip(match.path, labels, strict=True))
