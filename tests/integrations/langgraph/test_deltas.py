"""Values of channels as differences of bytes."""

import random
from uuid import UUID

import ormsgpack
import pytest

from lockstitch.integrations.langgraph.deltas import LONGEST_CHAIN, LatestValue, Place, decode, encode
from lockstitch.integrations.langgraph.records import ChannelValue

PLACE = Place(UUID(int=1), "", "messages")


def written(contents: list[bytes]) -> list[ChannelValue]:
    rows: list[ChannelValue] = []
    latest: LatestValue | None = None
    for number, content in enumerate(contents):
        latest = encode(PLACE, f"{number:012}", "msgpack", content, latest)
        rows.append(latest.row)
    return rows


def read(rows: list[ChannelValue], *, known: dict[str, bytes]) -> list[bytes]:
    by_version = {row.version: row for row in rows}
    contents: list[bytes] = []
    for row in rows:
        contents.append(decode(row, by_version, known).content)
        known.setdefault(row.version, contents[-1])
    return contents


@pytest.mark.parametrize("seed", range(5))
def test_values_are_read_back_unchanged(seed: int) -> None:
    chance = random.Random(seed)
    value: list[str] = []
    contents: list[bytes] = []
    for _ in range(120):
        change = chance.random()
        if change < 0.8:
            value.append("x" * chance.randrange(400))
        elif change < 0.9 and value:
            value[chance.randrange(len(value))] = "changed"
        else:
            value = value[: chance.randrange(len(value) + 1)]
        contents.append(ormsgpack.packb(value))
    rows = written(contents)
    assert read(rows, known={}) == contents
    backwards = {row.version: row for row in rows}
    for row, content in reversed([*zip(rows, contents, strict=True)]):
        value_of_row = decode(row, backwards, {})
        assert value_of_row.content == content
    assert any(row.base for row in rows)


def test_growing_list_costs_little_more_than_its_elements() -> None:
    element = "e" * 1_000
    contents = [ormsgpack.packb([element] * number) for number in range(1, 401)]
    rows = written(contents)
    assert sum(len(row.content) for row in rows) < 4 * len(contents[-1])
    assert max(row.depth for row in rows) <= LONGEST_CHAIN


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((b"x" * 1_000, "json", "1"), (b"x" * 1_001, "msgpack", "2")),
        ((b"x" * 1_000, "json", "2"), (b"x" * 1_001, "json", "10")),
        ((b"x" * 1_000, "json", "1"), (b"y" * 1_001, "json", "2")),
        ((b"x" * 10, "json", "1"), (b"x" * 11, "json", "2")),
    ],
    ids=["other encoding", "versions do not sort", "nothing in common", "small"],
)
def test_value_is_whole_without_a_base_that_helps(
    first: tuple[bytes, str, str], second: tuple[bytes, str, str]
) -> None:
    latest = encode(PLACE, first[2], first[1], first[0], None)
    row = encode(PLACE, second[2], second[1], second[0], latest).row
    assert (row.base, row.content) == (None, second[0])
