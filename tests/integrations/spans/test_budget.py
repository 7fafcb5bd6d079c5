"""Limits on the cost of reading one body, stopping of a reader, and linear cost."""

import gzip
import json
import re
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType

import pytest
import zstandard

from lockstitch.errors import BodyTooExpensive, Unreadable
from lockstitch.integrations import langsmith
from lockstitch.integrations.langsmith import messages, multipart, runs, stream
from lockstitch.integrations.langsmith import reader as reading
from lockstitch.integrations.otel import frames, read_body, values
from lockstitch.integrations.spans import batch
from lockstitch.integrations.spans.budget import Budget, Limits, ReadingStopped
from tests.work import assert_linear, lines, steps

BOUNDARY = b"--x\r\n"


def limited(**limits: float) -> Budget:
    return Budget(Limits(**limits))  # type: ignore[arg-type]


def read_otel(body: bytes, budget: Budget | None = None) -> int:
    with (budget or Budget(None)).running():
        return sum(1 for _ in read_body(body, on_bad=lambda _: None, budget=budget))


def read_langsmith(body: bytes, budget: Budget | None = None) -> int:
    with (budget or Budget(None)).running():
        return sum(1 for _ in langsmith.read(body, "the body", {}, on_bad=lambda _: None, budget=budget))


READERS = {"otel": read_otel, "langsmith": read_langsmith}
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "gzip in gzip": lambda body: gzip.compress(gzip.compress(body)),
    "zstd in gzip": lambda body: gzip.compress(zstandard.compress(body)),
}


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("reader", READERS)
def test_rejects_body_that_unpacks_to_more_than_allowed(reader: str, packer: str) -> None:
    body = PACKERS[packer](b"[" + b" " * (8 << 20))
    assert len(body) < 20_000
    if reader == "otel" and " in " in packer:
        # Only one layer is unpacked, and the inner one is not OTLP.
        with pytest.raises(Unreadable):
            list(read_body(body))
        return
    with pytest.raises(BodyTooExpensive, match="unpacks to more than 1,048,576 bytes"):
        READERS[reader](body, limited(unpacked_bytes=1 << 20))


@pytest.mark.parametrize("reader", READERS)
def test_reads_body_within_limits(reader: str) -> None:
    assert READERS[reader](gzip.compress(b"{}"), limited(unpacked_bytes=2, records=1)) == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\x0a\x00" * 50, "more than 10 records"),
        (b"{}\n" * 50, "more than 10 records"),
        (b"\x02\x0a\x00" * 50, "more than 10 records"),
        (b"\x00" * 200, "more than 10 records"),
    ],
)
def test_rejects_otlp_with_too_many_records(body: bytes, message: str) -> None:
    with pytest.raises(BodyTooExpensive, match=message):
        read_otel(body, limited(records=10))


@pytest.mark.parametrize(
    "body",
    [b"{}\n" * 50, b"[" + b"{},{}" * 30 + b"]", b"".join([BOUNDARY, b"\r\n\r\n" + BOUNDARY] * 50)],
)
def test_rejects_langsmith_with_too_many_records(body: bytes) -> None:
    with pytest.raises(BodyTooExpensive, match="more than 10 records"):
        read_langsmith(body, limited(records=10))


def test_rejects_too_many_spans() -> None:
    nested: dict[str, object] = {"id": "x", "child_runs": [{"id": str(number)} for number in range(50)]}
    with pytest.raises(BodyTooExpensive, match="more than 10 spans"):
        read_langsmith(json.dumps(nested).encode(), limited(items=10))
    bad = {"resourceSpans": [{"scopeSpans": [{"spans": [{}] * 50}]}]}
    with pytest.raises(BodyTooExpensive, match="more than 10 spans"):
        read_otel(json.dumps(bad).encode(), limited(items=10))


def test_rejects_body_that_takes_too_much_processor_time() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    budget = Budget(Limits(seconds=5.0), clock)
    with pytest.raises(BodyTooExpensive, match="more than 5 seconds of processor time"), budget.running():
        list(langsmith.read(b"[" + b"," * 10_000 + b"]", "the body", {}, budget=budget))


def test_adds_processor_time_of_all_turns() -> None:
    now = 0.0
    budget = Budget(Limits(seconds=5.0), lambda: now)
    for _ in range(2):
        with budget.running():
            now += 2.0
            budget.check_time()
    with budget.running():
        now += 2.0
        with pytest.raises(BodyTooExpensive):
            budget.check_time()


@pytest.mark.parametrize(
    ("reader", "body"),
    [
        ("otel", b"\x00" * 400_000),
        ("otel", b"{}" + b"\n" * 1_000),
        ("otel", gzip.compress(b"") * 1_000),
        ("langsmith", b"[" + b"," * 100_000),
        ("langsmith", gzip.compress(b"") * 1_000),
    ],
    ids=["zeros", "blank lines", "empty members", "commas", "empty members of runs"],
)
def test_stopped_reader_ends_at_next_step(reader: str, body: bytes) -> None:
    budget = Budget(Limits())
    budget.stop()
    with pytest.raises(ReadingStopped):
        READERS[reader](body, budget)


def test_rejects_parquet_in_request() -> None:
    with pytest.raises(Unreadable, match="from files only"):
        list(langsmith.read(b"PAR1" + b"\x00" * 100, "the body", {}, budget=Budget(Limits())))


def test_file_of_zeros_ends_without_a_budget() -> None:
    problems: list[Unreadable] = []
    assert not list(read_body(gzip.compress(bytes(1 << 20)), on_bad=problems.append))
    assert "empty requests" in str(problems[-1])


SPAN = {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "name": "x", "startTimeUnixNano": "1"}


def otlp(spans: list[object], **attributes: object) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


OTLP: dict[str, Callable[[int], bytes]] = {
    "escaped quotes": lambda n: b'{"' + b'\\"' * n,
    "escaped quotes over lines": lambda n: (b'{"' + b'\\"' * 9 + b"\\\n") * n,
    "brackets": lambda n: b"[" * n,
    "lines of brackets": lambda n: b"{\n" * n,
    "blank lines": lambda n: b"{}" + b"\n" * n,
    "zeros": lambda n: b"\x00" * (4 * n),
    "empty parts": lambda n: b"\x0a\x00" * n,
    "spans": lambda n: otlp([SPAN] * n),
    "attributes": lambda n: otlp(
        [{**SPAN, "attributes": [{"key": f"a.{i}", "value": {"stringValue": "[1]"}} for i in range(n)]}]
    ),
    "flattened messages": lambda n: otlp(
        [
            {
                **SPAN,
                "attributes": [
                    {"key": f"llm.input_messages.{i}.message.content", "value": {"stringValue": "x"}} for i in range(n)
                ],
            }
        ]
    ),
    "flattened tool calls": lambda n: otlp(
        [
            {
                **SPAN,
                "attributes": [
                    {"key": f"gen_ai.prompt.{i}.tool_calls.{i}.name", "value": {"stringValue": "x"}} for i in range(n)
                ],
            }
        ]
    ),
    "events": lambda n: otlp(
        [{**SPAN, "events": [{"name": "gen_ai.choice", "timeUnixNano": str(i)} for i in range(n)]}]
    ),
}

LANGSMITH: dict[str, Callable[[int], bytes]] = {
    "commas": lambda n: b"[" + b"," * n + b"]",
    "brackets": lambda n: b"[" * n,
    "documents": lambda n: b'{"id": "x"}\n' * n,
    "parts": lambda n: (
        (BOUNDARY + b'Content-Disposition: form-data; name="post.x.inputs"\r\n\r\n{}\r\n') * n + b"--x--"
    ),
    "parts of one run": lambda n: (
        b"".join(
            BOUNDARY + b'Content-Disposition: form-data; name="post.x"\r\n\r\n{"k%d": 1}\r\n' % i for i in range(n)
        )
        + b"--x--"
    ),
    "children": lambda n: json.dumps({"id": "x", "child_runs": [{"id": str(i)} for i in range(n)]}).encode(),
    "messages": lambda n: json.dumps(
        {"id": "x", "run_type": "llm", "inputs": {"messages": [{"role": "user", "content": "a"}] * n}}
    ).encode(),
}


@pytest.mark.parametrize("name", OTLP)
def test_reading_otlp_is_linear(name: str) -> None:
    assert_linear(lambda size: lines(lambda: read_otel(OTLP[name](size))), sizes=(50, 100, 200))


@pytest.mark.parametrize("name", LANGSMITH)
def test_reading_langsmith_is_linear(name: str) -> None:
    assert_linear(lambda size: lines(lambda: _quietly(LANGSMITH[name](size))), sizes=(50, 100, 200))


def _quietly(body: bytes) -> None:
    with suppress(Unreadable, RecursionError):
        read_langsmith(body)


QUOTES: dict[str, Callable[[int], str]] = {
    "escaped quotes": lambda n: '{"' + '\\"' * n,
    "escapes at the end": lambda n: '{"' + '\\"' * n + "\\\n",
    "quotes": lambda n: '"' * n,
    "single quotes": lambda n: "content='" + "\\'" * n,
    "names": lambda n: "content='a' " + "name='" * n,
    "web tokens": lambda n: "eyJ-" * n,
    "web tokens with points": lambda n: "eyJaaaaaaaa." * n,
    "addresses": lambda n: "a://b:" * n,
    "bearers": lambda n: "bearer  " * n,
    "private keys": lambda n: "-----BEGIN A " * n,
    "names of parts": lambda n: ';name="' * n,
    "boundaries": lambda n: "boundary=" * n,
    "spaces": lambda n: " " * n,
    "dots": lambda n: ".20200101T000000" * n,
    "digits": lambda n: "1e9" * n,
    "words": lambda n: "api_key_" * n,
}
MODULES: tuple[ModuleType, ...] = (frames, values, batch, messages, stream, multipart, runs, reading)


@pytest.mark.parametrize("name", QUOTES)
def test_patterns_of_readers_are_linear(name: str) -> None:
    for module in MODULES:
        for pattern in (value for value in vars(module).values() if isinstance(value, re.Pattern)):

            def work(size: int, pattern: "re.Pattern[str]" = pattern) -> int:
                text = QUOTES[name](size)
                return steps(pattern, text.encode() if isinstance(pattern.pattern, bytes) else text)

            assert_linear(work, sizes=(20, 40, 80))
