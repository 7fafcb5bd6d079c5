"""`Filters`: the filters, the order and the columns of the list of threads, as the address of the page has them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request

from lockstitch.errors import Refused
from lockstitch.model import Json, SavedView
from lockstitch.model.figures import ThreadSort
from lockstitch.server.pages.threads.columns import COLUMNS, DEFAULT, Column
from lockstitch.store.queries.thread_list import SORTS, parse_metadata

TABS: Final = (
    ("", "All"),
    ("person", "Needs you"),
    ("running", "Running"),
    ("waiting", "Waiting"),
    ("pending", "Pending"),
    ("failed", "Failed runs"),
    ("completed", "Completed"),
    ("cancelled", "Cancelled"),
)
KINDS: Final = ("chat", "goal", "task", "trace", "replay")
DEFAULT_CONDITIONS: Final[Mapping[str, Any]] = {"evaluations": False, "kind": KINDS[:-1]}
"""The conditions that leave out replays and the threads of evaluations."""
SPANS: Final = {
    "1h": ("Last hour", 1),
    "24h": ("Last 24 hours", 24),
    "7d": ("Last 7 days", 168),
    "30d": ("Last 30 days", 720),
}
_CHOICES: Final[Mapping[str, Any]] = {
    "status": dict(TABS),
    "kind": KINDS,
    "since": SPANS,
    "sort": list(SORTS),
    "evaluations": ("true",),
    "ascending": ("true",),
}
ANY_ERROR: Final = "true"
"""The value of the filter of errors that matches all failed runs."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters, order and columns of the list. Empty filters match all threads."""

    status: str = ""
    q: str = ""
    agent: str = ""
    kind: str = ""
    since: str = ""
    user_id: str = ""
    model: str = ""
    tag: str = ""
    """Tags, separated by commas."""
    metadata: str = ""
    """Values of the form `key=value`, separated by commas."""
    min_cost: str = ""
    """The lowest cost in US dollars."""
    error: str = ""
    version: str = ""
    evaluations: str = ""
    """`true`: with replays and the threads of evaluations. A search and the status `person` have them, too."""
    sort: str = ""
    """The order. Empty: by last activity, of a search the best matches first."""
    ascending: str = ""
    columns: str = ""
    """Names of the columns, separated by commas. Empty: the default columns."""

    @classmethod
    def of(cls, parameters: Mapping[str, str], columns: Sequence[str] = ()) -> "Filters":
        """Return the filters of a query string. Invalid values are ignored.

        Args:
            parameters: The query string.
            columns: The values of the parameter `columns`, which a form repeats.
        """
        values = {field.name: parameters.get(field.name, "").replace("\0", "").strip()[:255] for field in fields(cls)}
        for name, choices in _CHOICES.items():
            if values[name] not in choices:
                values[name] = ""
        for name, valid in (("min_cost", _cost), ("version", _version), ("metadata", _metadata)):
            if valid(values[name]) is None:
                values[name] = ""
        if values["sort"] == "time" and not values["q"]:
            values["sort"] = ""
        chosen = ",".join(columns).split(",")
        names = tuple(name for name in COLUMNS if name in chosen)
        values["columns"] = "" if names == DEFAULT else ",".join(names)
        return cls(**values)

    @property
    def narrowed(self) -> bool:
        """True if a filter other than the status is set."""
        return replace(self, status="", sort="", ascending="", columns="") != Filters()

    @classmethod
    def of_view(cls, view: SavedView) -> "Filters":
        """Return the filters, order and columns of a saved view."""
        texts = {name: str(value) for name, value in view.filters.items()}
        order = {"sort": view.sort, "ascending": "true" if view.ascending else ""}
        return cls.of(texts | order, view.columns)

    def as_view(self) -> Json:
        """Return the arguments of `save_view`."""
        order = ("sort", "ascending", "columns")
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in order}
        return {
            "filters": {name: value for name, value in values.items() if value},
            "columns": [name for name in self.columns.split(",") if name],
            "sort": self.order,
            "ascending": bool(self.ascending),
        }

    @property
    def order(self) -> ThreadSort:
        return self.sort or "time"  # type: ignore[return-value]

    @property
    def best_first(self) -> bool:
        """True if the best matches of a search are first."""
        return bool(self.q) and not self.sort and not self.ascending

    @property
    def shown(self) -> list[Column]:
        """The columns to show."""
        return [COLUMNS[name] for name in self.columns.split(",") if name] or [COLUMNS[name] for name in DEFAULT]

    def address(self, **changes: str) -> str:
        """Return the query string of the filters, with the changes in `changes`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)} | changes
        text = urlencode({name: value for name, value in values.items() if value}, safe=",")
        # Without a query the page opens the default view.
        return f"?{text or 'status='}"

    def alone(self, **values: str) -> str:
        """Return the query string of one filter, with the columns and the threads of evaluations of the list."""
        return Filters(columns=self.columns, evaluations=self.evaluations, **values).address()

    def sorted_by(self, order: str) -> str:
        """Return the query string of this order. The current order is reversed."""
        ascending = "true" if order == self.order and not self.ascending and not self.best_first else ""
        return self.address(sort="" if order == "time" and not self.q else order, ascending=ascending)

    @property
    def default_conditions(self) -> Mapping[str, Any]:
        """The conditions of the list that are not filters of the user. The filter of the kind can select replays."""
        return {} if self.evaluations or self.q or self.status == "person" else DEFAULT_CONDITIONS

    def conditions(self, now: datetime) -> dict[str, Any]:
        """Return the filters for `Store.threads`, without the status `person` and without `default_conditions`."""
        # A chat whose run failed has the status `waiting`. People look for it among the failed ones.
        error = ANY_ERROR if self.status == "failed" and not self.error else self.error
        values: dict[str, Any] = {
            "status": "" if self.status in ("person", "failed") else self.status,
            "agent": self.agent,
            "kind": self.kind,
            "user_id": self.user_id,
            "since": now - timedelta(hours=SPANS[self.since][1]) if self.since else None,
            "model": self.model,
            "tag": [tag.strip() for tag in self.tag.split(",") if tag.strip()],
            "metadata": _metadata(self.metadata),
            "min_cost": _cost(self.min_cost) if self.min_cost else None,
            "error": True if error == ANY_ERROR else error,
            "version": _version(self.version) if self.version else None,
        }
        return {name: value for name, value in values.items() if value not in ("", None, [], {})}


def filters_of(request: Request) -> Filters:
    """Return the filters of the address."""
    return Filters.of(request.query_params, request.query_params.getlist("columns"))


def _cost(text: str) -> float | None:
    try:
        cost = float(text or 0)
    except ValueError:
        return None
    return cost if math.isfinite(cost) and cost >= 0 else None


def _version(text: str) -> int | None:
    return int(text or 0) if not text or (text.isascii() and text.isdigit() and len(text) <= 15) else None


def _metadata(text: str) -> dict[str, str] | None:
    try:
        return parse_metadata([pair for pair in text.split(",") if pair.strip()])
    except Refused:
        return None
