"""Content at a limit: rejected, or read back as the JSON that was written."""

from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from lockstitch.errors import LockstitchError
from lockstitch.model import codec
from lockstitch.store import Store
from tests.hostile.contents import entry, nested

pytestmark = pytest.mark.anyio


class Colour(Enum):
    RED = "red"


EITHER: dict[str, Any] = {
    **{f"{depth} deep": nested(depth) for depth in range(240, 258, 3)},
    "300 deep next to a large integer": [2**70, nested(300)],
    "an integer of 4,300 digits": 10**4299,
    "an integer of 4,301 digits": 10**4300,
    "a tuple": (1, 2),
    "a tuple next to a large integer": (2**70, (1,)),
    "a UUID": UUID(int=7),
    "an enumeration": Colour.RED,
}


async def test_value_is_rejected_or_stored_as_same_json(store: Store) -> None:
    for name, value in EITHER.items():
        head = await store.create()
        try:
            await store.append(head, [entry(value)], fields={"state": {"value": value}})
            await store.deliver(head, entry(value).changed(type="note"), kind="timer", sender="ada")
        except LockstitchError:
            continue
        expected = codec.dumps(value)
        stitches = await store.stitches(head)
        stored_values = [(await store.thread(head)).state, *(stitch.data for stitch in stitches)]
        assert [codec.dumps(stored_value["value"]) for stored_value in stored_values] == [expected] * 3, name
    assert (await store.verify()).problems == []


async def test_long_text_of_rare_characters_is_stored(store: Store) -> None:
    """Every word is different and has characters of four bytes: the most that a word index has to accept."""
    words = [chr(0x20000 + number % 40_000) + chr(0x20000 + number * 7 % 39_989) for number in range(90_000)]
    text = " ".join(words)
    head = await store.create()
    head = (await store.append(head, [entry("x"), entry(text).changed(message={"role": "user", "content": text})])).head
    assert (await store.stitches(head, 2))[0].message == {"role": "user", "content": text}
    await store.search("anything")
