"""`ByteSource`: a stream that is unpacked while it is read. `Documents`: large JSON, record by record.

The scanner of the standard library runs on a text that grows until a value is complete. It returns the value and its
end in one pass, and accepts values that occur in exports (NaN, lone surrogates, big integers).
"""

import codecs
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import zstandard

from lockstitch.errors import Unreadable
from lockstitch.integrations.spans.budget import Budget, unlimited
from lockstitch.integrations.spans.compression import GZIP_MAGIC, ZSTD_MAGIC, Gzip, Zstandard
from lockstitch.integrations.spans.values import DECODER

CHUNK: Final = 1 << 20

_PACKED: Final = 4


class ByteSource:
    """A stream with `peek`. If reading fails, the stream ends there, and `failure` contains the reason."""

    def __init__(self, read: Callable[[int], bytes], ahead: bytes = b"", budget: Budget | None = None) -> None:
        self.budget = budget or unlimited()
        self._read = read
        self._ahead = ahead
        self._under: ByteSource | None = None
        self._failure: str | None = None

    @property
    def failure(self) -> str | None:
        return self._failure or (self._under.failure if self._under else None)

    def peek(self, size: int) -> bytes:
        """Return the next bytes without consuming them. Fewer only at the end."""
        while len(self._ahead) < size and (chunk := self._next(size)):
            self._ahead += chunk
        return self._ahead[:size]

    def read(self, size: int = CHUNK) -> bytes:
        """Return at most `size` bytes. Empty at the end."""
        if self._ahead:
            value, self._ahead = self._ahead[:size], self._ahead[size:]
            return value
        return self._next(size)

    def unpacked(self) -> "ByteSource":
        """Return the unpacked stream if this is compressed. Nested compression is unpacked to a limited depth."""
        source = self
        for _ in range(_PACKED):
            if source.peek(2) == GZIP_MAGIC:
                inner = ByteSource(io.BufferedReader(Gzip(source, self.budget), CHUNK).read1, budget=self.budget)
            elif source.peek(4) == ZSTD_MAGIC:
                inner = ByteSource(io.BufferedReader(Zstandard(source, self.budget), CHUNK).read1, budget=self.budget)
            else:
                break
            inner._under = source
            source = inner
        return source

    def _next(self, size: int) -> bytes:
        if self._failure is not None:
            return b""
        try:
            return self._read(size)
        except EOFError:
            self._failure = "the packed data ends too early"
        except (OSError, zlib.error, zstandard.ZstdError) as exc:
            self._failure = f"it cannot be unpacked or read: {exc}"
        return b""


STREAMED: Final = ("traces", "runs", "post", "patch")
"""Members of an object that contain runs. They are streamed and not stored in memory."""

_SPACE: Final = re.compile("[ \t\r\n\x1e\ufeff]*")
_SCAN: Final[Callable[[str, int], tuple[Any, int]]] = cast("Any", DECODER).scan_once
# If the end of the text cuts an escape or a word, the reported position is this near to the end.
_NEAR_END: Final = 16


class Documents:
    """The records of JSON text: of a list, of the lists in an object, or of consecutive documents."""

    def __init__(self, source: ByteSource, name: str, limit: int) -> None:
        self._source = source
        self._budget = source.budget
        self._name = name
        self._limit = limit
        self._decode = codecs.getincrementaldecoder(_encoding(source.peek(4)))("replace").decode
        self._text = ""
        self._at = 0
        self._ended = False
        self._consumed = 0
        self.number = 0
        """Number of records read so far."""

    def records(self) -> Iterator[tuple[str | None, Any]]:
        """Yield all records with the name of their member. Raises `Unreadable` at the end if the text is incomplete."""
        while sign := self._sign():
            if sign == "[":
                yield from self._list(None)
            elif sign == "{":
                yield from self._object()
            else:
                raise self._broken("this is not JSON and not another LangSmith format")
        if self._source.failure:
            raise self._broken(self._source.failure, cut=True)

    def _list(self, key: str | None) -> Iterator[tuple[str | None, Any]]:
        self._at += 1
        while (sign := self._sign()) != "]":
            if sign == ",":
                self._at += 1
                continue
            value = self._value()
            self._count()
            yield key, value
        self._at += 1

    def _object(self) -> Iterator[tuple[str | None, Any]]:
        value = self._decode_value()
        if value is None and self._more():
            value = self._decode_value()
        if value is not None:
            self._count()
            yield None, value
        else:
            yield from self._members()

    def _decode_value(self) -> Any:
        """Return the next object if the text contains all of it, else None."""
        try:
            value, end = _SCAN(self._text, self._at)
        except (StopIteration, ValueError, RecursionError):
            return None
        self._at = end
        return value

    def _members(self) -> Iterator[tuple[str | None, Any]]:
        """Yield a large object member by member: runs at once, the other members at the end as one record."""
        self._at += 1
        other_members: dict[str, Any] = {}
        size = 0
        streamed = False
        while (sign := self._sign()) != "}":
            if sign == ",":
                self._at += 1
                continue
            key = self._value()
            if self._sign() != ":" or not isinstance(key, str):
                raise self._broken("this is not a JSON object")
            self._at += 1
            if self._sign() == "[" and key in STREAMED:
                streamed = True
                yield from self._list(key)
            else:
                before = self._consumed
                other_members[key] = self._value()
                size += self._consumed - before
                if size > self._limit:
                    raise self._too_large()
        self._at += 1
        if not streamed:
            self._count()
            yield None, other_members

    def _count(self) -> None:
        self.number += 1
        self._budget.record()

    def _value(self) -> Any:
        """Return the next value, with any amount of text."""
        while True:
            try:
                value, end = _SCAN(self._text, self._at)
            except RecursionError as exc:
                raise self._broken("it is nested too deeply") from exc
            except StopIteration as exc:
                self._wait(exc.value, "")
            except json.JSONDecodeError as exc:
                self._wait(exc.pos, exc.msg)
            except ValueError as exc:
                raise self._broken(str(exc)) from exc
            else:
                # A number at the end of the text may continue.
                is_complete = end < len(self._text) or isinstance(value, dict | list | str)
                if is_complete or self._ended or not self._more():
                    self._consumed += end - self._at
                    self._at = end
                    return cast("Any", value)

    def _wait(self, position: int, problem: str) -> None:
        """Read more text if the only problem may be that the text ends here. Otherwise raise."""
        cut = problem.startswith("Unterminated string") or position >= len(self._text) - _NEAR_END
        if not cut:
            raise self._broken(f"this is not JSON: {problem or 'a value is missing'}")
        if len(self._text) - self._at > self._limit:
            raise self._too_large()
        if not self._more():
            raise self._broken("it ends in the middle of a record; earlier records were read", cut=True)

    def _sign(self) -> str:
        """Return the next character that is not white space. Empty at the end."""
        self._budget.step()
        while True:
            self._at = _match_end(self._text, self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Read more text. The amount doubles, so that a large record is scanned rarely. Return False at the end."""
        if self._ended:
            return False
        text = self._text[self._at :]
        parts = [text]
        wanted = max(CHUNK, len(text))
        got = 0
        while got < wanted:
            data = self._source.read()
            parts.append(self._decode(data, not data))
            if not data:
                self._ended = True
                break
            got += len(data)
        self._text = "".join(parts)
        self._at = 0
        self._budget.weigh(self._text)
        return len(self._text) > len(text)

    def _too_large(self) -> Unreadable:
        return self._broken(f"one record is larger than {self._limit >> 20} MB")

    def _broken(self, reason: str, *, cut: bool = False) -> Unreadable:
        reason = self._source.failure or reason
        return Unreadable(self._name, reason, where=f"record {self.number + 1}", cut=cut)


def _match_end(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _encoding(start: bytes) -> str:
    return "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
