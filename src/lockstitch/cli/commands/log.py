"""`log`, `errors`, `request`, `tail`, `search`."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final
from uuid import UUID

import typer
from rich.text import Text

from lockstitch.cli.options import Limit, Lines, RunName, Since, examples
from lockstitch.cli.references import find_run, find_thread
from lockstitch.cli.render import messages
from lockstitch.cli.render.output import Output, one_line, time
from lockstitch.cli.render.threads import name_of, shown_id
from lockstitch.cli.session import Session, now, session_of
from lockstitch.errors import NotFound
from lockstitch.model import Json, Stitch, Thread
from lockstitch.model.moment import moment_or_none
from lockstitch.store.reports.lines import Cause, cause_key, causes, failure_text
from lockstitch.store.reports.matches import describe_hits, word_pattern
from lockstitch.sync import SyncStore

app = typer.Typer()


@app.command(
    epilog=examples(
        "lockstitch log customer-42",
        "lockstitch log 0198c0de-0000-7000-8000-000000000000 --json | jq '.[].duration_ms'",
    )
)
def log(context: typer.Context, run: RunName) -> None:
    """Show all stitches of a run in order, or of the last run of a thread."""
    session = session_of(context)
    with session.open() as store:
        stitches = store.log(find_run(store, run).id)
    if session.json_output:
        session.out.json([stitch.as_json() for stitch in stitches])
    else:
        session.out.table(messages.COLUMNS, [messages.row(stitch) for stitch in stitches])


_GROUPED: Final = 1000
"""Maximum number of failures that are grouped by cause."""

_NAMED: Final = 10
"""Maximum number of threads that are named for one cause."""


@app.command(
    epilog=examples(
        "lockstitch errors --since 12h", "lockstitch errors --each --limit 5", "lockstitch errors --since 12h --json"
    )
)
def errors(
    context: typer.Context,
    since: Since = None,
    each: Annotated[bool, typer.Option("--each", help="List every failure, newest first.")] = False,
    limit: Limit = 50,
) -> None:
    """Show the failures of all threads and imported traces, grouped by cause. The most frequent cause comes first.

    Each failure is counted once: a run that fails because of a model call is one failure. Failures whose texts differ
    only in ids and numbers have the same cause. With --json, it prints a list of failures, newest first.
    """
    session = session_of(context)
    grouped = not each and not session.json_output
    with session.open() as store:
        start = moment_or_none(since, now(), "--since")
        stitches = store.errors(limit=_GROUPED if grouped else limit, since=start)
        threads = store.threads_by_id({stitch.thread_id for stitch in stitches})
    keys = {thread_id: thread.key for thread_id, thread in threads.items()}
    if session.json_output:
        session.out.json(
            [
                {**stitch.as_json(), "thread_key": keys.get(stitch.thread_id), "cause": cause_key(failure_text(stitch))}
                for stitch in stitches
            ]
        )
        return
    matches = causes(stitches)[:limit] if grouped else stitches
    for number, match in enumerate(matches):
        if number:
            session.out.line()
        if isinstance(match, Cause):
            _show_cause(session.out, match, keys)
        else:
            _show_error(session.out, match, keys.get(match.thread_id))
    if not stitches:
        session.out.note("No errors.")
    if grouped and len(stitches) == _GROUPED:
        session.out.note(f"Only the latest {_GROUPED:,} failures are counted. Use --since.")


def _show_cause(out: Output, cause: Cause, keys: Mapping[UUID, str | None]) -> None:
    last = cause.failures[0]
    head = [Text(f"{len(cause.failures):,}x", style="bold"), messages.kind(last), Text(one_line(cause.name))]
    out.line(Text("  ").join([*(part for part in head if part.plain), Text(f"last {time(last.at)}", style="dim")]))
    if cause.text:
        out.line(cause.text, indent=4)
    names = [one_line(keys.get(thread_id)) or shown_id(out, thread_id) for thread_id in cause.threads]
    label = "thread" if len(names) == 1 else "threads"
    out.line(f"{label} {_limited(names, _NAMED)}", style="dim", indent=4)


def _limited(names: Sequence[str], most: int) -> str:
    """Return the first names, and the number of the remaining ones."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _show_error(out: Output, stitch: Stitch, key: str | None) -> None:
    name = [Text(one_line(stitch.name))] if stitch.name else []
    out.line(Text("  ").join([Text(time(stitch.at), style="dim"), messages.kind(stitch), *name]))
    thread = one_line(key) or shown_id(out, stitch.thread_id)
    out.line(f"thread {thread}:{stitch.position}", style="dim", indent=4)
    if stitch.run_id:
        out.line(f"run    {shown_id(out, stitch.run_id)}", style="dim", indent=4)
    if text := failure_text(stitch):
        out.line(text, indent=4)


@app.command(
    epilog=examples(
        "lockstitch request customer-42:7",
        "lockstitch request 0198c0de-0000-7000-8000-000000000000 > request.json",
    )
)
def request(
    context: typer.Context,
    stitch: Annotated[
        str, typer.Argument(metavar="STITCH", help="A stitch's id, or THREAD:POSITION.", show_default=False)
    ],
) -> None:
    """Print the exact request of a model call, as JSON."""
    session = session_of(context)
    with session.open() as store:
        result = store.request(_stitch_id(store, stitch))
    session.out.json(result)


def _stitch_id(store: SyncStore, name: str) -> str:
    """Return the stitch id for an id or for THREAD:POSITION."""
    thread, colon, position = name.rpartition(":")
    if not colon or not (position.isascii() and position.isdigit()) or len(position) > 18:
        return name
    stitches = store.stitches(find_thread(store, thread), int(position), int(position))
    if not stitches:
        raise NotFound(f"Thread {thread} has no position {position}.")
    return str(stitches[0].id)


@app.command(epilog=examples("lockstitch search refund ada", "lockstitch search 'exact change' --limit 3 --json"))
def search(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="Words that must all occur.", show_default=False)],
    limit: Limit = 20,
) -> None:
    """Search titles, messages, tool calls, tool results and errors. The best matches come first."""
    session = session_of(context)
    text = " ".join(words)
    with session.open() as store:
        matches = store.portal.call(describe_hits(store.async_store, store.search(text, limit=limit), text))
    if session.json_output:
        session.out.json([row for row, _ in matches])
        return
    for number, (row, thread) in enumerate(matches):
        if number:
            session.out.line()
        _print(session, row, thread, words)
    if not matches:
        session.out.note("No matches.")


def _print(session: Session, row: Json, thread: Thread, words: Sequence[str]) -> None:
    where = "title" if row["position"] is None else f"position {row['position']}"
    session.out.line(
        Text("  ").join([Text(shown_id(session.out, thread.id)), Text(where, style="dim"), Text(name_of(thread))])
    )
    line = Text(one_line(row["snippet"]))
    line.highlight_regex(word_pattern(words), "bold yellow")
    session.out.line(line, indent=4)


@app.command(epilog=examples("lockstitch tail --follow", "lockstitch tail customer-42 --lines 50"))
def tail(
    context: typer.Context,
    thread: Annotated[
        str | None, typer.Argument(metavar="THREAD", help="A thread's key, id or short id; else all threads.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new stitches until Ctrl-C.")] = False,
    lines: Lines = 10,
) -> None:
    """Show the newest stitches. With --follow, print new ones as they arrive. With --json, one object per line."""
    session = session_of(context)
    with session.open() as store:
        printer = _Printer(session)
        for stitch in _stitches(store, thread, lines, follow):
            printer.show(stitch)


def _stitches(store: SyncStore, name: str | None, lines: int, follow: bool) -> Iterator[Stitch]:
    if name is None:
        if follow:
            return store.watch(recent=lines)
        return reversed(store.latest(limit=lines) if lines else [])
    thread = find_thread(store, name)
    first = max(thread.position - lines, 0)
    if follow:
        return store.watch(thread.id, after=first)
    return iter(store.stitches(thread, first + 1) if lines else [])


class _Printer:
    """Prints stitches. In a pipe, every line names its thread. On a terminal, a heading names each new thread."""

    def __init__(self, session: Session) -> None:
        self._out = session.out
        self._thread: UUID | None = None

    def show(self, stitch: Stitch) -> None:
        out = self._out
        if out.as_json:
            out.json(stitch.as_json())
        elif out.width is None:
            out.cropped(messages.line(stitch, with_thread=True))
        else:
            if stitch.thread_id != self._thread:
                out.line(f"thread {shown_id(out, stitch.thread_id)}", style="bold")
            out.cropped(messages.line(stitch))
        self._thread = stitch.thread_id
        # A reader of a pipe needs each line at once.
        sys.stdout.flush()
