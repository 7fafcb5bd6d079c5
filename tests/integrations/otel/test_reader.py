"""Exported traces in every encoding give the same span data, and defects are reported."""

import gzip
import io
import json
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from lockstitch.errors import Unreadable
from lockstitch.integrations.otel import files, read, read_body, read_file, read_stream
from tests.integrations.otel.bodies import SPAN, TRACE, as_document, made, recorded

ONE, TWO = recorded("oi_openai"), recorded("pydantic_ai")
PIECES = [*read_body(ONE), *read_body(TWO)]


def line(body: bytes) -> bytes:
    return json.dumps(as_document(body)).encode()


def varint(size: int) -> bytes:
    out = bytearray()
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes([*out, size])


FORMS: dict[str, bytes] = {
    "lines": line(ONE) + b"\n" + line(TWO) + b"\n",
    "lines without an end": b"\xef\xbb\xbf" + line(ONE) + b"\r\n\r\n" + line(TWO),
    "documents over many lines": b"\n".join(json.dumps(as_document(body), indent=2).encode() for body in (ONE, TWO)),
    "a line feed first": b"\n\n" + json.dumps(as_document(ONE), indent=1).encode() + b"\n" + line(TWO),
    "a list": b"[" + line(ONE) + b",\n" + line(TWO) + b"]",
    "requests put together": ONE + TWO,
    "lengths as varints": varint(len(ONE)) + ONE + varint(len(TWO)) + TWO,
    "lengths in four bytes": struct.pack(">I", len(ONE)) + ONE + struct.pack(">I", len(TWO)) + TWO,
}
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "gzip in members": lambda body: gzip.compress(body[:700]) + gzip.compress(body[700:]),
    "zstd": lambda body: zstandard.ZstdCompressor().compress(body),
    "zstd in frames": lambda body: b"".join(zstandard.ZstdCompressor().compress(half) for half in (body[:9], body[9:])),
}


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("form", FORMS)
def test_every_encoding_gives_same_span_data(form: str, packing: str, tmp_path: Path) -> None:
    body = PACKINGS[packing](FORMS[form])
    assert list(read_body(body)) == PIECES
    (tmp_path / "traces").write_bytes(body)
    assert list(read(tmp_path / "traces")) == PIECES


def test_folder_is_read_in_order_of_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "001.body").write_bytes(TWO)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(line(ONE)))
    (tmp_path / ".hidden").write_bytes(b"nothing of ours")
    assert list(read(tmp_path)) == PIECES
    assert list(read(str(tmp_path))) == PIECES


def test_skips_recorded_bodies_of_other_signals(tmp_path: Path) -> None:
    for number, (path, body) in enumerate(
        [("/v1/metrics", b"\x0a\x02\x10\x01"), ("/v1/traces", ONE), ("/otel/v1/traces", TWO), ("/v1/logs", b"\x0a\x00")]
    ):
        (tmp_path / f"{number}.body").write_bytes(body)
        (tmp_path / f"{number}.headers.json").write_text(json.dumps({"path": path, "method": "POST"}))
    assert [path.name for path in files(tmp_path)] == ["1.body", "2.body", "3.body"]
    assert list(read(tmp_path)) == PIECES


def test_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(ONE + TWO))))
    assert list(read("-")) == PIECES


def test_metrics_logs_and_empty_bodies_have_no_spans() -> None:
    for body in (b"", b"  \n", b"{}", b'{"resourceMetrics":[{}]}\n{"resourceLogs":[]}', gzip.compress(b"")):
        assert list(read_body(body)) == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"resourceSpans": [', "the body, line 1: the document is incomplete"),
        (b'{"runs": []}', "no resourceSpans"),
        (b"[1]", "entry 1: this is not an OTLP request"),
        (b"hello, this is a letter", "not an OTLP request"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "not an OTLP request"),
        (ONE[:-5], "part 1: it is incomplete"),
        (ONE + b"\x12\x00", "part 2: this is not an OTLP request"),
        (b"\x0a\x03\x0a\xff\xff", "not OTLP protobuf"),
        (gzip.compress(ONE)[:-20], "cannot be unpacked"),
        (zstandard.ZstdCompressor().compress(TWO)[:100], "cannot be unpacked: it is incomplete"),
        (b"\x1f\x8bgarbage", "cannot be unpacked"),
        (struct.pack(">I", len(ONE)) + ONE[:-5], "request 1: it is incomplete"),
        (json.dumps(made({}, traceId="")).encode(), "span 1: it has no trace id"),
        (json.dumps(made({}, traceId="0" * 32)).encode(), "span 1: it has no trace id"),
        (json.dumps(made({}, spanId="xyz")).encode(), "is not an id of 8 bytes"),
        (json.dumps(made({}, startTimeUnixNano="9" * 50)).encode(), "more digits than OTLP allows"),
    ],
)
def test_reports_unreadable_body(body: bytes, problem: str) -> None:
    with pytest.raises(Unreadable, match=problem):
        list(read_body(body))
    problems: list[Unreadable] = []
    list(read_body(body, on_bad=problems.append))
    assert len(problems) == 1


def test_reports_invalid_resource() -> None:
    document = made({})
    document["resourceSpans"][0]["resource"]["attributes"] = [{"key": "n", "value": {"intValue": "many"}}]
    with pytest.raises(Unreadable, match="the body, line 1: invalid literal"):
        list(read_body(json.dumps(document).encode()))


_WITHOUT = """
import sys
sys.modules["opentelemetry"] = sys.modules["google.protobuf"] = None
from lockstitch.integrations.otel import OpenTelemetry, read_body
from lockstitch.errors import Refused
body = sys.stdin.buffer.read()
(piece,) = read_body(body)
assert OpenTelemetry().facts(piece).role == "llm"
try:
    list(read_body(bytes([10, 2, 10, 0])))
except Refused as refused:
    print(refused)
"""


def test_json_needs_no_extra_and_protobuf_names_it() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT], input=line(ONE), check=True, capture_output=True)
    assert b"pip install 'lockstitch[otel]'" in done.stdout


def test_reports_missing_file(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"missing\.json"):
        list(read_file(tmp_path / "missing.json"))


def test_reads_lines_after_invalid_line() -> None:
    bad = [b'{"resourceSpans": [', line(ONE), b"{nonsense}", b"null", line(TWO)]
    problems: list[Unreadable] = []
    assert list(read_body(b"\n".join(bad), "export.jsonl", on_bad=problems.append)) == PIECES
    assert [str(error).split(":")[0] for error in problems] == [f"export.jsonl, line {at}" for at in (1, 3, 4)]


def test_reads_spans_after_invalid_span() -> None:
    document = as_document(TWO)
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][1]["traceId"] = "?"
    problems: list[Unreadable] = []
    spans = list(read_body(json.dumps(document).encode(), on_bad=problems.append))
    assert len(spans) == 3
    assert "span 2" in str(problems[0])


def test_ids_in_base64_and_upper_case_are_equal() -> None:
    (plain,) = read_body(json.dumps(made({})).encode())
    (capital,) = read_body(json.dumps(made({}, traceId=TRACE.upper())).encode())
    (base64,) = read_body(json.dumps(made({}, traceId="CvdlGRbNQ92ESOshHIAxnA==", spanId="t61rcWkgMzE=")).encode())
    assert plain == capital == base64
    assert plain["id"] == f"{TRACE}:{SPAN}"


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("form", ["lines", "documents over many lines", "requests put together", "lengths as varints"])
def test_rejects_record_beyond_limit(form: str, packing: str) -> None:
    problems: list[Unreadable] = []
    body = PACKINGS[packing](FORMS[form])
    spans = list(read_body(body, on_bad=problems.append, limit=len(ONE) - 100))
    assert len(spans) < len(PIECES)
    assert "more than" in str(problems[0])


def test_rejects_bomb_before_unpacking() -> None:
    """A gigabyte of one document, packed into a few bytes. Memory never exceeds the limit."""
    opening, blank = b'{"resourceSpans":[', b" " * 1_000_000
    packed = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(packed, closefd=False) as writer:
        writer.write(opening)
        for _ in range(1000):
            writer.write(blank)
    assert len(packed.getvalue()) < 1_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Unreadable, match="more than 33554432 bytes"):
        list(read_body(packed.getvalue()))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000


# VmHWM, because ru_maxrss starts with the value of the parent process.
_HEAVY = """
import sys
from lockstitch.integrations.otel import read_body
from lockstitch.errors import Unreadable
size = 9_000_000
spans = bytes([0x12, 0]) * (size // 2)
def field(tag, body):
    length, out = len(body), bytearray([tag])
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    return bytes([*out, length]) + body
bodies = {
    "lists": b'{"resourceSpans":[{"x":[' + b"[]," * (size // 3) + b"[]]}]}",
    "objects": b'{"resourceSpans":[' + b'{"":' * (size // 5) + b"0" + b"}" * (size // 5) + b"]}",
    "numbers": b'{"resourceSpans":[' + b"1," * (size // 2) + b"1]}",
    "spans": field(0x0A, field(0x12, spans)),
}
told = []
list(read_body(bodies[sys.argv[1]], on_bad=told.append))
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
assert len(told) == 1 and "smaller batches" in str(told[0]), told[:1]
"""


@pytest.mark.parametrize("what", ["lists", "spans"])
def test_rejects_record_with_too_many_values(what: str) -> None:
    """Nine megabytes of values would take three hundred."""
    done = subprocess.run([sys.executable, "-c", _HEAVY, what], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 150_000


_FLOOD = """
import io, sys
from lockstitch.integrations.otel import OpenTelemetry, read_stream
line = open(sys.argv[1], "rb").read() + b"\\n"
class Flood(io.RawIOBase):
    left = int(sys.argv[2]) // len(line)
    rest = b""
    def readable(self): return True
    def readinto(self, buffer):
        if not self.rest and self.left:
            self.left, self.rest = self.left - 1, line
        part = self.rest[: len(buffer)]
        buffer[: len(part)] = part
        self.rest = self.rest[len(part) :]
        return len(part)
facts, count = OpenTelemetry().facts, 0
for piece in read_stream(Flood()):
    facts(piece)
    count += 1
print(count, next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_reads_long_file_in_little_memory(tmp_path: Path) -> None:
    """Memory does not depend on the length: five megabytes of lines take as much as one line."""
    (tmp_path / "line").write_bytes(line(TWO))
    held: list[int] = []
    for size in (100_000, 5_000_000):
        done = subprocess.run(
            [sys.executable, "-c", _FLOOD, str(tmp_path / "line"), str(size)],
            check=True,
            capture_output=True,
            text=True,
        )
        count, memory = map(int, done.stdout.split())
        assert count == size // (len(line(TWO)) + 1) * 4
        held.append(memory)
    assert held[1] < 300_000
    assert held[1] - held[0] < 10_000


def test_yields_spans_before_stream_ends() -> None:
    """A stream that is still being written yields span data as its lines arrive."""

    class Slow(io.RawIOBase):
        lines = [line(ONE) + b"\n", line(TWO) + b"\n"]

        def readable(self) -> bool:
            return True

        def readinto(self, buffer) -> int:  # type: ignore[override]
            part = self.lines.pop(0) if self.lines else b""
            buffer[: len(part)] = part
            return len(part)

    slow = Slow()
    spans = read_stream(slow)
    assert next(spans) == PIECES[0]
    assert len(slow.lines) == 1
    assert list(spans) == PIECES[1:]
