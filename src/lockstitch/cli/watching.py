"""A live picture at a terminal: drawn when something happens, once a second in any case, and never in a hurry."""

import asyncio
import os
import select
import sys
from collections.abc import Generator
from contextlib import aclosing, contextmanager, suppress
from typing import Final

from rich.console import Group
from rich.live import Live
from rich.text import Text

from lockstitch.cli.running import terminable
from lockstitch.cli.scene import scene
from lockstitch.cli.session import Session
from lockstitch.cli.text import one_line
from lockstitch.errors import LockstitchError, StoreError
from lockstitch.store.picture import Painter, Picture
from lockstitch.sync import SyncStore
from lockstitch.sync.portal import Work

SELDOM, OFTEN = 1.0, 0.25
"""Seconds between two pictures: at most, and at least."""

LEAVE: Final = b"qQ\x04"
"""Keys that end it: q and Ctrl-D."""


class Watch:
    """Draws until somebody has seen enough."""

    def __init__(self, session: Session, store: SyncStore, painter: Painter) -> None:
        self._session = session
        self._store = store
        self._painter = painter
        self._picture: Picture | None = None
        self._trouble = ""

    def go_on(self) -> None:
        """Until q or Ctrl-C. A store that goes away is said, and the last picture stays."""
        # The first one before the screen is taken, so that what is wrong from the start is told as ever.
        self._picture = self._store.portal.call(self._painter.paint())
        with suppress(KeyboardInterrupt), terminable(), _hints(self._store) as news, _keys() as keys:
            console = self._session.out.console
            with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live:
                while True:
                    live.update(Group(*self._lines(console.width, console.height)), refresh=True)
                    if _pressed(keys, None, OFTEN) or _pressed(keys, news, SELDOM - OFTEN):
                        return
                    self._look()

    def _look(self) -> None:
        try:
            self._picture = self._store.portal.call(self._painter.paint())
            self._trouble = ""
        except StoreError as exc:
            self._trouble = one_line(str(exc))

    def _lines(self, width: int, height: int) -> list[Text]:
        assert self._picture is not None
        lines = scene(self._session, self._picture, width)
        room = height - 2
        if len(lines) > room:
            lines = [*lines[: room - 1], Text(f"… {len(lines) - room + 1} more lines", style="dim")]
        lines += [Text()] * (room - len(lines))
        last = Text(self._trouble, style="red") if self._trouble else Text("q ends", style="dim")
        lines.append(last)
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        return lines


@contextmanager
def _hints(store: SyncStore) -> Generator[int, None, None]:
    """A file to wait on: it can be read when something has happened in the store."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)

    async def listen(_: object) -> None:
        while True:
            with suppress(LockstitchError):
                async with aclosing(store.awaited.backend.watch()) as sightings:
                    async for _ in sightings:
                        with suppress(BlockingIOError):
                            # A full pipe says all there is to say.
                            os.write(theirs, b".")
            await asyncio.sleep(1)

    work: Work[None, None] = store.portal.begin(listen)
    try:
        yield ours
    finally:
        work.end()
        os.close(ours)
        os.close(theirs)


@contextmanager
def _keys() -> Generator[int | None, None, None]:
    """The keyboard, key by key; None where there is none."""
    if not sys.stdin.isatty():
        yield None
        return
    # Here, because they are there where terminals are, and only there.
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
    """Wait so long, or until there is news; whether a key was pressed that ends it."""
    ready, _, _ = select.select([one for one in (keys, news) if one is not None], [], [], seconds)
    if news is not None and news in ready:
        os.read(news, 65536)
    if keys is None or keys not in ready:
        return False
    pressed = os.read(keys, 64)
    # An end of input, too: the terminal is gone.
    return not pressed or any(key in LEAVE for key in pressed)
