"""`ends_of()`: the input and the answer of runs, each on one line."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from lockstitch.model import Run, answer_of, text_of
from lockstitch.server.pages.common.content import answer_line, one_line
from lockstitch.store import Store

_PREVIEW: Final = 160
"""Maximum number of characters of an input or output."""


async def ends_of(store: Store, runs: Sequence[Run]) -> dict[UUID, dict[str, str]]:
    """Return the first line of the input and of the answer of runs of different threads, by thread.

    One query reads at most two stitches of each run.
    """
    cells: dict[UUID, dict[str, str]] = {run.thread_id: {} for run in runs}
    places: dict[tuple[UUID, int], str] = {}
    for run in runs:
        if run.is_trace:
            output = answer_line(run.imported_answer, _PREVIEW) if run.imported_answer else ""
            cells[run.thread_id] = {"input": one_line(run.imported_input, _PREVIEW), "output": output}
            continue
        for position, name in ((run.input_position, "input"), (run.output_position, "output")):
            if position is not None:
                places[run.thread_id, position] = name
    for stitch in await store.stitches_at(list(places)):
        name = places[stitch.thread_id, stitch.position]
        text = text_of(stitch.message) if name == "input" else answer_of(stitch.message) or text_of(stitch.message)
        cells[stitch.thread_id][name] = one_line(text, _PREVIEW) if name == "input" else answer_line(text, _PREVIEW)
    return cells
