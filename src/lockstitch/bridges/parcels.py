"""Parcels: what a batch says, sorted by traces, before anybody has looked what is there already."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from lockstitch.bridges.redaction import redact
from lockstitch.bridges.span import Attachment, Item, Piece, Remark, is_root, merge
from lockstitch.errors import Refused
from lockstitch.records import Stitch, codec


@dataclass(slots=True)
class Outcome:
    """What a batch was: every row that stands for one of its spans afterwards, and what could not be kept."""

    rows: list[Stitch] = field(default_factory=list[Stitch])
    traces: set[str] = field(default_factory=set[str])
    spans: set[str] = field(default_factory=set[str])
    missing: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Spans of the batch, and the fields that one would expect of each and that it does not have."""
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Spans that could not be kept, and why."""
    further: list[UUID] = field(default_factory=list[UUID])
    """Rows that also stand for spans of which nothing new arrived."""
    dissolved: set[UUID] = field(default_factory=set[UUID])
    """Threads whose rows were written again, in this batch, in the threads that they belong to."""
    gone: set[str] = field(default_factory=set[str])
    """Traces that were merged into other traces."""

    def add(self, written: "Outcome") -> None:
        """Add what one commit wrote. It replaces all rows of the threads that it dissolved."""
        self.rows = [row for row in self.rows if row.thread_id not in written.dissolved] + written.rows
        self.missing.update(written.missing)
        self.dissolved |= written.dissolved
        self.gone |= written.gone
        self.traces = (self.traces - written.gone) | written.traces


@dataclass(slots=True)
class Batch:
    """The spans that one commit is about, before they are sorted into traces."""

    pieces: dict[str, Piece] = field(default_factory=dict[str, Piece])
    """The new fields of each span, by the id of the span."""
    again: set[str] = field(default_factory=set[str])
    """Spans of the record to work out again although nothing of them arrived."""
    absorbed: set[str] = field(default_factory=set[str])
    """Traces that are named after a span which belongs to another trace. They are to be merged into that one."""
    seen: object = None
    """The fences that the last attempt read. An equal value means that no other writer changed the traces."""

    def add(self, piece: Piece) -> None:
        known = self.pieces.get(piece["id"])
        self.pieces[piece["id"]] = merge(known, piece) if known else piece


@dataclass(slots=True)
class Parcel:
    """The spans of one trace in a batch."""

    trace_id: str
    pieces: dict[str, Piece] = field(default_factory=dict[str, Piece])
    again: set[str] = field(default_factory=set[str])
    """Stored spans whose meaning is computed again, because other spans of the batch change it."""

    @property
    def conversation(self) -> str | None:
        """The conversation that the trace belongs to: what its root says, else its first span that says anything."""
        said = [piece for piece in self.pieces.values() if piece.get("thread_id")]
        root = [piece for piece in said if is_root(piece)]
        return (root or said)[0].get("thread_id") if said else None

    @property
    def name(self) -> str:
        """What its thread is called in the words of its source."""
        return self.conversation or self.trace_id


def sort(
    items: Iterable[Item], outcome: Outcome, *, keep_secrets: bool, hide: frozenset[str] = frozenset()
) -> tuple[Batch, list[Attachment | Remark]]:
    """Sort items by spans. Remove secrets and other hidden values. Return attachments and feedback separately."""
    batch = Batch()
    others: list[Attachment | Remark] = []
    for item in items:
        if isinstance(item, Attachment | Remark):
            others.append(item)
            continue
        try:
            piece = _admitted(item, keep_secrets, hide)
        except (Refused, RecursionError, KeyError) as exc:
            outcome.refused.append((item.get("id", ""), f"span {item.get('id', '?')}: {_reason(exc)}"))
            continue
        batch.add(piece)
        outcome.spans.add(piece["id"])
    return batch, others


def leave_out(batch: Batch, outcome: Outcome) -> bool:
    """Remove the spans that cannot be stored from a batch, and name them. True if there were any."""
    before = len(outcome.refused)
    for span_id, piece in list(batch.pieces.items()):
        try:
            codec.dumps(piece)
        except Refused as exc:
            del batch.pieces[span_id]
            outcome.refused.append((span_id, f"span {span_id}: {_reason(exc)}"))
    return len(outcome.refused) > before


def _admitted(piece: Piece, keep_secrets: bool, hide: frozenset[str]) -> Piece:
    if not piece["id"] or not piece["trace_id"]:
        raise Refused("it has no id")
    if keep_secrets:
        return piece
    hidden = {bag: redact(piece.get(bag), hide) for bag in ("metadata", "extra") if bag in piece}
    return cast("Piece", {**piece, **hidden})


def _reason(exc: BaseException) -> str:
    if isinstance(exc, RecursionError):
        return "it is nested too deeply"
    return f"it has no {exc}" if isinstance(exc, KeyError) else str(exc)
