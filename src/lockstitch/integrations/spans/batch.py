"""`Batch`: the items of a commit grouped by span, after redaction of secrets.

Redaction covers metadata and other information about the client. It never covers model inputs and outputs, which are
the customer's content. A value is redacted if its key matches `KEYS` or if it matches `VALUES`. Both lists are in
docs/reference/redaction.md, and a test compares them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple, Self, cast
from uuid import UUID

from lockstitch.errors import Refused
from lockstitch.integrations.spans.span import Attachment, Item, SpanData, SpanFeedback, is_root, merge
from lockstitch.model import codec
from lockstitch.model.record import new_dict, new_list, new_set

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
"""Patterns for names. Their values are redacted. Case matters only in names of environment variables."""

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
    # Looks ahead for the three parts first. Otherwise a text with many `eyJ` would be read to its end from each of
    # them.
    r"(?<![A-Za-z0-9_-])(?=[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,})(?:[A-Za-z0-9_]*-)*?eyJ[A-Za-z0-9_-]{8,}\.",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    r"\b[a-z][a-z0-9+.-]{0,30}://[^/\s:@]{0,300}:[^/\s@]{1,300}@",
    r"(?i)\bbearer\s+[A-Za-z0-9._~+/-]{16,}",
)
"""Patterns for values. A matching value is redacted completely, for any name."""

_KEY = re.compile("|".join(f"(?:{pattern})" for pattern in KEYS), re.IGNORECASE)
_VALUE = re.compile("|".join(f"(?:{pattern})" for pattern in VALUES if not pattern.startswith("(?i)")))
_BEARER = re.compile(next(pattern for pattern in VALUES if pattern.startswith("(?i)")))
_LONGEST: Final = 20_000
"""Maximum characters of a value that are searched. Credentials are short and come near the start."""
_LONGEST_NAME: Final = 1_000
"""Maximum characters of a name that are searched. Of a longer name, the start and the end are searched."""
_LONG: Final = 1_000
"""Minimum characters of a long value. `pause` is called before each of them."""
_REPEATED: Final = 100
"""Maximum characters of a value that is searched once while it repeats: names of models, services and users."""
_WINDOW: Final = 1 << 16
"""Characters of a long text that are searched at once. A search lets no other thread run."""


def no_pause() -> None:
    """Do nothing. For small values, and for files that a user imports."""


def redact(value: Any, names: frozenset[str] = frozenset(), pause: Callable[[], None] = no_pause) -> Any:
    """Return the value with secrets replaced. Return the same object if there are none.

    `names` are further names in lower case. Their values are always redacted. `pause` is called before each long text
    and may raise to stop the work.
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
        if len(value) < _REPEATED:
            return REDACTED if _is_secret_entry("", value) else value
        if len(value) >= _LONG:
            pause()
        return REDACTED if _looks_secret(value) else value
    return value


_VALUE_SIGNS: Final[tuple[tuple[bytes, bytes], ...]] = (
    *((b"sk-", b""), (b"sk_", b"sk_(live|test)_"), (b"ls_", b"ls_(_|pt_|sk_)"), (b"lsv2_", b""), (b"_pat_", b"")),
    *((b"gh", b"gh[pousr]_"), (b"glpat-", b""), (b"xox", b""), (b"hf_", b""), (b"AKIA", b""), (b"ASIA", b"")),
    *((b"AIza", b""), (b"eyJ", b""), (b"PRIVATE KEY-----", b""), (b"://", rb"://[^/\s@]{1,700}@")),
)
"""Texts that a value contains if it matches VALUES, each with a pattern that confirms the match."""

_SIGNS: Final[tuple[tuple[bytes, bytes], ...]] = (
    *_VALUE_SIGNS,
    *((b"LANGSMITH_", b""), (b"LANGCHAIN_", b""), (b"\\u00", rb"\\u00[2-7]"), (b"\\u017", b""), (b"\\u212", b"")),
    *((b"\xc5\xbf", b""), (b"\xe2\x84\xaa", b"")),
)
"""The same for content, and names in upper case.

The last entries are characters that JSON may escape, and two other characters that match `s` and `k`.
"""

_SMALL_SIGNS: Final[tuple[tuple[bytes, bytes], ...]] = (
    *((b"api", b"api[-_]?key"), (b"private", b"private[-_]?key"), (b"access", b"access[-_]?key"), (b"secret", b"")),
    *((b"passw", b""), (b"passphrase", b""), (b"credential", b""), (b"authorization", b""), (b"cookie", b"")),
    *((b"string", b"connection[-_]?string"), (b"bearer", b"")),
    *((word, rb"(database|db|redis|broker)[-_]?" + word) for word in (b"uri", b"url")),
    *((word, word + rb"(?![a-z0-9_.-])") for word in (b"token", b"auth", b"dsn")),
)
"""The same for KEYS, in lower case. A name that must end with a word is followed by no other character of a name."""

_MAKE_SURE: Final = {sure: re.compile(sure) for _, sure in (*_SIGNS, *_SMALL_SIGNS) if sure}


_LONGEST_SIGN: Final = 1_000
"""Bytes of the longest text that a confirming pattern matches."""


def may_hide(content: bytes, names: frozenset[str] = frozenset(), pause: Callable[[], None] = no_pause) -> bool:
    """True if content may contain a value that `redact` replaces. False is certain, and much faster than `redact`.

    The content is uncompressed JSON or protobuf. `pause` is called repeatedly and may raise.
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
    """Return content with texts replaced that look like credentials. Return the same object if there are none.

    For content that cannot be parsed, so that the names of its values are unknown. `pause` is called repeatedly and may
    raise.
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
            # The credential may continue after the window.
            match = pattern.match(text, match.start()) or match
        yield text[done : match.start()]
        done = start = match.end()
    yield text[done:]


def _entry(key: str, value: Any, names: frozenset[str], pause: Callable[[], None]) -> Any:
    if type(value) is str and not names and len(value) < _REPEATED and len(key) <= _LONGEST_NAME:
        return REDACTED if _is_secret_entry(key, value) else value
    if names and key.lower() in names and value is not None:
        return value if value == REDACTED else REDACTED
    if value is None or isinstance(value, int | float):
        return value
    searched = key if len(key) <= _LONGEST_NAME else key[: _LONGEST_NAME // 2] + key[-_LONGEST_NAME // 2 :]
    if _is_secret_name(searched) and value != "":
        return value if value == REDACTED else REDACTED
    return redact(value, names, pause)


@lru_cache(maxsize=10_000)
def _is_secret_name(key: str) -> bool:
    """Cached, because names repeat with every span."""
    return _KEY.search(key) is not None


@lru_cache(maxsize=20_000)
def _is_secret_entry(key: str, text: str) -> bool:
    """Cached, because the names of models, services and users repeat."""
    if not text or text == REDACTED:
        return False
    return _is_secret_name(key) or (len(text) >= 8 and _looks_secret(text))


_VALUE_TEXTS: Final = tuple(sign.decode() for sign, _ in _VALUE_SIGNS)


def _looks_secret(text: str) -> bool:
    seen = text[:_LONGEST]
    # Most texts have none of these signs, and the regular expressions take much longer.
    for sign in _VALUE_TEXTS:
        if sign in seen:
            if _VALUE.search(seen) is not None:
                return True
            break
    return "bearer" in seen.lower() and _BEARER.search(seen) is not None


class StoredRow(NamedTuple):
    """The facts of a stored row that the report of an import needs."""

    thread_id: UUID
    position: int
    type: str
    tokens: int
    calls: int
    reply_to: int

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the facts of a row with these values."""
        tokens = (values["input_tokens"] or 0) + (values["output_tokens"] or 0)
        calls, reply_to = values["calls"] or 0, values["reply_to"] or 0
        return cls(values["thread_id"], values["position"], values["type"], tokens, calls, reply_to)


@dataclass(slots=True)
class BatchOutcome:
    """The result of a batch: the calls of its spans, and the spans that could not be stored."""

    rows: list[StoredRow] = field(default_factory=new_list)
    """The model calls, tool calls and embeddings, and spans that may have been such before."""
    traces: set[str] = field(default_factory=new_set)
    spans: set[str] = field(default_factory=new_set)
    missing: dict[str, list[str]] = field(default_factory=new_dict)
    """Spans of the batch, with the expected fields that each lacks."""
    refused: list[tuple[str, str]] = field(default_factory=new_list)
    """Spans that could not be stored, with the reason."""
    further: list[UUID] = field(default_factory=new_list)
    """Further rows of spans without new data."""
    dissolved: set[UUID] = field(default_factory=new_set)
    """Threads that this batch deleted. Their rows were written again to other threads."""
    removed_spans: set[str] = field(default_factory=new_set)
    """Traces that were merged into other traces."""

    def add(self, written: "BatchOutcome") -> None:
        """Add the outcome of one commit. It replaces all rows of the threads that the commit dissolved."""
        self.rows = [row for row in self.rows if row.thread_id not in written.dissolved] + written.rows
        self.missing.update(written.missing)
        self.dissolved |= written.dissolved
        self.removed_spans |= written.removed_spans
        self.traces = (self.traces - written.removed_spans) | written.traces


@dataclass(slots=True)
class Batch:
    """The spans of one commit, before they are sorted into traces."""

    spans: dict[str, SpanData] = field(default_factory=new_dict)
    """The new fields of each span, by the id of the span."""
    again: set[str] = field(default_factory=new_set)
    """Stored spans to compute again although no data of them arrived."""
    absorbed: set[str] = field(default_factory=new_set)
    """Traces named after a span of another trace. They are merged into that trace."""
    seen: object = None
    """The fences that the last attempt read. An equal value means that no other writer changed the traces."""

    def add(self, span: SpanData) -> None:
        known = self.spans.get(span["id"])
        self.spans[span["id"]] = merge(known, span) if known else span

    def slices(self, most: int) -> Iterator["Batch"]:
        """Yield batches with this number of spans at most, in the same order."""
        spans = iter(self.spans.items())
        while some := dict(islice(spans, most)):
            yield Batch(some)


@dataclass(slots=True)
class TraceBatch:
    """The spans of one trace in a batch."""

    trace_id: str
    spans: dict[str, SpanData] = field(default_factory=new_dict)
    recompute: set[str] = field(default_factory=new_set)
    """Stored spans to compute again, because other spans of the batch change their facts."""

    @property
    def conversation(self) -> str | None:
        """The conversation of the trace: the one its root names, else its first span that names one."""
        spans = [span for span in self.spans.values() if span.get("thread_id")]
        root = [span for span in spans if is_root(span)]
        return (root or spans)[0].get("thread_id") if spans else None

    @property
    def name(self) -> str:
        """The name of its thread in the source."""
        return self.conversation or self.trace_id


def sort(
    items: Iterable[Item], outcome: BatchOutcome, *, keep_secrets: bool, hide: frozenset[str] = frozenset()
) -> tuple[Batch, list[Attachment | SpanFeedback]]:
    """Group items by span and redact secrets. Return the batch, and attachments and feedback separately."""
    batch = Batch()
    others: list[Attachment | SpanFeedback] = []
    shared: dict[int, tuple[Any, Any]] = {}
    for item in items:
        if isinstance(item, Attachment | SpanFeedback):
            others.append(item)
            continue
        try:
            span = _admitted(item, keep_secrets, hide, shared)
        except (Refused, RecursionError, KeyError) as exc:
            outcome.refused.append((item.get("id", ""), f"span {item.get('id', '?')}: {_reason(exc)}"))
            continue
        batch.add(span)
        outcome.spans.add(span["id"])
    return batch, others


def remove_unstorable(batch: Batch, outcome: BatchOutcome) -> bool:
    """Remove the spans that cannot be stored from a batch, and report them. Return True if there were any."""
    before = len(outcome.refused)
    for span_id, span in list(batch.spans.items()):
        try:
            codec.dumps(span)
        except Refused as exc:
            del batch.spans[span_id]
            outcome.refused.append((span_id, f"span {span_id}: {_reason(exc)}"))
    return len(outcome.refused) > before


def _admitted(span: SpanData, keep_secrets: bool, hide: frozenset[str], shared: dict[int, tuple[Any, Any]]) -> SpanData:
    """Return the span without secrets. `shared` has objects that several spans share, with their redacted values."""
    if not span["id"] or not span["trace_id"]:
        raise Refused("it has no id")
    if keep_secrets:
        return span
    hidden: dict[str, Any] = {}
    if (metadata := span.get("metadata")) and (new := redact(metadata, hide)) is not metadata:
        hidden["metadata"] = new
    if extra := span.get("extra"):
        changed: dict[str, Any] = {}
        for key, value in extra.items():
            if key in _SHARED:
                # The resource and the scope are one object for all spans of a request.
                known = shared.get(id(value))
                if known is None:
                    known = shared[id(value)] = value, _entry(key, value, hide, no_pause)
                new = known[1]
            else:
                new = _entry(key, value, hide, no_pause)
            if new is not value:
                changed[key] = new
        if changed:
            hidden["extra"] = {**extra, **changed}
    return cast("SpanData", {**span, **hidden}) if hidden else span


_SHARED: Final = frozenset({"resource", "scope"})


def _reason(exc: BaseException) -> str:
    if isinstance(exc, RecursionError):
        return "it is nested too deeply"
    return f"it has no {exc}" if isinstance(exc, KeyError) else str(exc)
