"""Redaction of a LangSmith body before it is stored. It replaces the values that the record would redact.

The body keeps its format: runs, batches, lines, multipart bodies and saved requests. In parts that cannot be parsed,
all texts that look like credentials are replaced. Values that are secret only by their name may stay there.
"""

import base64
import binascii
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any, Final

import zstandard

from lockstitch.integrations.langsmith.multipart import boundary_of, part_of
from lockstitch.integrations.langsmith.runs import RUN_FIELDS, THREAD, as_object, items, looks_like_feedback
from lockstitch.integrations.langsmith.stream import STREAMED, ByteSource
from lockstitch.integrations.spans.batch import may_hide, redact, without_credentials
from lockstitch.integrations.spans.budget import Budget
from lockstitch.integrations.spans.compression import GZIP_MAGIC, ZSTD_MAGIC
from lockstitch.integrations.spans.values import DECODER, parse

_INNER: Final = ("run", "trace", "data", "body", "payload")
_BLANK: Final = re.compile(r"[ \t\r\n\x1e\ufeff]*")
_UNREDACTED: Final = frozenset({*THREAD, "user_id"})
"""Names in metadata that decide where a run belongs. The record needs them, so they are not redacted here."""
_DEEPEST: Final = 200
_SAVED: Final = 2


def redacted_body(body: bytes, headers: Mapping[str, str], budget: Budget, hide: frozenset[str]) -> bytes:
    """Return the body with redacted values. Return the same object if there is nothing to redact.

    Raises `BodyTooExpensive` if the body exceeds the budget.
    """
    with budget.running():
        return _Redactor(budget, hide).body(body, headers)


class _Redactor:
    def __init__(self, budget: Budget, hide: frozenset[str]) -> None:
        self._budget = budget
        self._hide = hide

    def body(self, body: bytes, headers: Mapping[str, str], saved: int = 0) -> bytes:
        source = ByteSource(BytesIO(body).read, budget=self._budget).unpacked()
        boundary = boundary_of(source, headers)
        plain = _as_utf8(b"".join(iter(source.read, b"")))
        if not plain or (not may_hide(plain, self._hide, self._budget.pause) and b"body_base64" not in plain):
            return body
        new = self._multipart(plain, boundary) if boundary else self._documents(plain, saved)
        return body if new is plain else _packed(new, body)

    def _multipart(self, plain: bytes, boundary: bytes) -> bytes:
        delimiter = b"\r\n--" + boundary
        parts = list(self._parts(b"\r\n" + plain, delimiter))
        new = [self._part(part) for part in parts]
        if all(item is other for item, other in zip(new, parts, strict=True)):
            return plain
        return delimiter.join(new)[2:]

    def _parts(self, content: bytes, delimiter: bytes) -> Iterator[bytes]:
        """Yield the parts between the delimiters. Each part counts as a record, because many parts take memory."""
        start = 0
        while (end := content.find(delimiter, start)) >= 0:
            self._budget.record()
            yield content[start:end]
            start = end + len(delimiter)
        yield content[start:]

    def _part(self, part: bytes) -> bytes:
        self._budget.step()
        kind, _, suffix = part_of(part).name.partition(".")
        if kind in ("attachment", "feedback"):
            return part
        if kind not in ("post", "patch"):
            return without_credentials(part, self._budget.pause)
        field = suffix.partition(".")[2]
        head, blank, content = part.partition(b"\r\n\r\n")
        self._budget.weigh(content)
        try:
            value = parse(content)
            new = self._field(field, value)
        except (ValueError, RecursionError):
            return without_credentials(part, self._budget.pause)
        return part if new is value else head + blank + _dumped(new)

    def _field(self, field: str, value: Any) -> Any:
        """Redact a member of a run, or a whole run if the part names no member."""
        if field:
            return self._run({field: value}, 0)[field]
        return self._run(as_object(value), 0) if isinstance(value, dict) else value

    def _documents(self, plain: bytes, saved: int) -> bytes:
        self._budget.weigh(plain)
        text = plain.decode(errors="replace")
        parts: list[str] = []
        at, changed = 0, False
        while True:
            self._budget.step()
            start = _end(_BLANK, text, at)
            if start >= len(text):
                parts.append(text[at:])
                break
            try:
                value, end = DECODER.raw_decode(text, start)
                hidden = self._record(value, 0, saved)
            except (ValueError, RecursionError):
                remaining = text[at:].encode(errors="replace")
                new = without_credentials(remaining, self._budget.pause)
                changed |= new is not remaining
                parts.append(new.decode(errors="replace"))
                break
            changed |= hidden is not value
            parts.append(text[at:start])
            parts.append(text[start:end] if hidden is value else _dumped(hidden).decode())
            at = end
        return "".join(parts).encode(errors="replace") if changed else plain

    def _record(self, value: Any, depth: int, saved: int) -> Any:
        if depth > _DEEPEST:
            return value
        if isinstance(value, list):
            return self._each(items(value), depth, saved)
        if not isinstance(value, dict):
            return self._hidden(value)
        result = as_object(value)
        self._budget.step()
        if isinstance(result.get("body_base64"), str):
            return self._request(result, saved)
        streamed = [name for name in STREAMED if isinstance(result.get(name), list)]
        if "run_type" not in result and streamed:
            changes = {name: self._each(items(result[name]), depth, saved) for name in streamed}
            other_fields = {name: item for name, item in result.items() if name not in changes}
            return _with(result, {**changes, **self._hidden(other_fields)})
        if looks_like_feedback(result):
            return result
        changes = {
            name: self._run(as_object(result[name]), depth) for name in _INNER if isinstance(result.get(name), dict)
        }
        inner = _with(result, changes)
        return inner if changes else self._run(result, depth)

    def _hidden(self, value: Any) -> Any:
        return redact(value, self._hide, self._budget.pause)

    def _each(self, values: list[Any], depth: int, saved: int) -> list[Any]:
        new = [self._record(value, depth + 1, saved) for value in values]
        return values if all(item is other for item, other in zip(new, values, strict=True)) else new

    def _run(self, run: dict[str, Any], depth: int) -> dict[str, Any]:
        self._budget.step()
        changes: dict[str, Any] = {}
        for name, value in run.items():
            if name in ("extra", "metadata"):
                changes[name] = self._metadata(value)
            elif name == "child_runs" and isinstance(value, list) and depth < _DEEPEST:
                changes[name] = self._each(items(value), depth, 0)
            elif name not in RUN_FIELDS:
                changes[name] = self._hidden({name: value})[name]
        return _with(run, changes)

    def _metadata(self, value: Any) -> Any:
        """Redact `extra` or `metadata`, which can be JSON text."""
        if isinstance(value, str):
            if value[:1] not in ("{", "["):
                return self._hidden(value)
            try:
                inner = parse(value)
            except (ValueError, RecursionError):
                return self._hidden(value)
            new = self._metadata(inner)
            return value if new is inner else _dumped(new).decode()
        if not isinstance(value, dict):
            return self._hidden(value)
        known = as_object(value)
        stored = {name: item for name, item in known.items() if name in _UNREDACTED}
        about = known.get("metadata")
        other_fields = {name: item for name, item in known.items() if name not in stored and name != "metadata"}
        changes = {"metadata": self._metadata(about)} if "metadata" in known else {}
        hidden = self._hidden(other_fields)
        return _with(known, {**changes, **(hidden if hidden is not other_fields else {})})

    def _request(self, envelope: dict[str, Any], saved: int) -> dict[str, Any]:
        """Redact a saved request: its headers, and its body in base64."""
        changes = self._hidden({name: item for name, item in envelope.items() if name != "body_base64"})
        if saved < _SAVED:
            try:
                body = base64.b64decode(envelope["body_base64"], validate=True)
            except (binascii.Error, ValueError):
                return _with(envelope, changes)
            headers = {str(name): str(value) for name, value in as_object(envelope.get("headers")).items()}
            new = self.body(body, headers, saved + 1)
            if new is not body:
                changes["body_base64"] = base64.b64encode(new).decode()
        return _with(envelope, changes)


def _with(old: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return an object with changes. Return the same object if nothing changes."""
    different = {name: value for name, value in changes.items() if value is not old.get(name)}
    return {**old, **different} if different else old


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def _as_utf8(plain: bytes) -> bytes:
    if plain[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        return plain
    return plain.decode("utf-16", errors="replace").encode(errors="replace")


def _packed(new: bytes, like: bytes) -> bytes:
    """Compress a body in the same way as before, so that it stays small."""
    if like.startswith(GZIP_MAGIC):
        return gzip.compress(new, 1)
    if like.startswith(ZSTD_MAGIC):
        return zstandard.compress(new, 1)
    return new


def _end(pattern: "re.Pattern[str]", text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
