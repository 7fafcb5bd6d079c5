"""Reading any bytes yields items or raises `Unreadable`, and always ends."""

import gzip
import json
import random
import tracemalloc
from collections import deque
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from lockstitch.errors import Unreadable
from lockstitch.integrations.langsmith import LangSmith, read
from lockstitch.integrations.spans.span import Attachment, Item, SpanFeedback
from tests.integrations.langsmith.recorded import FIXTURES, FOLDERS, body, runs_of
from tests.model.properties import quick

BODIES = sorted(FIXTURES.glob("*/*.body"))


def _read(data: bytes) -> list[Item]:
    """Return the items before the error, if there is one."""
    items: list[Item] = []
    reading = read(data, "damaged")
    while True:
        try:
            items.append(next(reading))
        except (StopIteration, Unreadable):
            return items


@quick
@given(st.binary() | st.text().map(str.encode))
def test_reads_any_bytes(data: bytes):
    _read(data)
    _read(gzip.compress(data))
    _read(zstandard.compress(data))
    _read(b"--x\r\n" + data)


@pytest.mark.parametrize("file", BODIES, ids=lambda file: f"{file.parent.name}-{file.name[:3]}")
def test_reads_recorded_bodies_with_changed_bytes(file: Any):
    chance = random.Random(file.name)
    recorded_bytes = file.read_bytes()
    for _ in range(40):
        data = bytearray(recorded_bytes)
        for _ in range(chance.randint(1, 5)):
            place = chance.randrange(len(data))
            change = chance.randrange(3)
            if change == 0:
                data[place] = chance.randrange(256)
            elif change == 1:
                del data[place : place + chance.randint(1, 50)]
            else:
                data[place:place] = chance.randbytes(5)
        for item in _read(bytes(data)):
            if not isinstance(item, Attachment | SpanFeedback):
                LangSmith().facts(item)


@pytest.mark.parametrize("folder", [name for name in FOLDERS if name.startswith(("zstd_two", "js_full", "batch"))])
def test_incomplete_body_yields_first_items(folder: str):
    """If a body is cut at any byte, the items are the first items of the complete body."""
    data = body(folder)
    items = _read(data)
    for place in range(1, len(data), len(data) // 60):
        partial = _read(data[:place])
        assert partial == items[: len(partial)]


class _Endless:
    """A list of runs that is generated while it is read."""

    def __init__(self, number: int) -> None:
        runs = runs_of("batch_invoke")
        self._parts = (b"," + json.dumps(runs[index % len(runs)]).encode() for index in range(number))
        self._left = b"["
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        while len(self._left) < size and (part := next(self._parts, None)):
            self._left += part if self._left != b"[" else part[1:]
        chunk, self._left = self._left[:size], self._left[size:]
        self.size += len(chunk)
        return chunk


def test_memory_does_not_grow_with_file():
    def peak(number: int) -> int:
        source: Any = _Endless(number)
        tracemalloc.start()
        with pytest.raises(Unreadable, match="middle of a record"):
            deque(read(source, "endless"), maxlen=0)
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert source.size > 2500 * number
        return highest

    small, large = peak(600), peak(1500)
    assert large < small * 1.5
    assert large < 16 << 20
