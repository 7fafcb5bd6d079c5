"""`COLUMNS`: the columns of the list of threads that a user can choose, and their cells."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from lockstitch.model.scores import average_score
from lockstitch.model.searched_text import searched_text
from lockstitch.server.pages.common.forms import changed
from lockstitch.server.pages.common.rows import ThreadListRow
from lockstitch.server.pages.common.run_ends import ends_of
from lockstitch.store import Store
from lockstitch.store.annotation import feedback_scores
from lockstitch.store.reports.matches import highlighted, snippet


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
        Column(
            "score",
            "Score",
            numeric=True,
            title="Average of the feedback. Without order: feedback does not change its thread.",
        ),
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

    One query reads at most two stitches of the last run of each row, and only if the page shows inputs or outputs. All
    runs are read only if the page shows steps or tags.
    """
    names = {column.name for column in columns}
    every = await store.find_runs([row.thread.id for row in rows]) if rows and names & {"steps", "tags"} else []
    steps, tags = Counter[UUID](), defaultdict[UUID, dict[str, None]](dict)
    for run in every:
        steps[run.thread_id] += run.steps
        tags[run.thread_id] |= dict.fromkeys(run.tags)
    scores = await feedback_scores(store, [row.thread.id for row in rows]) if "score" in names else {}
    runs = [row.run for row in rows if row.run is not None] if names & {"input", "output"} else []
    ends = await ends_of(store, runs)
    filled: list[ThreadListRow] = []
    for row in rows:
        cells = {"steps": f"{steps[row.thread.id]:,}", **ends.get(row.thread.id, {})}
        score = average_score(scores.get(row.thread.id, {}))
        if score is not None:
            cells["score"] = f"{score:.2f}".rstrip("0").rstrip(".")
        filled.append(changed(row, cells=cells, tags=list(tags[row.thread.id])))
    return filled
