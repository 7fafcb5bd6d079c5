"""Which threads a list shows: what was asked for in the address, found page by page."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode

from lockstitch.backend import Find, Where
from lockstitch.errors import NotFound
from lockstitch.records import Thread
from lockstitch.server.pages import waiting
from lockstitch.store import Store

PAGE: Final = 50
FOUND: Final = 100
"""Threads that a search gives at most."""

TABS: Final = (
    ("", "All"),
    ("person", "Needs a person"),
    ("running", "Running"),
    ("waiting", "Waiting"),
    ("pending", "Pending"),
    ("failed", "Failed"),
    ("completed", "Completed"),
    ("cancelled", "Cancelled"),
)
KINDS: Final = ("chat", "goal", "task", "trace")
SPANS: Final = {
    "1h": ("Last hour", 1),
    "24h": ("Last 24 hours", 24),
    "7d": ("Last 7 days", 168),
    "30d": ("Last 30 days", 720),
}


@dataclass(frozen=True, slots=True)
class Filters:
    """What was asked for; all empty is everything."""

    status: str = ""
    q: str = ""
    agent: str = ""
    kind: str = ""
    since: str = ""
    user: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Filters":
        """What an address says, as far as it makes sense: whoever writes nonsense there sees everything."""
        values = {name: given.get(name, "").replace("\0", "").strip()[:255] for name in cls.__dataclass_fields__}
        if values["status"] not in dict(TABS):
            values["status"] = ""
        if values["kind"] not in KINDS:
            values["kind"] = ""
        if values["since"] not in SPANS:
            values["since"] = ""
        return cls(**values)

    @property
    def narrowed(self) -> bool:
        """Whether more than a status was asked for."""
        return replace(self, status="") != Filters()

    def address(self, **other: str) -> str:
        """What stands behind the question mark for this, or for this with something changed."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__} | other
        said = urlencode({name: value for name, value in values.items() if value})
        return f"?{said}" if said else ""

    def begin(self, now: datetime) -> datetime | None:
        return now - timedelta(hours=SPANS[self.since][1]) if self.since else None

    def equal(self) -> dict[str, Any]:
        """What the store is asked for besides the time; roots alone, as long as nothing in particular is wanted."""
        values: dict[str, Any] = {"agent": self.agent, "kind": self.kind, "user_id": self.user}
        values["status"] = "" if self.status == "person" else self.status
        asked = {name: value for name, value in values.items() if value}
        return asked or {"depth": 0}

    def fits(self, thread: Thread, now: datetime) -> bool:
        """Whether a thread that was found otherwise is one that was asked for."""
        begin = self.begin(now)
        return (
            (not self.agent or thread.agent == self.agent)
            and (not self.kind or thread.kind == self.kind)
            and (not self.user or thread.user_id == self.user)
            and (begin is None or thread.recent_at >= begin)
            and (not self.status or thread.status == self.status or self.status == "person")
        )


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of a list: those that wait for a person, longest first, and the others, latest first."""

    needing: list[Thread]
    others: list[Thread]
    more: bool
    """Whether there are older ones."""


async def listed(store: Store, filters: Filters, *, after: str = "") -> Listed:
    """The page after a thread, or the first."""
    now = store.clock.now()
    if filters.q:
        found = [thread for thread in await _searched(store, filters.q) if filters.fits(thread, now)]
        wanting = [thread for thread in found if waiting.person_waits_of(thread)]
        if filters.status == "person":
            return Listed(wanting, [], more=False)
        return Listed(wanting, [thread for thread in found if thread not in wanting], more=False)
    needing: list[Thread] = []
    if not after and filters.status in ("", "person", "waiting"):
        needing = [thread for thread in (await waiting.needing(store))[0] if filters.fits(thread, now)]
    if filters.status == "person":
        return Listed(needing, [], more=False)
    last = await store.thread(after) if after else None
    found = await store.threads(limit=PAGE + 1, after=last, since=filters.begin(now), **filters.equal())
    # Those that wait for a person stand above, wherever they would have come.
    others = [
        thread
        for thread in found[:PAGE]
        if not waiting.person_waits_of(thread) or filters.status not in ("", "waiting")
    ]
    return Listed(needing, others, more=len(found) > PAGE)


async def _searched(store: Store, text: str) -> list[Thread]:
    """The threads that a text names or that its words stand in, the best first."""
    try:
        named = [await store.thread(text)]
    except NotFound:
        named = []
    hits = await store.search(text, limit=FOUND)
    wanted = list(dict.fromkeys(hit.thread_id for hit in hits))
    where = (Where("id", "in", wanted), Where("project", "=", store.project))
    known = {thread.id: thread for thread in await store.backend.find(Find(Thread, where))} if wanted else {}
    found = [known[one] for one in wanted if one in known]
    return [*named, *(thread for thread in found if thread not in named)]
