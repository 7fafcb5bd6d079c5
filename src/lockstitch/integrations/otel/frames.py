"""`frames`: split exported files into records of limited size.

The first bytes decide the format, never the file name:

- gzip and zstd are unpacked first.
- `{` or `[`: JSON. One document per line (as the file exporter of the collector writes), or documents over several
  lines, one after another.
- `0A`: a protobuf request. Each of its parts is a record, so the file can have any size.
- `00`: protobuf requests, each after its length in four bytes (also from the file exporter of the collector).
- anything else: protobuf requests, each after its length as a varint.

No record may be longer than LIMIT, packed or unpacked. So memory stays bounded: a single JSON document of a gigabyte is
rejected, a gigabyte of lines is accepted.

A limit on the length is not enough. Two bytes of JSON or protobuf can take hundreds of bytes in memory, so 32 MB of
brackets would take gigabytes. `weight` counts the characters that start a value. That is fast and never too low.
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
"""Maximum bytes of a record. A collector accepts at most 20 MB in one request by default."""

_HEAD = 512
_BUFFER = 256 * 1024
_EMPTY = 1_000
# The possessive repeat and the optional closing quote keep this linear: an incomplete string matches up to its end, so
# the search never starts again at a quote inside it.
_OUTSIDE_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"?|([{\[])|([}\]])', re.DOTALL)


class Frame(NamedTuple):
    """One record: a JSON document, a complete request, or one part (a ResourceSpans) of a request."""

    form: Literal["json", "request", "part"]
    body: bytes
    where: str


def frames(
    stream: BinaryIO, where: str, limit: int = LIMIT, budget: Budget | None = None
) -> Iterator[Frame | Unreadable]:
    """Yield the records of a stream in order.

    A record that cannot be read is yielded as an `Unreadable` that names it. After an invalid line, the next lines
    follow. After any other defect, nothing follows. Reads no further than needed.

    Raises `BodyTooExpensive` if the body exceeds the budget.
    """
    budget = budget or unlimited()
    try:
        plain = _unpacked(_buffered(stream), budget)
        head = plain.peek(_HEAD)[:_HEAD]
        if not head.strip():
            if len(head) < _HEAD:
                return
            raise Unreadable(f"{where}: it contains only white space.")
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
    """True if this is the start of JSON. Protobuf may start with a line feed, but has control characters soon after."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
    return text[:1] in (b"{", b"[") and not any(byte < 0x20 and byte not in b"\t\r\n" for byte in head)


def _documents(stream: io.BufferedReader, where: str, limit: int, budget: Budget) -> Iterator[Frame | Unreadable]:
    """Yield JSON documents: one per line if the first one is, else up to the closing bracket."""
    lines = _lines(stream, where, limit, budget)
    started: list[bytes] = []
    begun_at = depth = size = 0
    for number, line in lines:
        if started and _is_compact(started[0]) and _is_compact(line):
            # The first line is incomplete, and the following lines are separate documents.
            yield Unreadable(f"{where}, line {begun_at}: the document is incomplete.")
            yield Frame("json", line, f"{where}, line {number}")
            break
        begun_at = begun_at or number
        started.append(line)
        depth += _depth(line)
        size += len(line)
        if size > limit:
            raise _too_long(f"{where}, line {begun_at}", limit)
        if depth <= 0:
            alone = len(started) == 1
            yield Frame("json", b"".join(started), f"{where}, line {begun_at}")
            started, begun_at, depth, size = [], 0, 0, 0
            if alone:
                break
    else:
        if started:
            yield Unreadable(f"{where}, line {begun_at}: the document is incomplete.")
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
    """Return the number of brackets that a line leaves open. A string never continues in the next line."""
    depth = 0
    for match in _OUTSIDE_TEXT.finditer(line):
        if match[1]:
            depth += 1
        elif match[2]:
            depth -= 1
    return depth


def _is_compact(line: bytes) -> bool:
    return line.startswith(b'{"')


def _too_long(at: str, limit: int) -> Unreadable:
    return Unreadable(f"{at}: the document has more than {limit} bytes. Write one request per line, or split it.")


def _parts(stream: io.BufferedReader, where: str, limit: int, budget: Budget) -> Iterator[Frame]:
    number = 0
    while tag := stream.read(1):
        number += 1
        budget.record()
        at = f"{where}, part {number}"
        if tag != b"\x0a":
            raise Unreadable(f"{at}: this is not an OTLP request in protobuf.")
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
            raise Unreadable(f"{at}: this is not an OTLP request in protobuf or JSON.")
        empty = 0 if size else empty + 1
        if empty > _EMPTY:
            raise Unreadable(f"{at}: more than {_EMPTY:,} empty requests follow each other. This is not an OTLP file.")
        yield Frame("request", _exactly(stream, size, at, limit), at)


def _varint(stream: io.BufferedReader, at: str) -> int:
    value = 0
    for shift in range(0, 35, 7):
        byte = stream.read(1)
        if not byte:
            raise Unreadable(f"{at}: it is incomplete.")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise Unreadable(f"{at}: this is not an OTLP request in protobuf or JSON.")


def _exactly(stream: io.BufferedReader, size: int, at: str, limit: int) -> bytes:
    if size > limit:
        raise Unreadable(f"{at}: it has {size} bytes, more than the limit of {limit}.")
    body = stream.read(size)
    if len(body) < size:
        raise Unreadable(f"{at}: it is incomplete.")
    return body


def _because(message: str, cause: Exception) -> Unreadable:
    error = Unreadable(message)
    error.__cause__ = cause
    return error


HEAVIEST = 256 * 1024 * 1024

# Bytes of memory per character that may start a value. The characters also occur in texts, which may contain JSON.
_IN_JSON = {b"{": 230, b"[": 60, b",": 40}
# The tags of all repeated fields of OTLP: attributes, values of lists, spans, events, links.
_IN_PROTOBUF = {b"\x0a": 120, b"\x12": 120, b"\x4a": 120, b"\x5a": 120, b"\x6a": 120}

_MOST = 2 + max(_IN_JSON.values())
"""Maximum bytes of memory per byte of a record."""


def weight(frame: Frame) -> int:
    """Return an estimate of the bytes of memory that a record takes."""
    if len(frame.body) * _MOST < HEAVIEST:
        # Counting would take longer, and no content of this length is too heavy.
        return len(frame.body) * _MOST
    signs = _IN_JSON if frame.form == "json" else {**_IN_JSON, **_IN_PROTOBUF}
    return 2 * len(frame.body) + sum(frame.body.count(sign) * each for sign, each in signs.items())
