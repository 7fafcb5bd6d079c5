"""Byte sources unpacked on the fly; large JSON record by record.

The standard library's scanner does the work, on a piece of text that grows until a value is complete. It gives the
value and where it ends in one pass, and takes what exports really hold (NaN, half a pair of surrogates, big integers).
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
    """A stream that can be looked at. One that breaks ends there, and says why when asked."""

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
        """The next bytes, without taking them; fewer only at the end."""
        while len(self._ahead) < size and (more := self._next(size)):
            self._ahead += more
        return self._ahead[:size]

    def read(self, size: int = CHUNK) -> bytes:
        """The next bytes, at most so many; none at the end."""
        if self._ahead:
            taken, self._ahead = self._ahead[:size], self._ahead[size:]
            return taken
        return self._next(size)

    def unpacked(self) -> "ByteSource":
        """What is inside, if this is packed; packed in packed too, but not without end."""
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
"""Members of an object that hold runs, and are not kept in memory."""

_SPACE: Final = re.compile("[ \t\r\n\x1e\ufeff]*")
_SCAN: Final[Callable[[str, int], tuple[Any, int]]] = cast("Any", DECODER).scan_once
# An escape or a word that the end of the text cuts is a mistake so near to the end.
_NEAR_END: Final = 16


class Documents:
    """The records of a JSON text: of a list, of the lists in an object, or of one document after another."""

    def __init__(self, source: ByteSource, name: str, limit: int) -> None:
        self._source = source
        self._budget = source.budget
        self._name = name
        self._limit = limit
        self._decode = codecs.getincrementaldecoder(_encoding(source.peek(4)))("replace").decode
        self._text = ""
        self._at = 0
        self._ended = False
        self._taken = 0
        self.number = 0
        """How many records came out."""

    def records(self) -> Iterator[tuple[str | None, Any]]:
        """All records, each with the member that it stood in; Unreadable after the last whole one if it is cut."""
        while sign := self._sign():
            if sign == "[":
                yield from self._list(None)
            elif sign == "{":
                yield from self._object()
            else:
                raise self._broken("this is neither JSON nor anything else that LangSmith writes")
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
        value = self._at_hand()
        if value is None and self._more():
            value = self._at_hand()
        if value is not None:
            self._count()
            yield None, value
        else:
            yield from self._members()

    def _at_hand(self) -> Any:
        """Return the next object if it is whole in the text at hand, else None."""
        try:
            value, end = _SCAN(self._text, self._at)
        except (StopIteration, ValueError, RecursionError):
            return None
        self._at = end
        return value

    def _members(self) -> Iterator[tuple[str | None, Any]]:
        """A large object member by member: what holds runs is given at once, the rest at the end as one."""
        self._at += 1
        rest: dict[str, Any] = {}
        size = 0
        streamed = False
        while (sign := self._sign()) != "}":
            if sign == ",":
                self._at += 1
                continue
            key = self._value()
            if self._sign() != ":" or not isinstance(key, str):
                raise self._broken("this is no JSON object")
            self._at += 1
            if self._sign() == "[" and key in STREAMED:
                streamed = True
                yield from self._list(key)
            else:
                before = self._taken
                rest[key] = self._value()
                size += self._taken - before
                if size > self._limit:
                    raise self._too_large()
        self._at += 1
        if not streamed:
            self._count()
            yield None, rest

    def _count(self) -> None:
        self.number += 1
        self._budget.record()

    def _value(self) -> Any:
        """The next value, however much text it takes."""
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
                # a number that touches the end of the text may go on
                whole = end < len(self._text) or isinstance(value, dict | list | str)
                if whole or self._ended or not self._more():
                    self._taken += end - self._at
                    self._at = end
                    return cast("Any", value)

    def _wait(self, position: int, problem: str) -> None:
        """More text, if what is wrong may be only that the text ends here."""
        cut = problem.startswith("Unterminated string") or position >= len(self._text) - _NEAR_END
        if not cut:
            raise self._broken(f"this is no JSON: {problem or 'a value is missing'}")
        if len(self._text) - self._at > self._limit:
            raise self._too_large()
        if not self._more():
            raise self._broken("it ends in the middle of a record; those before it were read", cut=True)

    def _sign(self) -> str:
        """The next character that is no space; none at the end of everything."""
        self._budget.step()
        while True:
            self._at = _match_end(self._text, self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Read on, as much again as there is, so that a large record is not scanned too often."""
        if self._ended:
            return False
        kept = self._text[self._at :]
        parts = [kept]
        wanted = max(CHUNK, len(kept))
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
        return len(self._text) > len(kept)

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
