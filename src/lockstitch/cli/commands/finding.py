"""`search`: where something was said."""

import re
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from lockstitch.backend import Hit
from lockstitch.cli.forest import name_of
from lockstitch.cli.parameters import Limit, examples
from lockstitch.cli.session import Session, session_of
from lockstitch.cli.text import one_line
from lockstitch.records import Json, Thread, text_of
from lockstitch.sync import SyncStore

app = typer.Typer()

_BEFORE, _LENGTH = 60, 200


@app.command(epilog=examples("lockstitch search refund ada", "lockstitch search 'exact change' --limit 3 --json"))
def search(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="All of them must be there.", show_default=False)],
    limit: Limit = 20,
) -> None:
    """Search titles, inputs and answers; the best first."""
    session = session_of(context)
    text = " ".join(words)
    with session.open() as store:
        found = [_described(store, hit, text) for hit in store.search(text, limit=limit)]
    if session.as_json:
        session.out.json([row for row, _ in found])
        return
    for number, (row, thread) in enumerate(found):
        if number:
            session.out.line()
        _print(session, row, thread, words)
    if not found:
        session.out.note("Nothing found.")


def _described(store: SyncStore, hit: Hit, text: str) -> tuple[Json, Thread]:
    thread = store.thread(hit.thread_id)
    run_id = None
    content = thread.title or ""
    if hit.position is not None:
        stitch = next(iter(store.stitches(thread, hit.position, hit.position)), None)
        content = text_of(stitch.message) if stitch else ""
        run_id = str(stitch.run_id) if stitch and stitch.run_id else None
    row: Json = {
        "thread_id": str(thread.id),
        "key": thread.key,
        "title": thread.title,
        "position": hit.position,
        "run_id": run_id,
        "score": hit.score,
        "snippet": snippet(content, text),
    }
    return row, thread


def snippet(content: str, text: str) -> str:
    """What stands around the first of the words."""
    content = " ".join(content.split())
    found = _pattern(text.split()).search(content)
    start = max(0, found.start() - _BEFORE) if found else 0
    # Not in the middle of a word, if one ends nearby.
    start = content.rfind(" ", 0, start) + 1 if start else 0
    piece = content[start : start + _LENGTH]
    return f"{'…' if start else ''}{piece}{'…' if start + _LENGTH < len(content) else ''}"


def _pattern(words: Sequence[str]) -> re.Pattern[str]:
    parts = [part for word in words for part in re.findall(r"[^\W_]+", word)]
    return re.compile("|".join(rf"\b{re.escape(part)}\b" for part in parts) or r"(?!)", re.IGNORECASE)


def _print(session: Session, row: Json, thread: Thread, words: Sequence[str]) -> None:
    where = "title" if row["position"] is None else f"position {row['position']}"
    session.out.line(Text("  ").join([Text(str(thread.id)), Text(where, style="dim"), Text(name_of(thread))]))
    line = Text(one_line(row["snippet"]))
    line.highlight_regex(_pattern(words), "bold yellow")
    session.out.line(line, indent=4)
