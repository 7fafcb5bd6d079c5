"""`plain`: objects of Agno as JSON. `history_runs`: the runs of a session as objects, each built once per process.

Agno reads a session before each turn. Without this, a turn would build the objects of all earlier runs again. Agno does
not change the runs that it has read, so that sessions can share them; its own databases share them, too.
"""

# pyright: basic, reportMissingImports=false

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from agno.db.utils import deserialize_history_run, json_serializer

from lockstitch.integrations.agno.sessions import RunText
from lockstitch.model import codec

_MOST: Final = 10_000
"""Runs whose objects stay in memory."""

_objects: OrderedDict[str, tuple[str, Any]] = OrderedDict()
"""Texts and objects of runs, by the id of the run."""


def plain(value: Any) -> Any:
    """Return a value as JSON values, as Agno's own databases store it: a time becomes a text, for example."""
    return codec.loads(json_serializer(value))


def history_runs(runs: Sequence[RunText]) -> list[Any]:
    """Return the objects of runs, without those that Agno cannot read."""
    objects: list[Any] = []
    for run in runs:
        known = _objects.get(run.run_id)
        if known is None or (known[0] is not run.text and known[0] != run.text):
            known = (run.text, deserialize_history_run(codec.loads(run.text)))
            _objects[run.run_id] = known
            if len(_objects) > _MOST:
                _objects.popitem(last=False)
        if known[1] is not None:
            objects.append(known[1])
    return objects
