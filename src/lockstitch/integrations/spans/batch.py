"""A batch sorted by trace; redaction of secrets.

It looks at metadata, and at what else a client says about its surroundings, never at what was said to a model: that is
the customer's content. A value goes when its key says so or when it looks like a credential itself. Both lists are in
docs/reference/redaction.md, and a test keeps the two together.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, cast
from uuid import UUID

from lockstitch.errors import Refused
from lockstitch.integrations.spans.span import Attachment, Item, SpanData, SpanFeedback, is_root, merge
from lockstitch.model import Stitch, codec

REDACTED: Final = "[redacted]"

KEYS: Final = (
    r"api[-_]?key",
    r"secret",
    r"passw(or)?d",
    r"passphrase",
    r"credential",
    r"authorization",
    r"cookie",
    r"private[-_]?key",
    r"access[-_]?key",
    r"(access|auth|bearer|refresh|id|session|api|csrf)[-_]?token$",
    r"^token$",
    r"^auth$",
    r"connection[-_]?string",
    r"^dsn$",
    r"(database|db|redis|broker)[-_]?ur[il]$",
    r"(?-i:^(LANGSMITH|LANGCHAIN)_)",
)
"""Names whose values go, wherever in the name they match; case matters in variables of the environment alone."""

VALUES: Final = (
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\bsk_(live|test)_[A-Za-z0-9]{16,}",
    r"\bls(v2)?__?(pt|sk)?_[A-Za-z0-9_]{16,}",
    r"\b(ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}",
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\bglpat-[A-Za-z0-9_-]{16,}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"\bhf_[A-Za-z0-9]{20,}",
    r"\b(AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bAIza[0-9A-Za-z_-]{30,}",
    # Looks ahead for the three parts first: a text of many `eyJ` would otherwise be read to its end from each of them.
    r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,})(?:[A-Za-z0-9_]*-)*?eyJ[A-Za-z0-9_-]{8,}\.",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    r"\b[a-z][a-z0-9+.-]{0,30}://[^/\s:@]{0,300}:[^/\s@]{1,300}@",
    r"(?i)\bbearer\s+[A-Za-z0-9._~+/-]{16,}",
)
"""Values that go whole, whatever their name."""

_KEY = re.compile("|".join(f"(?:{pattern})" for pattern in KEYS), re.IGNORECASE)
_VALUE = re.compile("|".join(f"(?:{pattern})" for pattern in VALUES if not pattern.startswith("(?i)")))
_BEARER = re.compile(next(pattern for pattern in VALUES if pattern.startswith("(?i)")))
_LONGEST: Final = 20_000
"""Characters of a value that are looked at: credentials are short, and stand near the beginning."""
_LONGEST_NAME: Final = 1_000
"""Characters of a name that are looked at. Of a longer name its beginning and its end are."""
_LONG: Final = 1_000
"""Characters of a long value. `pause` is called after each of them."""
_WINDOW: Final = 1 << 16
"""Characters of a long text that are searched at once. A search lets no other thread run."""


def no_pause() -> None:
    """For values that are small, or that a user imports."""


def redact(value: Any, names: frozenset[str] = frozenset(), pause: Callable[[], None] = no_pause) -> Any:
    """The same bag without what looks like a secret; the very same object where there is nothing to hide.

    `names` are further names, in small letters, whose values are always removed. `pause` is called after each long
    text, and may raise to stop the work.
    """
    if isinstance(value, dict):
        bag = cast("dict[str, Any]", value)
        changed = {key: new for key, old in bag.items() if (new := _entry(key, old, names, pause)) is not old}
        return {**bag, **changed} if changed else bag
    if isinstance(value, list):
        items = cast("list[Any]", value)
        new_items = [redact(item, names, pause) for item in items]
        return new_items if any(new is not old for new, old in zip(new_items, items, strict=True)) else items
    if isinstance(value, str) and len(value) >= 8:
        if len(value) >= _LONG:
            pause()
        return REDACTED if _looks_secret(value) else value
    return value


_SIGNS: Final[tuple[tuple[bytes, bytes], ...]] = (
    *((b"sk-", b""), (b"sk_", b"sk_(live|test)_"), (b"ls_", b"ls_(_|pt_|sk_)"), (b"lsv2_", b""), (b"_pat_", b"")),
    *((b"gh", b"gh[pousr]_"), (b"glpat-", b""), (b"xox", b""), (b"hf_", b""), (b"AKIA", b""), (b"ASIA", b"")),
    *((b"AIza", b""), (b"eyJ", b""), (b"PRIVATE KEY-----", b""), (b"://", rb"://[^/\s@]{1,700}@")),
    *(
        (b"LANGSMITH_", b""),
        (b"LANGCHAIN_", b""),
        (b"\\u00", rb"\\u00[2-7]"),
        (b"\\u017", b""),
        (b"\\u212", b""),
        (b"\xc5\xbf", b""),
        (b"\xe2\x84\xaa", b""),
    ),
)
"""Texts of which content has one if it has a value that VALUES matches, each with a pattern that makes sure.

The last ones are letters of the alphabet as JSON may escape them, and two others that count as `s` and `k`.
"""

_SMALL_SIGNS: Final[tuple[tuple[bytes, bytes], ...]] = (
    *((b"api", b"api[-_]?key"), (b"private", b"private[-_]?key"), (b"access", b"access[-_]?key"), (b"secret", b"")),
    *((b"passw", b""), (b"passphrase", b""), (b"credential", b""), (b"authorization", b""), (b"cookie", b"")),
    *((b"string", b"connection[-_]?string"), (b"bearer", b"")),
    *((word, rb"(database|db|redis|broker)[-_]?" + word) for word in (b"uri", b"url")),
    *((word, word + rb"(?![a-z0-9_.-])") for word in (b"token", b"auth", b"dsn")),
)
"""The same for KEYS, in small letters. A name that must end with a word is followed by no other sign of a name."""

_MAKE_SURE: Final = {sure: re.compile(sure) for _, sure in (*_SIGNS, *_SMALL_SIGNS) if sure}


_LONGEST_SIGN: Final = 1_000
"""Bytes of the longest text that a pattern of a sign matches."""


def may_hide(content: bytes, names: frozenset[str] = frozenset(), pause: Callable[[], None] = no_pause) -> bool:
    """True if bytes may contain a value that `redact` hides. False is certain, and much faster than looking.

    The content is JSON or protobuf that is not packed. `pause` is called again and again, and may raise.
    """
    small = content.lower()
    names_in_it = any(name.encode() in small for name in names)
    return names_in_it or _has_sign(content, _SIGNS, pause) or _has_sign(small, _SMALL_SIGNS, pause)


def _has_sign(content: bytes, signs: tuple[tuple[bytes, bytes], ...], pause: Callable[[], None]) -> bool:
    return any(text in content and (not sure or _is_sure(content, sure, pause)) for text, sure in signs)


def _is_sure(content: bytes, sure: bytes, pause: Callable[[], None]) -> bool:
    pattern = _MAKE_SURE[sure]
    for start in range(0, len(content), _WINDOW):
        pause()
        if pattern.search(content, start, start + _WINDOW + _LONGEST_SIGN):
            return True
    return False


def without_credentials(content: bytes, pause: Callable[[], None] = no_pause) -> bytes:
    """Return bytes in which texts that look like credentials are replaced; the very same if there are none.

    For content that cannot be read, so that the names of its values are unknown. `pause` is called again
    and again, and may raise.
    """
    text = content.decode("latin-1")
    for pattern in (_VALUE, _BEARER):
        text = REDACTED.join(_between(pattern, text, pause))
    new = text.encode("latin-1")
    return content if new == content else new


def _between(pattern: re.Pattern[str], text: str, pause: Callable[[], None]) -> Iterator[str]:
    """Yield the texts between the matches of a pattern. Credentials of up to `_LONGEST` characters are found."""
    done = start = 0
    while start < len(text):
        pause()
        end = start + _WINDOW
        match = pattern.search(text, start, end + _LONGEST)
        if match is None or match.start() >= end:
            start = end
            continue
        if match.end() == end + _LONGEST:
            # It may continue after the window.
            match = pattern.match(text, match.start()) or match
        yield text[done : match.start()]
        done = start = match.end()
    yield text[done:]


def _entry(key: str, value: Any, names: frozenset[str], pause: Callable[[], None]) -> Any:
    if names and key.lower() in names and value is not None:
        return value if value == REDACTED else REDACTED
    if _secret_name(_looked_at(key)) and value not in (None, "", False, True) and not isinstance(value, int | float):
        return value if value == REDACTED else REDACTED
    return redact(value, names, pause)


def _looked_at(name: str) -> str:
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}{name[-half:]}"


@lru_cache(maxsize=10_000)
def _secret_name(key: str) -> bool:
    """Remembered, since names come again with every span."""
    return _KEY.search(key) is not None


def _looks_secret(text: str) -> bool:
    seen = text[:_LONGEST]
    return _VALUE.search(seen) is not None or _BEARER.search(seen) is not None


@dataclass(slots=True)
class BatchOutcome:
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

    def add(self, written: "BatchOutcome") -> None:
        """Add what one commit wrote. It replaces all rows of the threads that it dissolved."""
        self.rows = [row for row in self.rows if row.thread_id not in written.dissolved] + written.rows
        self.missing.update(written.missing)
        self.dissolved |= written.dissolved
        self.gone |= written.gone
        self.traces = (self.traces - written.gone) | written.traces


@dataclass(slots=True)
class Batch:
    """The spans that one commit is about, before they are sorted into traces."""

    pieces: dict[str, SpanData] = field(default_factory=dict[str, SpanData])
    """The new fields of each span, by the id of the span."""
    again: set[str] = field(default_factory=set[str])
    """Spans of the record to work out again although nothing of them arrived."""
    absorbed: set[str] = field(default_factory=set[str])
    """Traces that are named after a span which belongs to another trace. They are to be merged into that one."""
    seen: object = None
    """The fences that the last attempt read. An equal value means that no other writer changed the traces."""

    def add(self, piece: SpanData) -> None:
        known = self.pieces.get(piece["id"])
        self.pieces[piece["id"]] = merge(known, piece) if known else piece


@dataclass(slots=True)
class TraceBatch:
    """The spans of one trace in a batch."""

    trace_id: str
    pieces: dict[str, SpanData] = field(default_factory=dict[str, SpanData])
    recompute: set[str] = field(default_factory=set[str])
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
    items: Iterable[Item], outcome: BatchOutcome, *, keep_secrets: bool, hide: frozenset[str] = frozenset()
) -> tuple[Batch, list[Attachment | SpanFeedback]]:
    """Sort items by spans. Remove secrets and other hidden values. Return attachments and feedback separately."""
    batch = Batch()
    others: list[Attachment | SpanFeedback] = []
    for item in items:
        if isinstance(item, Attachment | SpanFeedback):
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


def leave_out(batch: Batch, outcome: BatchOutcome) -> bool:
    """Remove the spans that cannot be stored from a batch, and name them. True if there were any."""
    before = len(outcome.refused)
    for span_id, piece in list(batch.pieces.items()):
        try:
            codec.dumps(piece)
        except Refused as exc:
            del batch.pieces[span_id]
            outcome.refused.append((span_id, f"span {span_id}: {_reason(exc)}"))
    return len(outcome.refused) > before


def _admitted(piece: SpanData, keep_secrets: bool, hide: frozenset[str]) -> SpanData:
    if not piece["id"] or not piece["trace_id"]:
        raise Refused("it has no id")
    if keep_secrets:
        return piece
    hidden = {bag: redact(piece.get(bag), hide) for bag in ("metadata", "extra") if bag in piece}
    return cast("SpanData", {**piece, **hidden})


def _reason(exc: BaseException) -> str:
    if isinstance(exc, RecursionError):
        return "it is nested too deeply"
    return f"it has no {exc}" if isinstance(exc, KeyError) else str(exc)
