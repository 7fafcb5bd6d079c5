"""`watch`: one picture in a pipe, a live one at a real terminal."""

import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from lockstitch import sync
from tests.cli.calling import Call, environment
from tests.cli.story import within
from tests.cli.test_chat import TAKE_THE_TERMINAL
from tests.cli.workers import wait_for, working

CODES = re.compile(r"\x1b[\[(][0-9;?]*[a-zA-Z]")
CREW = "tests.cli.crew:app"


class Terminal:
    """`lockstitch watch` at a terminal with 120 columns."""

    def __init__(self, url: str, *arguments: str) -> None:
        self._ours, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.before = termios.tcgetattr(slave)
        self._theirs = slave
        plain = {name: value for name, value in environment().items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE_THE_TERMINAL, "-m", "lockstitch", "watch", "--store", url, *arguments],
            env={**plain, "TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        self.raw = ""
        self.drawn: list[float] = []

    def read(self, seconds: float) -> str:
        """Return the output so far, after reading for `seconds`."""
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0 and select.select([self._ours], [], [], remaining)[0]:
            chunk = os.read(self._ours, 65536).decode(errors="replace")
            self.drawn += [time.monotonic()] * chunk.count("q to quit")
            self.raw += chunk
        return self.raw

    @property
    def seen(self) -> str:
        return CODES.sub("", self.raw)

    def until(self, condition: Callable[[str], object], seconds: float = 60) -> None:
        limit = time.monotonic() + seconds
        while not condition(self.seen):
            assert time.monotonic() < limit, self.seen[-3000:]
            self.read(0.1)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def ended(self) -> int:
        limit = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < limit, self.seen[-3000:]
            self.read(0.1)
        self.read(0.2)
        return self.process.returncode

    def restored(self) -> bool:
        return termios.tcgetattr(self._theirs)[:4] == self.before[:4]

    def close(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@contextmanager
def terminal(url: str, *arguments: str) -> Iterator[Terminal]:
    opened = Terminal(url, *arguments)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ledger"
    path.touch()
    monkeypatch.setenv("LEDGER", str(path))
    return path


def test_watch_prints_once_in_pipe_and_as_json(
    lockstitch: Call, store_url: str, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTITCH_APP", CREW)
    assert lockstitch("start", "smith", "--goal", "Nail it", "--key", "nail").code == 0
    assert lockstitch("start", "scout", "--goal", "Look", "--at", "1h").code == 0
    with working(store_url, fresh=True, STUCK="1") as worker:
        wait_for(ledger.read_text)
        result = lockstitch("watch")
        facts = lockstitch("watch", "--json").json
        assert lockstitch("watch", "nail", "--json").json["threads"] == [
            row for row in facts["threads"] if row["key"] == "nail"
        ]
    assert facts["open"] == {"running": 1, "waiting": 1, "pending": 0}
    assert {row["status"] for row in facts["threads"]} == {"running", "waiting"}
    (alive,) = facts["workers"]
    assert (alive["pid"], alive["dead"]) == (worker.process.pid, False)
    assert alive["holds"] == [row["id"] for row in facts["threads"] if row["key"] == "nail"]
    assert alive["seconds_since_beat"] < alive["lease_seconds"]
    assert set(facts["cost"]) == {"today", "shown"}
    assert facts["cost"]["today"] > 0
    text = result.out
    assert "1 running · 1 waiting · 0 pending · 0 failed · $" in text
    assert re.search(r"running .* nail +hammer\n", text)
    assert (facts["failed"], facts["tools"]) == (0, {alive["holds"][0]: ["hammer"]})
    assert f"{alive['host']} {worker.process.pid}" in text
    assert re.search(r"running .* goal smith +nail", text)
    assert re.search(r"waiting .* Look +timer 20.*Z since \d+s", text)
    assert "\x1b" not in text
    assert result.out.count("\n") < 12
    assert lockstitch("watch", "--once", "nobody").code == 3


def test_watch_updates_after_changes(store_url: str) -> None:
    within(store_url, lambda store: store.start("scout", "Look around", key="first"))
    with terminal(store_url) as screen:
        screen.until(lambda screen_text: "0 running · 0 waiting · 1 pending" in screen_text)
        assert "\x1b[?1049h" in screen.raw, "a separate screen"
        with sync.open_store(store_url) as store:
            tasks = [{"description": "Climb the tower", "status": "in_progress"}, "Come down"]
            store.start("boss", "Second", key="second", priority=9, tasks=tasks)
            screen.until(lambda screen_text: "2 pending" in screen_text)
            assert store.claim("second").held
            screen.until(lambda screen_text: "1 running · 0 waiting · 1 pending" in screen_text)
            screen.until(lambda screen_text: "Tasks 0/2" in screen_text and "▸ Climb the tower" in screen_text)
        screen.until(lambda screen_text: "0 running · 0 waiting · 2 pending" in screen_text)
        screen.type("q")
        assert screen.ended() == 0
        assert screen.raw.rstrip().endswith("\x1b[?25h") or "\x1b[?1049l" in screen.raw
        assert "Traceback" not in screen.seen
        assert screen.restored()


def test_watch_draws_one_to_four_times_per_second(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    within(url, lambda store: store.create(key="k"))
    with terminal(url) as screen:
        screen.until(lambda screen_text: "q to quit" in screen_text)
        screen.drawn.clear()
        screen.until(lambda _: len(screen.drawn) >= 4)
        pauses = [later - earlier for earlier, later in pairwise(screen.drawn)]
        assert min(pauses) < 1.5, "without changes"
        screen.drawn.clear()
        began = time.monotonic()
        with sync.open_store(url) as store:
            while time.monotonic() < began + 1.5:
                store.create()
                screen.read(0.01)
        assert len(screen.drawn) <= (time.monotonic() - began) * 4 + 2
        screen.type("\x03")
        assert screen.ended() == 0
        assert screen.restored()


def test_signal_restores_terminal(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    within(url, lambda store: store.create(key="k"))
    with terminal(url, "k") as screen:
        screen.until(lambda screen_text: "q to quit" in screen_text)
        os.kill(screen.process.pid, signal.SIGTERM)
        assert screen.ended() == 0
        assert "\x1b[?1049l" in screen.raw
        assert screen.restored()


def test_watch_json_at_terminal_is_one_document(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    within(url, lambda store: store.create(key="k"))
    with terminal(url, "--json") as screen:
        assert screen.ended() == 0
        assert json.loads(screen.raw)["open"]["waiting"] == 1
