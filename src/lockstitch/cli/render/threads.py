"""Threads as text: status, waits and trees."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from rich.text import Text

from lockstitch.cli.render.output import Output, TableColumn, age, cost, one_line, plural
from lockstitch.model import (
    ApprovalWait,
    ChildrenWait,
    DepsWait,
    FrontendToolWait,
    InDoubtWait,
    QuestionWait,
    RetryWait,
    Run,
    Thread,
    TimerWait,
    Wait,
    format_time,
    short_id,
)
from lockstitch.model.wait import without_next_message
from lockstitch.store import references
from lockstitch.store.queries.overview import Node, Overview


def explain(name: str, waits: Sequence[Wait]) -> str:
    """Return sentences with the waits of a thread and the commands that reply to them."""
    return " ".join(
        [f"Thread {one_line(name)} waits.", *(f"{_what(wait)}: {_commands(name, wait)}." for wait in waits)]
    )


def _what(wait: Wait) -> str:
    call = " ".join(one_line(part) for part in (wait.name, wait.call_id) if part)
    match wait:
        case ApprovalWait():
            return f"Approval needed for {call}"
        case InDoubtWait():
            return f"{call} was interrupted and its outcome is unknown"
        case FrontendToolWait():
            return f"The frontend must run {call}"
        case QuestionWait():
            return "It asks a question"
        case RetryWait():
            step = f" with {call}" if call else ""
            return f"It cannot continue{step}: {one_line(wait.reason or 'no reason given')}"
        case DepsWait():
            return one_line(wait.reason).removesuffix(".")
        case _:
            return f"It waits for {one_line(wait.kind)}{_until(wait)}"


def _until(wait: Wait) -> str:
    return f" until {format_time(wait.until)}" if wait.until else ""


def _commands(name: str, wait: Wait) -> str:
    thread = shlex.quote(one_line(name))
    match wait:
        case ApprovalWait() | InDoubtWait() | FrontendToolWait() | QuestionWait():
            first, *others = reply_commands(name, wait.kind, wait.call_id)
            return " or ".join([f"`{first}`", *(f"`{command}`" for command in others)])
        case _:
            return f"`lockstitch resume {thread}` checks again, `lockstitch cancel {thread}` cancels it"


def reply_commands(name: str, kind: str, call_id: str | None) -> list[str]:
    """Return the commands that reply to a wait.

    Args:
        name: Key, id or short id of the thread.
        kind: Kind of the wait.
        call_id: Id or key of the call. None: the only call that waits.
    """
    thread = shlex.quote(one_line(name))
    call = "" if call_id is None else f" {shlex.quote(one_line(call_id))}"
    if kind == ApprovalWait.KIND:
        return [f"lockstitch approve {thread}{call}", f"lockstitch deny {thread}{call}"]
    if kind == InDoubtWait.KIND:
        return [f'lockstitch settle {thread}{call} --done "result"', "… --redo"]
    if kind == FrontendToolWait.KIND:
        return [f'lockstitch submit {thread}{call} --result "…"']
    option = f" --call{call}" if call else ""
    return [f'lockstitch answer {thread}{option} "…"']


_COLOURS = {
    "pending": "blue",
    "running": "cyan",
    "waiting": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "dim",
}


def shown_id(out: Output, value: UUID | str) -> str:
    """Return an id for a table: its short form on a terminal, the whole id in a pipe. Commands accept both."""
    return str(value) if out.width is None else short_id(value)


def reason_of(overview: Overview) -> str:
    """Return the reason why a thread failed, on one line. Empty if it did not fail."""
    if overview.thread.status != "failed":
        return ""
    result = overview.thread.result or {}
    return one_line(overview.error or str(result.get("error") or ""))


def status(record: Thread | Run) -> Text:
    return status_word(record.status)


def status_word(word: str) -> Text:
    return Text(word, style=_COLOURS.get(word, ""))


def status_line(thread: Thread) -> str:
    """Return the status of a thread with its waits: `idle` if it waits only for its next message."""
    if not thread.waiting_for:
        return thread.status
    waits = without_next_message(thread.waits)
    return f"{thread.status} for {reasons(waits)}" if waits else "idle"


def waits_since(thread: Thread, now: datetime) -> str:
    """Return the waits of a thread with their start times, as text. Empty for an idle chat."""
    waits = without_next_message(thread.waits) if thread.status == "waiting" else []
    return ", ".join(f"{_whom(wait)} since {age(wait.since, now) if wait.since else '?'}" for wait in waits)


def _whom(wait: Wait) -> str:
    name = one_line(wait.name or wait.call_id or "")
    match wait:
        case ApprovalWait():
            return f"approval of {name}"
        case InDoubtWait():
            return f"outcome of {name}"
        case QuestionWait():
            return "an answer"
        case FrontendToolWait():
            return f"frontend result of {name}"
        case ChildrenWait():
            return plural(len(wait.child_ids or ()), "child", "children")
        case TimerWait():
            return f"timer {format_time(wait.until)[:19] if wait.until else '?'}Z"
        case RetryWait() | DepsWait():
            return one_line(wait.reason or f"code for {name}")
        case _:
            return one_line(wait.kind)


def reasons(waits: Sequence[Wait]) -> str:
    return ", ".join(_reason(wait) for wait in waits)


def _reason(wait: Wait) -> str:
    kind = one_line(wait.kind.replace("_", " "))
    return f"{kind} {one_line(wait.call_id)}".rstrip() + _until(wait)


COLUMNS = [
    TableColumn("THREAD"),
    TableColumn("STATUS"),
    TableColumn("TASKS", right=True, from_width=90),
    TableColumn("STITCHES", right=True, from_width=100),
    TableColumn("CHILDREN", right=True, from_width=130),
    TableColumn("COST", right=True, from_width=100),
    TableColumn("AGE", right=True, from_width=130),
    TableColumn("AGENT", flexible=True, from_width=130),
    TableColumn("NAME", flexible=True),
    TableColumn("WAITS FOR", flexible=True),
]


TOOL_COLUMN = [TableColumn("IN TOOL", flexible=True)]
"""The column that `rows` adds for `tools`."""


def rows(
    out: Output, nodes: Sequence[Node], now: datetime, tools: Mapping[UUID, Sequence[str]] | None = None
) -> Iterator[list[str | Text]]:
    """Yield one row per thread, with children below their parent.

    Args:
        out: Output of the command.
        nodes: Trees of threads.
        now: Time from which ages count.
        tools: Tools that each thread executes now. None: no column for them.
    """
    for root in nodes:
        for node, place in root.walk():
            thread = node.thread
            yield [
                Text(branch(place), style="dim") + Text(shown_id(out, thread.id)),
                status(thread),
                tasks_done(thread),
                f"{thread.position:,}",
                f"{len(node.children):,}" if node.children else "",
                cost(node.overview.total_cost),
                age(thread.active_at, now),
                f"{thread.kind} {one_line(thread.agent)}".strip(),
                Text(name_of(thread)),
                Text(waits_since(thread, now), style="yellow"),
                *([] if tools is None else [Text(", ".join(map(one_line, tools.get(thread.id, ()))), style="cyan")]),
            ]


def name_of(thread: Thread) -> str:
    """Return the name of a thread for a list, without control characters."""
    return one_line(references.name_of(thread))


def tasks_done(thread: Thread) -> str:
    """Return the number of completed and of all tasks, for example 2/5."""
    done = sum(task.get("status") == "completed" for task in thread.tasks)
    return f"{done}/{len(thread.tasks)}" if thread.tasks else ""


def branch(place: Sequence[bool]) -> str:
    """Return the line characters before a node of a tree."""
    if not place:
        return ""
    return "".join("   " if last else "│  " for last in place[:-1]) + ("└─ " if place[-1] else "├─ ")
