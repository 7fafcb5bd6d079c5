"""The filters and the orders of a list of threads."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from lockstitch.backend import Condition, Labeled, Where
from lockstitch.errors import Refused
from lockstitch.model import Thread
from lockstitch.model.figures import label_text

SORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "time": ("recent_at",),
    # The order within a status.
    "status": ("recent_at",),
    "latency": ("latency_ms",),
    "tokens": ("total_tokens",),
    "cost": ("total_cost",),
    # Many threads have the same model.
    "model": ("model", "recent_at"),
}
"""The fields of each order. An index with the project and the id makes a page cost the same at any depth.

The order by status has no index: see `STATUSES`."""

EVALUATION_KEYS: Final = "eval/"
"""Start of the keys of the threads of evaluations and of their judges."""

STATUSES: Final = ("running", "waiting", "pending", "failed", "completed", "cancelled")
"""The order by status. No index has this order: a page reads the list of one status after the other.

A list of a rare status reads the index of all threads of the project."""


def order_of(sort: str, ascending: bool) -> tuple[str, ...]:
    """Return the fields to sort by. Raises `Refused` for an unknown order."""
    if sort not in SORTS:
        raise Refused(f"sort {sort!r} is not valid. Use one of: {', '.join(SORTS)}.")
    sign = "" if ascending else "-"
    return tuple(f"{sign}{field}" for field in (*SORTS[sort], "id"))


def place_of(thread: Thread, sort: str) -> tuple[Any, ...]:
    """Return the place of a thread in an order."""
    place = tuple(getattr(thread, field) for field in (*SORTS[sort], "id"))
    return (-STATUSES.index(thread.status), *place) if sort == "status" else place


def conditions_of(
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    model: str | Collection[str] | None = None,
    version: int | None = None,
    min_cost: float | None = None,
    error: bool | str | None = None,
    tag: str | Collection[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    evaluations: bool = True,
    sort: str = "time",
) -> list[Condition]:
    """Return the conditions of these filters, and those of the order. See `Store.threads`."""
    where: list[Condition] = []
    if since is not None:
        where.append(Where("recent_at", ">=", since))
    if until is not None:
        where.append(Where("recent_at", "<", until))
    if model is not None:
        where.append(Where("model", "=", model) if isinstance(model, str) else Where("model", "in", list(model)))
    if version is not None:
        where.append(Where("version", "=", version))
    if min_cost is not None:
        where.append(Where("total_cost", ">=", min_cost))
    if error is not None:
        where.append(Where("last_error", "is null" if error is False else "is not null"))
        if isinstance(error, str) and error:
            where.append(Where("last_error", "contains", error))
    where += [Labeled("", name) for name in ([tag] if isinstance(tag, str) else tag or ())]
    where += [Labeled(name, _text(name, value)) for name, value in (metadata or {}).items()]
    if not evaluations:
        where.append(Where("key", "not starts with", EVALUATION_KEYS))
    if sort not in ("time", "status"):
        # Threads without the figure are not part of the order.
        where.append(Where(SORTS[sort][0], "is not null"))
    return where


def _text(name: str, value: Any) -> str:
    text = label_text(value)
    if not name or text is None:
        raise Refused(f"The metadata {name!r} can only be compared with a text, a whole number, true or false.")
    return text


def parse_metadata(pairs: Sequence[str]) -> dict[str, str]:
    """Return filters of metadata from texts of the form `key=value`. Raises `Refused` for another form."""
    metadata: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name.strip() or not equals:
            raise Refused(f"metadata {pair!r} is not valid. Use the form key=value.")
        metadata[name.strip()] = value.strip()
    return metadata
