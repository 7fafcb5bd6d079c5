"""Parcels: what a batch says, sorted by traces, before anybody has looked what is there already."""

from collections import Counter
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
    missing: Counter[str] = field(default_factory=Counter[str])
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Spans that could not be kept, and why."""
    further: list[UUID] = field(default_factory=list[UUID])
    """Rows that also stand for spans of which nothing new arrived."""


@dataclass(slots=True)
class Parcel:
    """What a batch says about one trace: pieces as they came, merged among themselves."""

    trace_id: str
    pieces: dict[str, Piece] = field(default_factory=dict[str, Piece])
    again: set[str] = field(default_factory=set[str])
    """Spans to be worked out anew though nothing of them arrived: what did arrive changes what they stand for."""

    def add(self, piece: Piece) -> None:
        known = self.pieces.get(piece["id"])
        self.pieces[piece["id"]] = merge(known, piece) if known else piece

    def recall(self, span_id: str) -> None:
        """Work a span of the record out anew, whatever it says by then."""
        self.pieces.setdefault(span_id, {"id": span_id, "trace_id": self.trace_id})
        self.again.add(span_id)

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
) -> tuple[list[Parcel], list[Attachment | Remark]]:
    """Items by traces, without secrets and what else is to be hidden, and what hangs off them."""
    parcels: dict[str, Parcel] = {}
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
        parcels.setdefault(piece["trace_id"], Parcel(piece["trace_id"])).add(piece)
        outcome.spans.add(piece["id"])
        outcome.traces.add(piece["trace_id"])
    return list(parcels.values()), others


def leave_out(parcels: list[Parcel], outcome: Outcome) -> bool:
    """Leave out the spans that cannot be stored, and name them; whether there were any."""
    before = len(outcome.refused)
    for parcel in parcels:
        for span_id, piece in list(parcel.pieces.items()):
            try:
                codec.dumps(piece)
            except Refused as exc:
                del parcel.pieces[span_id]
                outcome.refused.append((span_id, f"span {span_id}: {_reason(exc)}"))
    parcels[:] = [parcel for parcel in parcels if parcel.pieces]
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
