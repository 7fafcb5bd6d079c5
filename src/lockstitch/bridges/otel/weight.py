"""How much memory a record would take once it is read, told from its bytes alone.

A limit on length is not enough: two bytes of JSON or protobuf can become hundreds in memory, so 32 MB of brackets would
take gigabytes. What begins a value is counted instead, which is quick, and too much rather than too little.
"""

from lockstitch.bridges.otel.framing import Frame

HEAVIEST = 256 * 1024 * 1024

# What each of these bytes may begin, in bytes of memory. They stand in texts too, where JSON may be hidden.
_IN_JSON = {b"{": 230, b"[": 60, b",": 40}
# The tags of everything that OTLP repeats: attributes, values of lists, spans, events, links.
_IN_PROTOBUF = {b"\x0a": 120, b"\x12": 120, b"\x4a": 120, b"\x5a": 120, b"\x6a": 120}


def weight(frame: Frame) -> int:
    """A guess at the bytes of memory that a record takes."""
    signs = _IN_JSON if frame.form == "json" else {**_IN_JSON, **_IN_PROTOBUF}
    return 2 * len(frame.body) + sum(frame.body.count(sign) * each for sign, each in signs.items())
