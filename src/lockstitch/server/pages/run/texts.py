"""Where a row's text stands, and the whole of it when somebody wants more than its beginning."""

import re
from typing import Any, Final, NamedTuple, cast

from lockstitch.errors import NotFound
from lockstitch.records import Run, Stitch, as_id, codec
from lockstitch.store import Store

_AT: Final = re.compile(r"(?:([0-9a-f-]{36})\.)?([0-9]{1,9})(?:-([0-9]{1,5}))?")


class Place(NamedTuple):
    """What a row is about: a run, or a stitch; of a call without result the response that asks for it."""

    run: Run | None = None
    stitch: Stitch | None = None
    call: int | None = None


async def place(store: Store, run: Run, at: str) -> Place:
    """What the name of a row means. NotFound when it is no such name, or names what is not there."""
    if at in ("", "run"):
        return Place(run=run)
    if at.startswith("run-"):
        return Place(run=await store.run(at.removeprefix("run-")))
    known = _AT.fullmatch(at)
    if known is None:
        raise NotFound(f"There is no row {at[:80]} in this run.")
    thread_id = as_id(known[1]) if known[1] else run.thread_id
    if thread_id is None:
        raise NotFound(f"There is no row {at[:80]} in this run.")
    position = int(known[2])
    found = await store.stitches(thread_id, position, position)
    if not found:
        raise NotFound(f"There is no stitch at position {position}; it may have been removed since.")
    return Place(stitch=found[0], call=int(known[3]) if known[3] else None)


async def whole(store: Store, run: Run, at: str, of: str, pointer: str) -> str:
    """A part of a stitch, of its request, or of a run, named by where it stands in its JSON."""
    found = await place(store, run, at)
    value: Any
    if of == "request" and found.stitch is not None:
        value = await store.request(found.stitch.id)
    else:
        value = (found.stitch or found.run or run).as_json()
    for name in pointer.split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name.isdecimal() and int(name) < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[int(name)]
        elif isinstance(value, dict) and name in value:
            value = cast("dict[str, Any]", value)[name]
        else:
            raise NotFound("There is no such text here.")
    return value if isinstance(value, str) else codec.dumps(value).decode()


def step(pointer: str, name: object) -> str:
    """One level further down."""
    return f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"
