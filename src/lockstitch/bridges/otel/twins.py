"""Two spans that tell of one model call: an SDK tells of its own calls, and so does whoever instrumented it."""

from lockstitch.bridges.span import Meaning, Piece


def same_call(one: tuple[Piece, Meaning], other: tuple[Piece, Meaning]) -> bool:
    """Whether both tell of the same model call, in one trace or in two.

    They name the same response of the same provider, and the one went on while the other did. The times matter: what
    stands behind an endpoint (a gateway with a cache, a server of one's own) may give every response the same id. A
    call that failed has no response to name; then the one is the other's own child.
    """
    (piece, meaning), (twin, meant) = one, other
    if meaning.role != "llm" or meant.role != "llm":
        return False
    if meaning.response_id is None or meant.response_id is None:
        return _is_child(piece, twin) or _is_child(twin, piece)
    if (meaning.provider, meaning.response_id) != (meant.provider, meant.response_id):
        return False
    return _begins_during(piece, twin) or _begins_during(twin, piece)


def tells_more(one: tuple[Piece, Meaning], other: tuple[Piece, Meaning]) -> bool:
    """Whether of two spans of one call the first is to be kept: it has the content, or else it is around the other."""
    (piece, meaning), (twin, meant) = one, other
    if meaning.has_content != meant.has_content:
        return meaning.has_content
    if piece.get("start") != twin.get("start"):
        return piece.get("start", "~") < twin.get("start", "~")
    return (twin.get("end", ""), twin.get("id", "")) < (piece.get("end", ""), piece.get("id", ""))


def _is_child(inner: Piece, outer: Piece) -> bool:
    return "id" in outer and inner.get("parent_id") == outer["id"]


def _begins_during(inner: Piece, outer: Piece) -> bool:
    begin, start, end = inner.get("start"), outer.get("start"), outer.get("end")
    return begin is None or start is None or (start <= begin and (end is None or begin <= end))
