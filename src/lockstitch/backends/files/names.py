"""File names made of keys, which may contain anything.

A key of small letters, digits and `_.-` is its own name. Any other is made readable and told apart by a hash,
so that neither `../..`, a slash, a very long text nor two keys that differ in case only can meet another file.
"""

import re
from collections.abc import Sequence
from typing import Any

from lockstitch.records import codec

LONGEST = 120
"""Characters of a key that stand in a name; file systems take 255 bytes, and a hash and an ending follow."""

_PLAIN = re.compile(r"[a-z0-9_][a-z0-9_.-]*|")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


def name_of(key: Sequence[Any]) -> str:
    """The name, without its ending, of the file that belongs to a key."""
    parts = [str(part) for part in key]
    readable = ",".join(_UNSAFE.sub("_", part) for part in parts)
    if readable and all(map(_PLAIN.fullmatch, parts)) and len(readable) <= LONGEST:
        return readable
    if readable.startswith("."):
        # It would be hidden, and such names are those of temporary files.
        readable = f"_{readable}"
    return f"{readable[:LONGEST]}~{codec.digest(parts)[:32]}"


def prefix_of(key: Sequence[Any]) -> str:
    """How every name begins whose key begins with these parts; empty when that cannot be said."""
    parts = [str(part) for part in key]
    prefix = "".join(f"{part}," for part in parts)
    return prefix if all(map(_PLAIN.fullmatch, parts)) and len(prefix) <= LONGEST else ""
