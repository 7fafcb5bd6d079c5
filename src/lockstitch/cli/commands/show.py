"""`show`, `context`, `history`."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from lockstitch.cli.options import Before, Limit, Offset, ThreadName, examples
from lockstitch.cli.references import find, find_run, find_thread
from lockstitch.cli.render import messages, run_tree
from lockstitch.cli.render.output import Output, TableColumn, cost, one_line, plural, time
from lockstitch.cli.render.threads import name_of, shown_id, status, status_line, tasks_done
from lockstitch.cli.session import session_of
from lockstitch.errors import Refused
from lockstitch.model import Json, Message, Run, Thread
from lockstitch.store import Turn
from lockstitch.store.queries.overview import Overview
from lockstitch.store.reports.traces import LINES, Trace
from lockstitch.sync import SyncStore

app = typer.Typer()

_RUNS = 20


@app.command(
    epilog=examples(
        "lockstitch show customer-42",
        "lockstitch show 0198c0de-0000-7000-8000-000000000000 --depth 2",
        "lockstitch show RUN OTHER-RUN",
    )
)
def show(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="THREAD|RUN [RUN]",
            help="A thread or a run, also of an imported trace, by key, id or short id. Two runs: show the difference. "
            "For a thread, its last run is compared.",
            show_default=False,
        ),
    ],
    with_stitches: Annotated[bool, typer.Option("--stitches", help="Also show the whole log of a thread.")] = False,
    with_messages: Annotated[bool, typer.Option("--messages", help="Also show the messages of a run.")] = False,
    depth: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Maximum number of levels of a run's tree.")
    ] = None,
    limit: Limit = LINES,
) -> None:
    """Show a thread, a run as a tree, or the difference of two runs."""
    session = session_of(context)
    if len(names) > 2:
        raise Refused("Pass one thread or run, or two runs to compare.")
    with session.open() as store:
        if len(names) == 2:
            first, second = (find_run(store, name).id for name in names)
            run_tree.show_difference(session.out, store.difference(first, second))
            return
        result = find(store, names[0])
        if isinstance(result, Thread):
            _show_thread(session.out, store, result, with_stitches)
        else:
            messages = store.messages(result.id) if with_messages else None
            _show_run(session.out, store.trace(result.id, depth=depth, limit=limit), messages)


def _show_thread(out: Output, store: SyncStore, thread: Thread, with_stitches: bool) -> None:
    overview = store.overview([thread])[0]
    runs, children, ancestors = store.runs(thread), store.children(thread), store.ancestors(thread)
    log = store.stitches(thread) if with_stitches else []
    if out.as_json:
        out.json(
            {
                **thread.as_json(),
                "usage": overview.usage,
                "total_cost": overview.total_cost,
                "error": overview.error,
                "runs": [run.as_json() for run in runs],
                "children": [str(child.id) for child in children],
                "ancestors": [str(ancestor.id) for ancestor in ancestors],
                **({"stitches": [stitch.as_json() for stitch in log]} if with_stitches else {}),
            }
        )
        return
    out.fields(_thread_fields(thread, overview))
    if ancestors:
        out.line()
        _show_family(out, "ABOVE", ancestors)
    if runs:
        out.line()
        out.table(_RUN_COLUMNS, [_run_row(out, run) for run in runs[-_RUNS:]])
    if len(runs) > _RUNS:
        out.note(f"The last {_RUNS} of {plural(len(runs), 'run')}. Use --json for all.")
    if children:
        out.line()
        _show_family(out, "CHILD", children)
    if log:
        out.line()
        out.table(messages.COLUMNS, [messages.row(stitch) for stitch in log])


def _show_family(out: Output, title: str, threads: Sequence[Thread]) -> None:
    columns = [
        TableColumn(title),
        TableColumn("STATUS"),
        TableColumn("STITCHES", right=True),
        TableColumn("NAME", flexible=True),
    ]
    out.table(
        columns, [[str(thread.id), status(thread), f"{thread.position:,}", name_of(thread)] for thread in threads]
    )


def _thread_fields(thread: Thread, overview: Overview) -> list[tuple[str, str]]:
    holder = f"held by worker {thread.worker_id}" if thread.held else "not held"
    version = f" v{thread.version}" if thread.version else ""
    return [
        ("thread", str(thread.id)),
        ("key", thread.key or ""),
        ("title", one_line(thread.title)),
        ("goal", one_line(thread.goal)),
        ("status", status_line(thread)),
        ("reason", " ".join(dict.fromkeys(one_line(wait.reason) for wait in thread.waits if wait.reason))),
        ("kind", thread.kind),
        ("agent", f"{thread.agent}{version}" if thread.agent else ""),
        ("project", thread.project),
        ("user", thread.user_id or ""),
        ("forked from", _origin(thread)),
        ("tasks", tasks_done(thread)),
        ("position", f"{thread.position:,} ({holder}, fence {thread.fence})"),
        ("tokens", tokens(overview.usage)),
        ("cost", cost(overview.total_cost)),
        ("error", one_line(overview.error)),
        ("created", time(thread.created_at)),
        ("updated", time(thread.updated_at)),
        ("expires", time(thread.expires_at)),
    ]


def _origin(thread: Thread) -> str:
    """Return the thread and the position at which a fork starts; empty if the thread is no fork."""
    origin: Json | None = thread.state.get("forked_from")
    return f"{origin['thread_id']} at position {origin['position']}" if origin else ""


_RUN_COLUMNS = [
    TableColumn("#", right=True),
    TableColumn("RUN"),
    TableColumn("STATUS"),
    TableColumn("STEPS", right=True),
    TableColumn("TOKENS", right=True),
    TableColumn("STARTED", from_width=100),
    TableColumn("AGENT", flexible=True),
]


def _run_row(out: Output, run: Run) -> list[str]:
    total = f"{run.input_tokens + run.output_tokens:,}"
    # A nested run: a team member that works for its leader.
    agent = f"{'↳ ' if run.parent_run_id else ''}{one_line(run.agent)}"
    return [str(run.sequence), shown_id(out, run.id), run.status, str(run.steps), total, time(run.started_at), agent]


def _show_run(out: Output, traced: Trace, lines: Sequence[Message] | None) -> None:
    run = traced.run
    if out.as_json:
        out.json({**traced.as_json(), **({} if lines is None else {"messages": lines})})
        return
    reason = f" ({run.stop_reason})" if run.stop_reason else ""
    model = " ".join(part for part in (run.provider, run.model) if part)
    out.fields(
        [
            ("run", str(run.id)),
            ("thread", str(run.thread_id)),
            ("number", f"run {run.sequence}, turn {run.turn}"),
            ("parent", str(run.parent_run_id or "")),
            ("imported", f"{run.source} {one_line(run.foreign_id)}" if run.foreign_id else ""),
            ("status", f"{run.status}{reason}"),
            ("agent", run.agent or ""),
            ("model", model),
            ("steps", str(run.steps)),
            ("tokens", tokens(run.usage)),
            ("cost", cost(run.total_cost)),
            ("error", one_line(run.error)),
            ("started", time(run.started_at)),
            ("completed", time(run.completed_at)),
        ]
    )
    out.line()
    run_tree.show(out, traced)
    if lines is not None:
        out.line()
        messages.show(out, lines)


def tokens(usage: dict[str, int]) -> str:
    """Return the token counts as text. Cache counts are omitted if they are 0."""
    cache = [
        (usage["cache_creation_input_tokens"], "written to cache"),
        (usage["cache_read_input_tokens"], "read from cache"),
    ]
    extra = "".join(f", {number:,} {label}" for number, label in cache if number)
    return f"{usage['input_tokens']:,} in, {usage['output_tokens']:,} out{extra}"


@app.command(epilog=examples("lockstitch context customer-42", "lockstitch context customer-42 --json | jq length"))
def context(context: typer.Context, thread: ThreadName) -> None:
    """Show the messages that the model would receive now."""
    session = session_of(context)
    with session.open() as store:
        matches = store.context(find_thread(store, thread))
    if session.json_output:
        session.out.json(matches)
    elif matches:
        messages.show(session.out, matches)
    else:
        session.out.note("The context is empty.")


@app.command(
    epilog=examples(
        "lockstitch history customer-42 --limit 5",
        "lockstitch history customer-42 --before 96 --json",
    )
)
def history(
    context: typer.Context,
    thread: ThreadName,
    limit: Limit = 20,
    offset: Offset = 0,
    before: Before = None,
) -> None:
    """Show finished turns, newest first."""
    session = session_of(context)
    with session.open() as store:
        page = store.history(find_thread(store, thread), limit=limit, offset=offset, before=before)
    if session.json_output:
        session.out.json([turn.as_json() for turn in page.turns])
        return
    for number, turn in enumerate(page.turns):
        if number:
            session.out.line()
        _show(session.out, turn)
    if not page.turns:
        session.out.note("No finished turns.")
    if page.has_more:
        session.out.note(f"There are more. Use --before {page.turns[-1].run.turn}.")


def _show(out: Output, turn: Turn) -> None:
    run = turn.run
    amounts = [plural(run.steps, "step"), plural(run.input_tokens + run.output_tokens, "token"), cost(run.total_cost)]
    head = Text("  ").join(
        [
            Text(f"#{run.turn}", style="bold"),
            Text(time(run.started_at), style="dim"),
            status(run),
            Text(", ".join(amount for amount in amounts if amount), style="dim"),
        ]
    )
    out.line(head)
    out.line(f"run {run.id}", style="dim", indent=4)
    if turn.inherited:
        out.line(f"inherited from thread {turn.inherited_from}", style="dim", indent=4)
    out.line(one_line(turn.user_message), indent=4, mark=Text("> ", style="bold cyan"))
    if turn.final_response is not None:
        suffix = " (partial)" if turn.partial else ""
        out.line(one_line(turn.final_response) + suffix, indent=4, mark=Text("< ", style="bold green"))
    if run.error:
        out.line(one_line(run.error), indent=4, mark=Text("! ", style="bold red"))
    for file in turn.generated_files:
        out.line(one_line(str(file["filename"])), indent=4, mark=Text("+ ", style="bold"))
