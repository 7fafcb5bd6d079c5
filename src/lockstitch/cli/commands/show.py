"""`show`: one thread or one run, with everything that is known of it."""

from collections.abc import Sequence
from typing import Annotated

import typer

from lockstitch.cli import messages, stitches
from lockstitch.cli.forest import name_of, tasks_done
from lockstitch.cli.output import Output
from lockstitch.cli.parameters import examples
from lockstitch.cli.session import session_of
from lockstitch.cli.status import status, waits
from lockstitch.cli.table import Column
from lockstitch.cli.text import cost, one_line, plural, time
from lockstitch.errors import NotFound
from lockstitch.records import Run, Thread, as_id
from lockstitch.store.overview import Overview
from lockstitch.sync import SyncStore

app = typer.Typer()

_RUNS = 20


@app.command(epilog=examples("lockstitch show customer-42", "lockstitch show 0198c0de-0000-7000-8000-000000000000"))
def show(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="THREAD|RUN", help="A thread's id or key, or a run's id.", show_default=False)
    ],
    with_stitches: Annotated[
        bool, typer.Option("--stitches", help="Of a thread also its whole log; `log` has that of a run.")
    ] = False,
) -> None:
    """Show a thread or a run."""
    session = session_of(context)
    with session.open() as store:
        found = find(store, name)
        if isinstance(found, Thread):
            _show_thread(session.out, store, found, with_stitches)
        else:
            _show_run(session.out, store, found)


def find(store: SyncStore, name: str) -> Thread | Run:
    """The thread or run of this name."""
    try:
        return store.thread(name)
    except NotFound:
        if as_id(name) is None:
            raise
    try:
        return store.run(name)
    except NotFound:
        raise NotFound(f"There is no thread and no run {name} in this store.") from None


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
                "ancestors": [str(one.id) for one in ancestors],
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
        out.table(_RUN_COLUMNS, [_run_row(run) for run in runs[-_RUNS:]])
    if len(runs) > _RUNS:
        out.note(f"The last {_RUNS} of {plural(len(runs), 'run')}; --json has them all.")
    if children:
        out.line()
        _show_family(out, "CHILD", children)
    if log:
        out.line()
        out.table(stitches.COLUMNS, [stitches.row(stitch) for stitch in log])


def _show_family(out: Output, title: str, threads: Sequence[Thread]) -> None:
    columns = [Column(title), Column("STATUS"), Column("STITCHES", right=True), Column("NAME", flexible=True)]
    out.table(columns, [[str(one.id), status(one), f"{one.position:,}", name_of(one)] for one in threads])


def _thread_fields(thread: Thread, overview: Overview) -> list[tuple[str, str]]:
    waiting = f" for {waits(thread)}" if thread.waiting_for else ""
    holder = f"held by worker {thread.worker_id}" if thread.held else "held by nobody"
    version = f" v{thread.version}" if thread.version else ""
    return [
        ("thread", str(thread.id)),
        ("key", thread.key or ""),
        ("title", one_line(thread.title)),
        ("goal", one_line(thread.goal)),
        ("status", f"{thread.status}{waiting}"),
        ("kind", thread.kind),
        ("agent", f"{thread.agent}{version}" if thread.agent else ""),
        ("project", thread.project),
        ("user", thread.user_id or ""),
        ("tasks", tasks_done(thread)),
        ("position", f"{thread.position:,} ({holder}, fence {thread.fence})"),
        ("tokens", tokens(overview.usage)),
        ("cost", cost(overview.total_cost)),
        ("error", one_line(overview.error)),
        ("created", time(thread.created_at)),
        ("updated", time(thread.updated_at)),
        ("expires", time(thread.expires_at)),
    ]


_RUN_COLUMNS = [
    Column("#", right=True),
    Column("RUN"),
    Column("STATUS"),
    Column("STEPS", right=True),
    Column("TOKENS", right=True),
    Column("STARTED", from_width=100),
]


def _run_row(run: Run) -> list[str]:
    total = f"{run.input_tokens + run.output_tokens:,}"
    return [str(run.sequence), str(run.id), run.status, str(run.steps), total, time(run.started_at)]


def _show_run(out: Output, store: SyncStore, run: Run) -> None:
    said = store.messages(run.id)
    if out.as_json:
        out.json({**run.as_json(), "usage": run.usage, "messages": said})
        return
    reason = f" ({run.stop_reason})" if run.stop_reason else ""
    model = " ".join(part for part in (run.provider, run.model) if part)
    out.fields(
        [
            ("run", str(run.id)),
            ("thread", str(run.thread_id)),
            ("number", f"run {run.sequence}, turn {run.turn}"),
            ("parent", str(run.parent_run_id or "")),
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
    messages.show(out, said)


def tokens(usage: dict[str, int]) -> str:
    """The four counts, those of the cache only where there are any."""
    cache = [
        (usage["cache_creation_input_tokens"], "written to cache"),
        (usage["cache_read_input_tokens"], "read from cache"),
    ]
    extra = "".join(f", {number:,} {label}" for number, label in cache if number)
    return f"{usage['input_tokens']:,} in, {usage['output_tokens']:,} out{extra}"
