"""`tail`: stored and new stitches."""

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, Queue
from subprocess import Popen
from typing import Any

import pytest

from lockstitch import sync
from lockstitch.model import Entry
from tests.cli.calling import Call, begin
from tests.cli.story import Story


def test_tail_shows_newest_stitches_of_all_threads(lockstitch: Call, story: Story) -> None:
    rows = [json.loads(line) for line in lockstitch("tail", "-n", "3", "--json").lines]
    assert [(row["thread_id"], row["position"]) for row in rows] == [
        (str(story.chat.id), 13),
        (str(story.goal.id), 1),
        (str(story.goal.id), 2),
    ]
    assert len(lockstitch("tail", "--json").lines) == 10
    assert len(lockstitch("tail", "-n", "99", "--json").lines) == 15, "no stitch of the other project"
    assert lockstitch("tail", "-n", "0").lines == []
    line = lockstitch("tail", "-n", "1").lines[0]
    assert line.startswith(f"{story.goal.id}:2  ")
    assert line.endswith("run_failed  the model refused")


def test_tail_shows_newest_stitches_of_one_thread(lockstitch: Call, story: Story) -> None:
    rows = [json.loads(line) for line in lockstitch("tail", "customer-42", "-n", "2", "--json").lines]
    assert [row["position"] for row in rows] == [12, 13]
    assert len(lockstitch("tail", "customer-42", "-n", "99", "--json").lines) == 13


class Followed:
    """A real `tail --follow --json`, read line by line."""

    def __init__(self, process: Popen[str]) -> None:
        self.process = process
        self._lines: Queue[str] = Queue()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or []:
            self._lines.put(line)
        self._lines.put("")

    def next(self, timeout: float = 60) -> dict[str, Any]:
        """Return the next stitch. Fail with the output of the process if it has ended."""
        line = self._lines.get(timeout=timeout)
        assert line, self.process.stderr.read() if self.process.stderr else ""
        return json.loads(line)


@contextmanager
def following(*arguments: str) -> Iterator[Followed]:
    with begin("tail", "--follow", "--json", *arguments) as process:
        followed = Followed(process)
        try:
            yield followed
        finally:
            process.kill()
            followed.reader.join()


def test_follow_of_all_threads_misses_no_stitch(story: Story) -> None:
    with following("--store", story.url, "-n", "1") as tail, sync.open_store(story.url) as store:
        assert tail.next()["position"] == 2
        head = story.chat
        for number in range(20):
            head = store.append(head, [Entry(type="input", message={"role": "user", "content": f"n {number}"})]).head
        elsewhere = store.thread(story.elsewhere)
        store.append(elsewhere, [Entry(type="error", data={"error": "not to be seen"})])
        new = store.append(store.create(), [Entry(type="error", data={"error": "the last"})]).stitches[0]
        entries = [tail.next() for _ in range(21)]
        assert [row["position"] for row in entries if row["thread_id"] == str(head.id)] == list(range(14, 34))
        assert [row["data"] for row in entries if row["thread_id"] == str(new.thread_id)] == [{"error": "the last"}]
        tail.process.send_signal(signal.SIGINT)
        assert tail.process.wait(60) == 130
        assert tail.process.stderr is not None
        assert json.loads(tail.process.stderr.read()) == {"error": "Interrupted", "message": "interrupted"}


def test_follow_of_one_thread_prints_its_stitches(story: Story) -> None:
    with following("--store", story.url, "customer-42", "-n", "2") as tail, sync.open_store(story.url) as store:
        assert [tail.next()["position"] for _ in range(2)] == [12, 13]
        store.append(store.create(), [Entry(type="error")])
        store.append(story.chat, [Entry(type="error"), Entry(type="error")])
        assert [tail.next()["position"] for _ in range(2)] == [14, 15]
        with pytest.raises(Empty):
            tail.next(timeout=0.3)
