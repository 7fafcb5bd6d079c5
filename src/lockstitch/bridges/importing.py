"""Importing: files of another system's traces, batch by batch, into the record, and the report of it.

Memory does not grow with the file: what is read is written at once, and only the hashes of what was seen are kept, to
count everything once however often it comes.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

from lockstitch.bridges.ingest import Ingest
from lockstitch.bridges.parcels import Outcome
from lockstitch.bridges.span import Attachment, Bridge, Item, Piece, Remark, is_root
from lockstitch.errors import LockstitchError
from lockstitch.records import Json, codec
from lockstitch.store import Store

BATCH: Final = 2_000
"""Spans that one commit carries at most."""

BATCH_BYTES: Final = 8 * 1024 * 1024
"""Bytes of content that one commit carries, unless one span alone has more."""


OnBad = Callable[[LockstitchError], None]
"""Is told of a part that cannot be read, where what follows it can."""


class Source(NamedTuple):
    """Something to read: its name, as people know it, and how its items are come by."""

    name: str
    items: Callable[[OnBad], Iterator[Item]]


@dataclass(slots=True)
class Report:
    """What was imported. The same files give the same figures, however often they are imported."""

    skipped: list[Json] = field(default_factory=list[Json])
    missing: Counter[str] = field(default_factory=Counter[str])
    files: int = 0
    bad_files: set[str] = field(default_factory=set[str])
    removed: int = 0
    _traces: set[int] = field(default_factory=set[int])
    _spans: set[int] = field(default_factory=set[int])
    _model_calls: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    """Tokens, and how many tools each asked for, by its place."""
    _tool_calls: dict[int, int | None] = field(default_factory=dict[int, "int | None"])
    """The places of the responses that asked for them."""

    @property
    def traces(self) -> int:
        return len(self._traces)

    @property
    def spans(self) -> int:
        return len(self._spans)

    def add(self, outcome: Outcome) -> None:
        self._traces.update(map(_hash, outcome.traces))
        self._spans.update(map(_hash, outcome.spans))
        self.missing.update(outcome.missing)
        for row in outcome.rows:
            place = hash((row.thread_id, row.position))
            self._tool_calls.pop(place, None)
            self._model_calls.pop(place, None)
            if row.type == "llm_call":
                self._model_calls[place] = (row.input_tokens or 0) + (row.output_tokens or 0), row.calls or 0
            elif row.type == "tool_call":
                self._tool_calls[place] = hash((row.thread_id, row.reply_to)) if row.reply_to else None

    def _asked_or_run(self) -> int:
        """Tool calls: what the model calls asked for, with or without a span of its own, and what nobody here did."""
        asked = sum(calls for _, calls in self._model_calls.values())
        return asked + sum(asker not in self._model_calls for asker in self._tool_calls.values())

    def saw(self, span_id: str) -> bool:
        return _hash(span_id) in self._spans

    def as_json(self) -> Json:
        return {
            "traces": self.traces,
            "runs": self.spans,
            "llm_calls": len(self._model_calls),
            "tool_calls": self._asked_or_run(),
            "tokens": sum(tokens for tokens, _ in self._model_calls.values()),
            "skipped": self.skipped,
            "missing": dict(sorted(self.missing.items())),
        }


Progress = Callable[[Report, str], None]


class Importing:
    """One import: what is read through a bridge's reader goes into one project of a store."""

    def __init__(
        self,
        store: Store,
        bridge: Bridge,
        *,
        replace: bool = False,
        keep_secrets: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._ingest = Ingest(store, bridge, keep_secrets=keep_secrets)
        self._replace = replace
        self._progress = progress
        self._report = Report()
        self._whole: dict[str, set[str]] = {}
        """Traces whose root lists everything below it."""

    async def run(self, sources: Iterator[Source]) -> Report:
        """Read everything, write it, and say what it was. What cannot be read is named and left out."""
        traces: set[str] = set()
        async for batch, files in self._batches(sources):
            outcome = await self._ingest.take(batch)
            self._report.add(outcome)
            if self._replace:
                traces |= outcome.traces
            for span_id, why in outcome.refused:
                self._report.skipped.append({"file": files.get(span_id, ""), "why": why})
            if self._progress is not None:
                self._progress(self._report, next(reversed(files.values()), ""))
        for trace_id in sorted(traces | self._whole.keys()):
            keep = self._report.saw if self._replace else self._whole[trace_id].__contains__
            self._report.removed += await self._ingest.drop_others(trace_id, keep)
        return self._report

    async def _batches(self, sources: Iterator[Source]) -> AsyncIterator[tuple[list[Item], dict[str, str]]]:
        """Items in the order in which they come, with the file that each span came from."""
        batch: list[Item] = []
        files: dict[str, str] = {}
        size = 0
        for source in sources:
            self._report.files += 1
            items = source.items(partial(self._skip, source))
            while True:
                try:
                    item = next(items)
                except StopIteration:
                    break
                except (LockstitchError, OSError) as exc:
                    self._skip(source, exc)
                    break
                batch.append(item)
                size += _size(item)
                files[_name(item)] = source.name
                self._note_children(item)
                if len(batch) >= BATCH or size >= BATCH_BYTES:
                    yield batch, files
                    batch, files, size = [], {}, 0
        if batch:
            yield batch, files

    def _skip(self, source: Source, why: Exception) -> None:
        self._report.bad_files.add(source.name)
        self._report.skipped.append({"file": source.name, "why": str(why)})

    def _note_children(self, item: Item) -> None:
        """A root that lists its children was given whole: what is not listed is no part of the trace any more."""
        if isinstance(item, Attachment | Remark) or not item.get("children") or not is_root(item):
            return
        self._whole.setdefault(item["trace_id"], {item["id"]}).update(item.get("children") or ())


def _name(item: Item) -> str:
    if isinstance(item, Attachment | Remark):
        return item.span_id or ""
    return item["id"]


def _size(item: Item) -> int:
    if isinstance(item, Attachment):
        return len(item.content)
    return 200 if isinstance(item, Remark) else _weight(item)


def _weight(piece: Piece) -> int:
    try:
        return len(codec.dumps(piece))
    except LockstitchError:
        return 0


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(errors="replace"), digest_size=8).digest(), "big")
