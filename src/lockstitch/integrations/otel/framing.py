"""Exported files cut into records of bounded size.

What it is, is told by its first bytes and never by its name:

- gzip and zstd are undone on the way, whatever is inside;
- `{` or `[`: JSON. One document per line (as the collector's file exporter writes them), or documents over several
  lines, one after another;
- `0A`: a protobuf request. Its parts stand one after another, so each is a record and the file may be of any size;
- `00`: protobuf requests, each after its length in four bytes (the collector's file exporter again);
- anything else: protobuf requests, each after its length as a varint.

No record may be longer than LIMIT, packed or unpacked: what is read stays bounded, and so a single JSON document of a
gigabyte is refused, while a gigabyte of lines goes through.

A limit on length is not enough: two bytes of JSON or protobuf can become hundreds in memory, so 32 MB of brackets would
take gigabytes. What begins a value is counted instead, which is quick, and too much rather than too little.
"""

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Literal, NamedTuple

import zstandard

from lockstitch.errors import Unreadable
from lockstitch.integrations.spans.budget import Budget, unlimited
from lockstitch.integrations.spans.compression import ZSTD_MAGIC, Gzip, Zstandard

LIMIT = 32 * 1024 * 1024
"""The longest record, in bytes: more than a collector accepts in one request (20 MB) unless told otherwise."""

_HEAD = 512
_BUFFER = 256 * 1024
_EMPTY = 1_000
# The possessive repeat and the optional closing quote keep this linear: a string that is cut off matches up to its end,
# so the search never starts again at a quote inside it.
_OUTSIDE_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"?|([{\[])|([}\]])', re.DOTALL)


class Frame(NamedTuple):
    """One record: a JSON document, a whole request, or one part (a ResourceSpans) of a request."""

    form: Literal["json", "request", "part"]
    body: bytes
    where: str


def frames(
    stream: BinaryIO, where: str, limit: int = LIMIT, budget: Budget | None = None
) -> Iterator[Frame | Unreadable]:
    """The records of a stream, in their order.

    A record that cannot be told comes as an Unreadable that names it; after a bad line the next lines follow, after
    anything else that is broken nothing does. Reads no further than it must.

    Raises `BodyTooExpensive` if the budget does not allow all of it.
    """
    budget = budget or unlimited()
    try:
        plain = _unpacked(_buffered(stream), budget)
        head = plain.peek(_HEAD)[:_HEAD]
        if not head.strip():
            if len(head) < _HEAD:
                return
            raise Unreadable(f"{where}: nothing but blanks.")
        if _is_text(head):
            yield from _documents(plain, where, limit, budget)
        elif head[0] == 0x0A:
            yield from _parts(plain, where, limit, budget)
        elif head[0] == 0x00:
            yield from _delimited(plain, where, limit, budget, big_endian=True)
        else:
            yield from _delimited(plain, where, limit, budget, big_endian=False)
    except Unreadable as exc:
        yield exc
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as exc:
        yield _because(f"{where}: cannot be unpacked: {exc}.", exc)


def _buffered(stream: BinaryIO) -> io.BufferedReader:
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream, _BUFFER)  # type: ignore[arg-type]


def _unpacked(stream: io.BufferedReader, budget: Budget) -> io.BufferedReader:
    magic = stream.peek(4)[:4]
    if magic.startswith(b"\x1f\x8b"):
        return io.BufferedReader(Gzip(stream, budget), _BUFFER)
    if magic == ZSTD_MAGIC:
        return io.BufferedReader(Zstandard(stream, budget), _BUFFER)
    return stream


def _is_text(head: bytes) -> bool:
    """Whether this begins JSON. A line feed may begin protobuf too, but that has control characters soon after."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
    return text[:1] in (b"{", b"[") and not any(byte < 0x20 and byte not in b"\t\r\n" for byte in head)


def _documents(stream: io.BufferedReader, where: str, limit: int, budget: Budget) -> Iterator[Frame | Unreadable]:
    """JSON documents: one per line if the first one is, else as far as its brackets go."""
    lines = _lines(stream, where, limit, budget)
    begun: list[bytes] = []
    begun_at = depth = size = 0
    for number, line in lines:
        if begun and _is_compact(begun[0]) and _is_compact(line):
            # The first line was torn, and the lines after it are documents of their own.
            yield Unreadable(f"{where}, line {begun_at}: the document is cut off.")
            yield Frame("json", line, f"{where}, line {number}")
            break
        begun_at = begun_at or number
        begun.append(line)
        depth += _depth(line)
        size += len(line)
        if size > limit:
            raise _too_long(f"{where}, line {begun_at}", limit)
        if depth <= 0:
            alone = len(begun) == 1
            yield Frame("json", b"".join(begun), f"{where}, line {begun_at}")
            begun, begun_at, depth, size = [], 0, 0, 0
            if alone:
                break
    else:
        if begun:
            yield Unreadable(f"{where}, line {begun_at}: the document is cut off.")
    for number, line in lines:
        yield Frame("json", line, f"{where}, line {number}")


def _lines(stream: io.BufferedReader, where: str, limit: int, budget: Budget) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers."""
    number = 0
    while line := stream.readline(limit + 1):
        number += 1
        budget.step()
        if len(line) > limit:
            raise _too_long(f"{where}, line {number}", limit)
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if line.strip():
            budget.record()
            yield number, line


def _depth(line: bytes) -> int:
    """How many brackets a line leaves open. Strings hold no raw line feeds, so none of them goes on in the next."""
    depth = 0
    for found in _OUTSIDE_TEXT.finditer(line):
        if found[1]:
            depth += 1
        elif found[2]:
            depth -= 1
    return depth


def _is_compact(line: bytes) -> bool:
    return line.startswith(b'{"')


def _too_long(at: str, limit: int) -> Unreadable:
    return Unreadable(
        f"{at}: a document of more than {limit} bytes. Write one request per line, or split it into several."
    )


def _parts(stream: io.BufferedReader, where: str, limit: int, budget: Budget) -> Iterator[Frame]:
    number = 0
    while tag := stream.read(1):
        number += 1
        budget.record()
        at = f"{where}, part {number}"
        if tag != b"\x0a":
            raise Unreadable(f"{at}: this is no OTLP request in protobuf.")
        yield Frame("part", _exactly(stream, _varint(stream, at), at, limit), at)


def _delimited(
    stream: io.BufferedReader, where: str, limit: int, budget: Budget, *, big_endian: bool
) -> Iterator[Frame]:
    number = empty = 0
    while stream.peek(1):
        number += 1
        budget.record()
        at = f"{where}, request {number}"
        size = int.from_bytes(_exactly(stream, 4, at, limit), "big") if big_endian else _varint(stream, at)
        if size and stream.peek(1)[:1] not in (b"\x0a", b""):
            raise Unreadable(f"{at}: this is no OTLP request, neither in protobuf nor in JSON.")
        empty = 0 if size else empty + 1
        if empty > _EMPTY:
            raise Unreadable(f"{at}: more than {_EMPTY:,} empty requests follow each other. This is no OTLP file.")
        yield Frame("request", _exactly(stream, size, at, limit), at)


def _varint(stream: io.BufferedReader, at: str) -> int:
    value = 0
    for shift in range(0, 35, 7):
        byte = stream.read(1)
        if not byte:
            raise Unreadable(f"{at}: it is cut off.")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise Unreadable(f"{at}: this is no OTLP request, neither in protobuf nor in JSON.")


def _exactly(stream: io.BufferedReader, size: int, at: str, limit: int) -> bytes:
    if size > limit:
        raise Unreadable(f"{at}: it has {size} bytes, more than the {limit} that one record may have.")
    body = stream.read(size)
    if len(body) < size:
        raise Unreadable(f"{at}: it is cut off.")
    return body


def _because(message: str, cause: Exception) -> Unreadable:
    error = Unreadable(message)
    error.__cause__ = cause
    return error


HEAVIEST = 256 * 1024 * 1024

# What each of these bytes may begin, in bytes of memory. They stand in texts too, where JSON may be hidden.
_IN_JSON = {b"{": 230, b"[": 60, b",": 40}
# The tags of everything that OTLP repeats: attributes, values of lists, spans, events, links.
_IN_PROTOBUF = {b"\x0a": 120, b"\x12": 120, b"\x4a": 120, b"\x5a": 120, b"\x6a": 120}


def weight(frame: Frame) -> int:
    """A guess at the bytes of memory that a record takes."""
    signs = _IN_JSON if frame.form == "json" else {**_IN_JSON, **_IN_PROTOBUF}
    return 2 * len(frame.body) + sum(frame.body.count(sign) * each for sign, each in signs.items())
