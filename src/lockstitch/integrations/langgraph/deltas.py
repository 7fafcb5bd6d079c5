"""Values of channels as differences of bytes: `encode` and `decode`. Both are pure.

A list that grows has a new length in the header of its msgpack text and new bytes at its end. So a difference
leaves out the header and keeps the bytes that both versions have in common from the first element on.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from lockstitch.integrations.langgraph.records import ChannelValue

LONGEST_CHAIN: Final = 1000
"""Number of differences after which a value is written whole."""

SMALLEST: Final = 256
"""Bytes of a value below which it is always written whole."""

FREE_BYTES: Final = 16_384
"""Bytes of differences that may follow any whole value."""


class Place(NamedTuple):
    """Where a value belongs."""

    thread_id: UUID
    ns: str
    channel: str


class LatestValue(NamedTuple):
    """The last value of a channel that a saver wrote or read."""

    row: ChannelValue
    content: bytes
    """The whole bytes of the value."""
    chain_bytes: int
    """Bytes of the differences since the whole value."""


def encode(place: Place, version: str, encoding: str, content: bytes, latest: LatestValue | None) -> LatestValue:
    """Return the row of a new value: a difference to the latest one, if that is much smaller.

    It is whole again once the differences since the last whole value are as large as the value. So the sum of all rows
    is at most a constant times the content.
    """
    whole = ChannelValue(**place._asdict(), version=version, encoding=encoding, root=version, content=content)
    if latest is None or len(content) <= SMALLEST:
        return LatestValue(whole, content, 0)
    base = latest.row
    if base.depth >= LONGEST_CHAIN or base.encoding != encoding or base.version >= version:
        return LatestValue(whole, content, 0)
    head, skip = _header_size(content), _header_size(latest.content)
    common = _common_prefix(latest.content[skip:], content[head:])
    chain_bytes = latest.chain_bytes + len(content) - common
    if common <= len(content) // 2 or chain_bytes > max(len(content), FREE_BYTES):
        return LatestValue(whole, content, 0)
    row = whole.changed(
        base=base.version,
        root=base.root,
        depth=base.depth + 1,
        skip=skip,
        common=common,
        head=head,
        content=content[:head] + content[head + common :],
    )
    return LatestValue(row, content, chain_bytes)


def decode(row: ChannelValue, rows: Mapping[str, ChannelValue], known: Mapping[str, bytes]) -> LatestValue:
    """Return a value with its whole bytes.

    Args:
        row: Row of the value.
        rows: Rows of the channel by version, at least those between the root and the row.
        known: Whole bytes of some versions.
    """
    chain = [row]
    while (base := chain[-1].base) is not None:
        chain.append(rows[base])
    whole = chain.pop()
    chain.reverse()
    start = next((place for place in range(len(chain), 0, -1) if chain[place - 1].version in known), 0)
    content = known[chain[start - 1].version] if start else whole.content
    for step in chain[start:]:
        content = step.content[: step.head] + content[step.skip : step.skip + step.common] + step.content[step.head :]
    return LatestValue(row, content, sum(len(step.content) for step in chain))


def _header_size(content: bytes) -> int:
    """Return the number of bytes before the first element of a msgpack array or map; 0 for any other value."""
    first = content[0] if content else 0
    if 0x80 <= first <= 0x9F:
        return 1
    return {0xDC: 3, 0xDE: 3, 0xDD: 5, 0xDF: 5}.get(first, 0)


def _common_prefix(a: bytes, b: bytes) -> int:
    """Return the length of the common prefix. Comparisons of slices of `bytes` are fast, those of views are not."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
