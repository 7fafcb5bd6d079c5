"""`Watch`: the live dashboard of `lockstitch watch`."""

import asyncio
import os
import select
import sys
from collections.abc import Generator, Iterator
from contextlib import aclosing, contextmanager, suppress
from datetime import datetime
from typing import Any, Final, cast

from rich.console import Group
from rich.live import Live
from rich.text import Text

from lockstitch.cli.actions import SnapshotReader
from lockstitch.cli.render import threads
from lockstitch.cli.render.output import TableColumn, age, clock_time, cost, lay_out, one_line, plural
from lockstitch.cli.render.threads import status_word
from lockstitch.cli.runs import terminable
from lockstitch.cli.session import Session
from lockstitch.errors import LockstitchError, StoreError
from lockstitch.model import Json, Thread, Worker, parse_time
from lockstitch.store.portal import PortalTask
from lockstitch.store.reports.dashboard import OPEN, Dashboard
from lockstitch.sync import SyncStore

TASKS_SHOWN: Final = 8
"""Maximum number of tasks shown of one list."""

_MARKS = {"completed": ("✓", "green"), "in_progress": ("▸", "cyan"), "blocked": ("✗", "red")}

_WORKERS = [
    TableColumn("WORKER"),
    TableColumn("HOLDS", right=True),
    TableColumn("HEARTBEAT", right=True),
    TableColumn("DOING", flexible=True),
]


def dashboard_view(session: Session, dashboard: Dashboard, width: int | None) -> list[Text]:
    """Return the lines of the dashboard, the most important first. A terminal may cut the last lines."""
    lines = [_header(session, dashboard), _sums(dashboard)]
    if dashboard.workers:
        rows = [_worker(dashboard, worker) for worker in dashboard.workers]
        lines += [Text(), *lay_out(_WORKERS, rows, width)]
    if dashboard.trees:
        tools = dashboard.tools or None
        columns = [*threads.COLUMNS, *(threads.TOOL_COLUMN if tools else ())]
        rows = list(threads.rows(session.out, dashboard.trees, dashboard.at, tools))
        lines += [Text(), *lay_out(columns, rows, width)]
    for tree in dashboard.trees:
        for node, _ in tree.walk():
            if node.thread.status == "running" and node.thread.tasks:
                lines += [Text(), *_task_list(node.thread)]
    return lines


def _header(session: Session, dashboard: Dashboard) -> Text:
    scope = f"project {one_line(session.project)}" if session.project_named else "all projects"
    return Text(f"{clock_time(dashboard.at)[:8]}Z  {one_line(session.shown)}  {scope}", style="dim")


def _sums(dashboard: Dashboard) -> Text:
    counts = {**{word: dashboard.counts[word] for word in OPEN}, "failed": dashboard.failed}
    counted = [Text(f"{number:,} ") + status_word(word) for word, number in counts.items()]
    spent = [f"{cost(dashboard.cost_today) or '$0'} today", f"{cost(dashboard.cost_shown) or '$0'} shown here"]
    return Text(" · ").join([*counted, *map(Text, spent)])


def _worker(dashboard: Dashboard, worker: Worker) -> list[str | Text]:
    silent = dashboard.seconds_since_heartbeat(worker)
    late = silent > worker.lease_seconds
    style = "dim" if worker.dead else "red" if late else ""
    state = " (dead)" if worker.dead else " (silent)" if late else ""
    held = dashboard.held.get(worker.id, [])
    return [
        Text(f"{one_line(worker.host)} {worker.pid}{state}", style=style),
        Text(f"{len(held):,}", style=style),
        Text(f"{silent:.0f}s", style=style),
        Text(", ".join(_doing(dashboard, worker, held)) or "nothing", style=style),
    ]


def _doing(dashboard: Dashboard, worker: Worker, held: list[Thread]) -> Iterator[str]:
    """Return the activities in the worker's last heartbeat, of threads that it still holds."""
    for thread in held:
        value: Any = worker.doing.get(str(thread.id))
        bag = cast("Json", value) if isinstance(value, dict) else {}
        parts = (
            threads.name_of(thread) or str(thread.id),
            one_line(str(bag.get("act") or "")),
            _since(bag, dashboard.at),
        )
        yield " ".join(part for part in parts if part)


def _since(value: Json, now: datetime) -> str:
    try:
        return age(parse_time(str(value["since"])), now)
    except (KeyError, ValueError):
        return ""


def _task_list(thread: Thread) -> Iterator[Text]:
    yield Text(f"Tasks {threads.tasks_done(thread)}  ", style="bold") + Text(threads.name_of(thread) or str(thread.id))
    # Completed tasks are dropped first if the list is too long.
    order = sorted(range(len(thread.tasks)), key=lambda number: thread.tasks[number].get("status") == "completed")
    shown = sorted(order[:TASKS_SHOWN])
    for number in shown:
        task = thread.tasks[number]
        mark, style = _MARKS.get(str(task.get("status")), ("·", "dim"))
        yield Text(f"  {mark} ", style=style) + Text(one_line(str(task.get("description", ""))))
    if len(shown) < len(thread.tasks):
        yield Text(f"  and {plural(len(thread.tasks) - len(shown), 'more', 'more')}", style="dim")


SELDOM, OFTEN = 1.0, 0.25
"""Maximum and minimum seconds between two updates."""

QUIT_KEYS: Final = b"qQ\x04"
"""Keys that end the dashboard: q and Ctrl-D."""


class Watch:
    """Draws the dashboard until the user quits."""

    def __init__(self, session: Session, store: SyncStore, reader: SnapshotReader) -> None:
        self._session = session
        self._store = store
        self._reader = reader
        self._dashboard: Dashboard | None = None
        self._error = ""

    def run(self) -> None:
        """Update until q or Ctrl-C. If the store is unreachable, print the error and keep the last picture."""
        # Read before the screen is taken, so that an error at the start is printed as for other commands.
        self._dashboard = self._store.portal.call(self._reader.read())
        with suppress(KeyboardInterrupt), terminable(), _hints(self._store) as news, _keys() as keys:
            console = self._session.out.console
            with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live:
                while True:
                    live.update(Group(*self._lines(console.width, console.height)), refresh=True)
                    if _pressed(keys, None, OFTEN) or _pressed(keys, news, SELDOM - OFTEN):
                        return
                    self._refresh()

    def _refresh(self) -> None:
        try:
            self._dashboard = self._store.portal.call(self._reader.read())
            self._error = ""
        except StoreError as exc:
            self._error = one_line(str(exc))

    def _lines(self, width: int, height: int) -> list[Text]:
        assert self._dashboard is not None
        lines = dashboard_view(self._session, self._dashboard, width)
        room = height - 2
        if len(lines) > room:
            lines = [*lines[: room - 1], Text(f"… {len(lines) - room + 1} more lines", style="dim")]
        lines += [Text()] * (room - len(lines))
        last = Text(self._error, style="red") if self._error else Text("q to quit", style="dim")
        lines.append(last)
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return lines


@contextmanager
def _hints(store: SyncStore) -> Generator[int, None, None]:
    """Yield a file descriptor that becomes readable when the store changes."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)

    async def listen(_: object) -> None:
        while True:
            with suppress(LockstitchError):
                async with aclosing(store.async_store.changes()) as hints:
                    async for _ in hints:
                        with suppress(BlockingIOError):
                            # A full pipe is readable already.
                            os.write(theirs, b".")
            await asyncio.sleep(1)

    work: PortalTask[None, None] = store.portal.begin(listen)
    try:
        yield ours
    finally:
        work.end()
        os.close(ours)
        os.close(theirs)


@contextmanager
def _keys() -> Generator[int | None, None, None]:
    """Yield the descriptor of the keyboard in cbreak mode, or None without a terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    # These modules exist only on systems with terminals.
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    try:
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _pressed(keys: int | None, news: int | None, seconds: float) -> bool:
    """Wait for `seconds` or until the store changes. Return True if the user pressed a key that quits."""
    ready, _, _ = select.select([number for number in (keys, news) if number is not None], [], [], seconds)
    if news is not None and news in ready:
        os.read(news, 65536)
    if keys is None or keys not in ready:
        return False
    pressed = os.read(keys, 64)
    # An empty read means that the terminal is closed.
    return not pressed or any(key in QUIT_KEYS for key in pressed)
