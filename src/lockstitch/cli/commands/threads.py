"""`threads`: which threads there are and how they stand."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer
from rich.text import Text

from lockstitch.cli import times
from lockstitch.cli.parameters import Limit, Since, examples
from lockstitch.cli.session import Session, now, session_of
from lockstitch.cli.status import status
from lockstitch.cli.table import Column
from lockstitch.cli.text import age, cost, one_line
from lockstitch.errors import Refused
from lockstitch.records import Thread
from lockstitch.store.overview import Overview
from lockstitch.sync import SyncStore

app = typer.Typer()

STATUSES = ("pending", "running", "waiting", "completed", "failed", "cancelled")
KINDS = ("chat", "goal", "task", "trace")


@app.command(
    epilog=examples(
        "lockstitch threads --status failed --since 12h",
        "lockstitch threads --user ada --tree",
        "lockstitch threads --json | jq -r '.[].id'",
    )
)
def threads(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(metavar="S", help=f"One of {', '.join(STATUSES)}.")] = None,
    since: Since = None,
    kind: Annotated[str | None, typer.Option(metavar="K", help=f"One of {', '.join(KINDS)}.")] = None,
    user: Annotated[str | None, typer.Option(metavar="U", help="Only this user's.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="A", help="Only this agent's.")] = None,
    limit: Limit = 50,
    after: Annotated[str | None, typer.Option(metavar="THREAD", help="The last one of the page before.")] = None,
    tree: Annotated[bool, typer.Option("--tree", help="Whole trees, children below their parents.")] = False,
    all_projects: Annotated[bool, typer.Option("--all-projects", help="Of every project.")] = False,
) -> None:
    """List threads, the most recently active first."""
    session = session_of(context)
    _one_of("--status", status, STATUSES)
    _one_of("--kind", kind, KINDS)
    with session.open() as store:
        found = store.threads(
            limit=limit,
            after=store.thread(after) if after else None,
            since=times.moment_or_none(since, now(), "--since"),
            all_projects=all_projects,
            status=status,
            kind=kind,
            user_id=user,
            agent=agent,
        )
        shown = _trees(store, found) if tree else found
        rows = store.overview(shown)
    if session.as_json:
        session.out.json([_as_json(row, tree) for row in rows])
    else:
        _print(session, rows, tree=tree, projects=all_projects)
        if len(found) == limit:
            session.out.note(f"There may be more: --after {found[-1].id}, or a larger --limit.")


def _one_of(option: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value not in known:
        raise Refused(f"{option} {value!r} is unknown; it is one of {', '.join(known)}.")


def _trees(store: SyncStore, found: Sequence[Thread]) -> list[Thread]:
    """The trees these threads stand in, each once, every child right below its parent."""
    roots: dict[UUID, Thread] = {}
    for thread in found:
        root = (store.ancestors(thread) or [thread])[-1] if thread.parent_id else thread
        roots.setdefault(root.id, root)
    return [thread for root in roots.values() for thread in _in_order(store.tree(root), root)]


def _in_order(tree: Sequence[Thread], root: Thread) -> list[Thread]:
    """A tree depth first. By a stack of our own: agents that call agents may nest deeper than Python recurses."""
    children: dict[UUID | None, list[Thread]] = {}
    for thread in tree:
        children.setdefault(thread.parent_id, []).append(thread)
    ordered: list[Thread] = []
    waiting = [next(thread for thread in tree if thread.id == root.id)]
    while waiting:
        thread = waiting.pop()
        ordered.append(thread)
        waiting += reversed(children.get(thread.id, []))
    return ordered


def _as_json(row: Overview, tree: bool) -> dict[str, object]:
    thread = row.thread
    place = {"parent_id": str(thread.parent_id) if thread.parent_id else None, "depth": thread.depth}
    return {**row.as_json(), **place} if tree else row.as_json()


def _print(session: Session, rows: Sequence[Overview], *, tree: bool, projects: bool) -> None:
    if not rows:
        session.out.note("No threads.")
        return
    moment = now()
    columns = [
        Column("THREAD"),
        *([Column("PROJECT")] if projects else []),
        Column("STATUS"),
        Column("RUNS", right=True),
        Column("COST", right=True, from_width=100),
        Column("AGE", right=True),
        Column("AGENT", flexible=True, from_width=100),
        Column("NAME", flexible=True),
    ]
    session.out.table(
        columns,
        [
            [
                "  " * (row.thread.depth if tree else 0) + str(row.thread.id),
                *([one_line(row.thread.project)] if projects else []),
                status(row.thread),
                f"{row.runs:,}",
                cost(row.total_cost),
                age(row.thread.updated_at, moment),
                _agent(row.thread),
                Text(name_of(row.thread)),
            ]
            for row in rows
        ],
    )


def name_of(thread: Thread) -> str:
    """What people call a thread: its key, else its title, else its goal."""
    return one_line(thread.key or thread.title or thread.goal)


def _agent(thread: Thread) -> str:
    version = f" v{thread.version}" if thread.version else ""
    return f"{one_line(thread.agent)}{version}" if thread.agent else ""
