"""`Transcript`: the items of a session, computed from the log of its thread.

It reads a part of the log only when it is needed: stitches after the last one that it has, and earlier ones as far as
a limit requires. A compaction removes items. It names the stitches that stay, so the context of the thread and the
items are always the same messages.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple, cast

from lockstitch.integrations.openai_agents.items import (
    ABOUT,
    about,
    items_of_messages,
    items_of_stitch,
    messages_of,
)
from lockstitch.model import Entry, Json, Stitch, Thread, codec
from lockstitch.model.context import kept_positions, replaces_context
from lockstitch.store import Store

_WINDOW: Final = 64
"""Minimum number of stitches that are read at once."""


class Item(NamedTuple):
    """An item as JSON text, the position of its stitch, and its number among the items of that stitch."""

    position: int
    number: int
    text: bytes


class Transcript:
    """The items of one thread, up to a position of its log."""

    def __init__(self, head: Thread) -> None:
        self.head = head
        """The thread at the end of the part that was read."""
        self.items: list[Item] = []
        """The last items. There may be earlier ones, see `complete`."""
        self._first = head.position + 1
        """All items at this position and after it are loaded."""
        self._sizes: dict[int, int] = {}
        """Number of items of each loaded stitch."""
        self._replaced: dict[int, Any] = {}
        """Messages that compactions put in the place of a stitch."""
        self._exact: dict[int, list[Json]] = {}
        """Items in the place of those of a stitch."""
        self._cut: Stitch | None = None
        """The stitch at which the context starts, if it was read."""

    @property
    def complete(self) -> bool:
        """True if all items are loaded."""
        return self._first <= 1 or (self._cut is not None and not self._kept_before())

    @property
    def last_position(self) -> int:
        """Position of the last item, or 0 if no item is loaded."""
        return self.items[-1].position if self.items else 0

    async def update(self, store: Store, head: Thread) -> None:
        """Read what was appended since the last call."""
        if head.position > self.head.position:
            self.add(head, await store.stitches(head, self.head.position + 1, head.position))
        self.head = head

    def add(self, head: Thread, stitches: Iterable[Stitch]) -> None:
        """Add the stitches that follow. `head` is the thread after them."""
        for stitch in stitches:
            if replaces_context(stitch):
                self._apply(stitch)
            self.items += self._items_of(stitch)
        self.head = head

    async def load(self, store: Store, limit: int | None) -> None:
        """Read earlier items until there are `limit` of them. None: all."""
        window = _WINDOW if limit is None else max(_WINDOW, 2 * limit)
        while not self.complete and (limit is None or len(self.items) < limit):
            start = max(self.head.context_from, 1)
            if self._first > start:
                first = start if limit is None else max(start, self._first - window)
                stitches = await store.stitches(self.head, first, self._first - 1)
                self._first = first
                if stitches and stitches[0].position == start and replaces_context(stitches[0]):
                    self._cut = stitches[0]
                    self._take_replacements(stitches[0])
                earlier = [item for stitch in stitches for item in self._items_of(stitch)]
            else:
                earlier = await self._load_kept(store, window if limit is not None else None)
            self.items[:0] = earlier
            window *= 2 if earlier else 1

    async def _load_kept(self, store: Store, window: int | None) -> list[Item]:
        """Read the stitches before the cut that it keeps: the last ones, or all."""
        earlier: list[Item] = []
        for first, last in reversed(self._kept_before()):
            if window is not None:
                first = max(first, last - window + 1)
            stitches = await store.stitches(self.head, first, last)
            earlier[:0] = [item for stitch in stitches for item in self._items_of(stitch)]
            self._first = first
            if window is not None:
                return earlier
        self._first = 1
        return earlier

    def _kept_before(self) -> list[tuple[int, int]]:
        """Return the ranges that the cut keeps and that are not loaded."""
        if self._cut is None:
            return [(1, self._first - 1)]
        ranges = [] if self._cut.type == "fork" else kept_positions(self._cut)
        ranges += [(position, position) for position in self._replaced]
        return sorted((first, min(last, self._first - 1)) for first, last in ranges if first < self._first)

    def _apply(self, cut: Stitch) -> None:
        """Remove the items that a compaction or a fork does not keep."""
        self._cut = cut
        ranges = [] if cut.type == "fork" else kept_positions(cut)
        self._take_replacements(cut)
        whole = [
            item
            for item in self.items
            if item.position not in self._replaced and any(first <= item.position <= last for first, last in ranges)
        ]
        replaced = [item for position in self._replaced if position >= self._first for item in self._items_at(position)]
        self.items = sorted([*whole, *replaced])

    def _take_replacements(self, cut: Stitch) -> None:
        replaced = cast("Json", cut.data.get("replace") or {})
        exact = cast("Json", about(cut).get("items") or {}) if cut.type == "compaction" else {}
        self._replaced = {int(position): message for position, message in replaced.items()}
        self._exact = {int(position): items for position, items in exact.items()}

    def _items_of(self, stitch: Stitch) -> list[Item]:
        if stitch.position in self._replaced:
            return self._items_at(stitch.position)
        if stitch.type == "compaction":
            return []
        return self._texts(stitch.position, items_of_stitch(stitch))

    def _items_at(self, position: int) -> list[Item]:
        """Return the items in the place of those of a stitch."""
        items = self._exact.get(position)
        return self._texts(position, items_of_messages(self._replaced[position]) if items is None else items)

    def _texts(self, position: int, items: Sequence[Json]) -> list[Item]:
        self._sizes[position] = len(items)
        return [Item(position, number, codec.dumps(item)) for number, item in enumerate(items)]

    def compaction(self, reason: str, kept: Sequence[Item], new: Sequence[Json] = ()) -> Entry:
        """Return the entry that removes all items but these. All items must be loaded.

        `new` items come after them, in the place of the first item that is removed after them.
        """
        by_position: dict[int, list[Item]] = {}
        for item in kept:
            by_position.setdefault(item.position, []).append(item)
        ranges: list[list[int]] = []
        replaced: Json = {}
        exact: dict[int, list[Json]] = {}
        for position, items in by_position.items():
            if len(items) < self._sizes[position]:
                # Only a part of the stitch stays.
                exact[position] = values(items)
            elif position in self._replaced:
                replaced[str(position)] = self._replaced[position]
                if position in self._exact:
                    exact[position] = self._exact[position]
            elif ranges and ranges[-1][1] == position - 1:
                ranges[-1][1] = position
            else:
                ranges.append([position, position])
        if new:
            last = kept[-1] if kept else None
            first_removed = next(item for item in self.items if last is None or item > last)
            exact[first_removed.position] = [*exact.get(first_removed.position, ()), *new]
        replaced |= {str(position): messages_of(items) for position, items in exact.items()}
        data: Json = {"applied": True, "reason": reason, "keep": ranges, "replace": replaced}
        own: Json = {ABOUT: {"items": {str(position): items for position, items in exact.items()}}} if exact else {}
        return Entry(type="compaction", data=data | own)


def values(items: Sequence[Item]) -> list[Json]:
    """Return new objects of items."""
    return codec.loads(b"[" + b",".join([item.text for item in items]) + b"]")


def without_calls(items: Sequence[Item], calls: Collection[str]) -> list[Item]:
    """Return the items without these calls, and without the rest of a response that has no other calls."""
    call_ids = {item: codec.loads(item.text).get("call_id") for item in items if b'"call_id"' in item.text}
    positions = {item.position for item, call_id in call_ids.items() if call_id in calls}
    others = {item.position for item, call_id in call_ids.items() if call_id not in calls}
    return [
        item
        for item in items
        if item.position not in positions or (item.position in others and call_ids.get(item) not in calls)
    ]
