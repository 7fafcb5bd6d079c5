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
from lockstitch.store import Store, Where
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

    A page reads at most two stitches of the last run of each row, and only if it shows inputs or outputs.
    """
    names = {column.name for column in columns}
    scores = await feedback_scores(store, [row.thread.id for row in rows]) if "score" in names else {}
    filled: list[ThreadListRow] = []
    for row in rows:
        cells: dict[str, str] = {}
        if names & {"input", "output"} and row.run is not None:
            cells |= await _ends(store, row.run)
        score = average_score(scores.get(row.thread.id, {}))
        if score is not None:
            cells["score"] = f"{score:.2f}".rstrip("0").rstrip(".")
        filled.append(changed(row, cells=cells) if cells else row)
    return filled


async def _ends(store: Store, run: Run) -> dict[str, str]:
    """Return the first line of the input and of the answer of a run."""
    if run.is_trace:
        return {
            "input": one_line(run.imported_input, _PREVIEW),
            "output": answer_line(run.imported_answer, _PREVIEW) if run.imported_answer else "",
        }
    places = {run.input_position: "input", run.output_position: "output"}
    positions = [position for position in places if position is not None]
    if not positions:
        return {}
    stitches = await store.find_stitches(run.thread_id, Where("position", "in", positions))
    cells: dict[str, str] = {}
    for stitch in stitches:
        name = places[stitch.position]
        text = text_of(stitch.message) if name == "input" else answer_of(stitch.message) or text_of(stitch.message)
        cells[name] = one_line(text, _PREVIEW) if name == "input" else answer_line(text, _PREVIEW)
    return cells
