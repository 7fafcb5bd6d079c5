"""`COLUMNS`: the columns of the list of threads that a user can choose, and their cells."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from lockstitch.model import Run, answer_of, text_of
from lockstitch.model.scores import average_score
from lockstitch.model.searched_text import searched_text
from lockstitch.server.pages.common.content import answer_line, one_line
from lockstitch.server.pages.common.forms import changed
from lockstitch.server.pages.common.rows import ThreadListRow
from lockstitch.store import Store
from lockstitch.store.annotation import feedback_scores
from lockstitch.store.reports.matches import highlighted, snippet

_PREVIEW: Final = 160
"""Maximum number of characters of an input or output."""


class Column(NamedTuple):
    """A column of the list."""

    name: str
    label: str
    sort: str = ""
    """The order that a click on the header selects. Empty: the list cannot be sorted by the column."""
    numeric: bool = False
    title: str = ""


COLUMNS: Final = {
    column.name: column
    for column in (
        Column("agent", "Agent"),
        Column("user", "User"),
        Column("wait", "Waiting for"),
        Column("input", "Input", title="Of the last run"),
        Column("output", "Output", title="Of the last run"),
        Column("model", "Model", "model", title="Of the last run"),
        Column("tags", "Tags"),
        Column("score", "Score", numeric=True, title="Average of the feedback"),
        Column("steps", "Steps", numeric=True),
        Column("latency", "Latency", "latency", numeric=True, title="Duration of the last run"),
        Column("tokens", "Tokens", "tokens", numeric=True, title="Of the ended runs"),
        Column("cost", "Cost", "cost", numeric=True, title="With children"),
        Column("at", "Last stitch", "time", numeric=True),
    )
}
"""All columns by name, in their order on the page. Status, thread and action are always shown."""
DEFAULT: Final = ("agent", "wait", "latency", "tokens", "cost", "at")


async def with_matches(
    store: Store, rows: Sequence[ThreadListRow], positions: Mapping[UUID, int], text: str
) -> list[ThreadListRow]:
    """Return the rows with the text around the words of a search. It reads one stitch of each row."""
    shown: list[ThreadListRow] = []
    for row in rows:
        position = positions.get(row.thread.id)
        stitches = [] if position is None else await store.stitches(row.thread, position, position)
        for stitch in stitches:
            around = snippet(searched_text(stitch.type, stitch.message, stitch.data), text)
            line = [("mark" if matches else "piece", piece) for matches, piece in highlighted(around, text)]
            row = changed(row, line=line)
        shown.append(row)
    return shown


async def with_cells(store: Store, rows: Sequence[ThreadListRow], columns: Sequence[Column]) -> list[ThreadListRow]:
    """Return the rows with the cells that need more than the heads and runs of the threads.

    One query reads at most two stitches of the last run of each row, and only if the page shows inputs or outputs.
    """
    names = {column.name for column in columns}
    scores = await feedback_scores(store, [row.thread.id for row in rows]) if "score" in names else {}
    runs = [row.run for row in rows if row.run is not None] if names & {"input", "output"} else []
    ends = await _ends(store, runs)
    filled: list[ThreadListRow] = []
    for row in rows:
        cells = dict(ends.get(row.thread.id, {}))
        score = average_score(scores.get(row.thread.id, {}))
        if score is not None:
            cells["score"] = f"{score:.2f}".rstrip("0").rstrip(".")
        filled.append(changed(row, cells=cells) if cells else row)
    return filled


async def _ends(store: Store, runs: Sequence[Run]) -> dict[UUID, dict[str, str]]:
    """Return the first line of the input and of the answer of runs of different threads, by thread."""
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
