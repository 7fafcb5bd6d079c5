"""Lists and objects that were flattened into attribute names, such as `llm.input_messages.0.message.role`."""

from typing import Any, cast

from lockstitch.records import Json


def gather(attributes: Json, prefix: str) -> Any:
    """Takes the numbered attributes below a prefix out, as the list they were; None if there are none.

    Numbers in the names are places of a list, and the prefix itself is one. They only order: a place far out makes no
    long list.
    """
    start = prefix + "."
    names = [name for name in attributes if name.startswith(start) and _is_place(name[len(start) :])]
    if not names:
        return None
    tree: Json = {}
    for name in names:
        node = tree
        *way, last = name[len(start) :].split(".")[:_DEEPEST]
        for step in way:
            below: Any = node.get(step)
            if not isinstance(below, _Node):
                # A name may be a leaf and a branch at once; the leaf then stands under "".
                node[step] = below = _Node() if below is None else _Node({"": below})
            node = below
        if isinstance(node.get(last), _Node):
            node[last][""] = attributes.pop(name)
        else:
            node[last] = attributes.pop(name)
    return _settled(tree)


_DEEPEST = 30


def _is_place(rest: str) -> bool:
    place = rest.split(".", 1)[0]
    return place.isascii() and place.isdigit() and len(place) < 10


class _Node(dict[str, Any]):
    """A branch, so that an object that came as a value is not taken for one."""


def _settled(node: Json) -> Any:
    settled: Json = {
        key: _settled(cast("Json", value)) if isinstance(value, _Node) else value for key, value in node.items()
    }
    if settled and all(_is_place(key) for key in settled):
        return [settled[key] for key in sorted(settled, key=int)]
    return settled
