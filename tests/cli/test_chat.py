"""`chat`: in a pipe, and at a real terminal with Ctrl-C, Ctrl-D and kill -9."""

import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.calling import Call, CommandResult, environment
from tests.cli.shop import STORY
from tests.cli.test_runs import ROOT
from tests.docs.warm import warm_commands

COLOUR = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture(autouse=True)
def surroundings(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str) -> None:
    monkeypatch.setenv("LOCKSTITCH_APP", "tests.cli.shop:app")
    monkeypatch.setenv("LOCKSTITCH_STORE", url)
    monkeypatch.setenv("BANK", str(tmp_path / "bank"))


Piped = Callable[..., CommandResult]


@pytest.fixture
def piped(call: Call, monkeypatch: pytest.MonkeyPatch) -> Piped:
    """`chat` with messages from a pipe."""

    def chat_with(text: str, *arguments: str) -> CommandResult:
        content = io.BytesIO(text.encode("utf-8", "surrogateescape"))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content, encoding="utf-8"))
        return call("chat", *arguments)

    return chat_with


# In a pipe


def test_chat_reports_answer_that_was_cut(piped: Piped) -> None:
    assert "The answer was cut at max_tokens." in piped("Hi\n", "cut-off").err


def test_chat_answers_messages_from_real_pipe() -> None:
    done = subprocess.run(
        [warm_commands() / "lockstitch", "chat", "echo"],
        cwd=ROOT,
        env=environment(),
        input=b"one\n\xff!\n",
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout.decode()) == (0, "You said: one\nYou said: \N{REPLACEMENT CHARACTER}!\n")


def test_chat_answers_line_by_line(piped: Piped) -> None:
    result = piped("one\n\n  \ntwo", "echo", "--thread", "k", "--user", "ada")
    assert result.lines == ["You said: one", "You said: two"]
    assert result.err.count("1 step · ") == 2
    assert result.err.count(" total") == 2
    result = piped("three\n", "echo", "--thread", "k", "--json")
    assert json.loads(result.out)["output_text"] == "You said: three"
    assert piped("x\n", "echo", "--thread", "k", "--user", "bob").code == 2


def test_chat_prints_thread_name_if_none_is_set(piped: Piped, call: Call) -> None:
    result = piped("Hello\n", "echo")
    name = re.search(r"--thread (\S+)`", result.err)
    assert name
    result = piped("Again\n", "echo", "--thread", name[1])
    assert "1 turn" in result.err
    assert len(call("history", name[1], "--json").json) == 2


def test_chat_continues_after_failed_run(piped: Piped) -> None:
    result = piped("one\ntwo\n", "failing")
    assert (result.code, result.out) == (0, "Fine.\n")
    assert "The run failed: No such model." in result.err


def test_chat_asks_for_approval(piped: Piped, call: Call) -> None:
    command_result = piped("Pay\nwhat?\ny\nPay\nn too much\n", "payer", "--thread", "k")
    assert command_result.lines == ["Done.", "Done."]
    assert 'pay({"amount":5})' in command_result.err
    results = [
        message["content"][0]
        for message in call("context", "k", "--json").json
        if message["role"] == "user" and isinstance(message["content"], list)
    ]
    assert [result.get("is_error", False) for result in results] == [False, True]
    assert "too much" in results[1]["content"]


def test_chat_exits_with_code_4_if_question_stays_open(piped: Piped) -> None:
    result = piped("Pay\n", "payer", "--thread", "k")
    assert result.code == 4
    assert "`lockstitch approve k call_1_1_0`" in result.err
    assert piped("y\n", "payer", "--thread", "k").out == "Done.\n", "the same question is asked again"


def test_chat_asks_for_frontend_tool_result(piped: Piped, call: Call) -> None:
    result = piped("Look\nthe title is Parcels\n", "looker", "--thread", "k")
    assert result.out == "I see.\n"
    assert call("context", "k", "--json").json[2]["content"][0]["content"] == "the title is Parcels"


def test_chat_settles_call_with_unknown_outcome(piped: Piped, tmp_path: Path) -> None:
    bank = tmp_path / "bank"
    command = [warm_commands() / "lockstitch", "chat", "charger", "--thread", "k"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"Go\n")
        process.stdin.flush()
        while not (bank.exists() and bank.read_text()):
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.communicate()
    result = piped("hm\ndone it was charged\n", "charger", "--thread", "k")
    assert result.out == "Charged.\n"
    assert "its outcome is unknown" in result.err
    assert len(bank.read_text().splitlines()) == 1


# At a terminal


# Ctrl-C must be a signal, as at a real terminal.
TAKE_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Terminal:
    """A simulated user: waits for output, then types."""

    def __init__(self, process: "subprocess.Popen[bytes]", screen: int) -> None:
        self.process = process
        self._screen = screen
        self.seen = ""
        self.ended = False

    def expect(self, text: str) -> None:
        """Read until `text` appears. Later output stays for the next call."""
        while text not in self.seen:
            assert self._look(60), f"{text!r} did not appear, output: {self.seen!r}"
        self.seen = self.seen.partition(text)[2]

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def interrupt(self, text: str | None = None) -> None:
        """Press Ctrl-C until `text` or the end appears. Python misses it between showing a prompt and reading."""
        for _ in range(6):
            self.type("\x03")
            while self._look(10):
                if text is not None and text in self.seen:
                    return self.expect(text)
            if self.ended:
                break
        assert self.ended, f"Ctrl-C had no effect, output: {self.seen!r}"
        assert text is None, f"{text!r} did not appear, output: {self.seen!r}"
        return None

    def end(self) -> int:
        while not self.ended:
            assert self._look(60), f"no more output after {self.seen!r}"
        return self.process.wait(60)

    def _look(self, within: float) -> bool:
        """Read the next output. Return True if there was any."""
        if self.ended or not select.select([self._screen], [], [], within)[0]:
            return False
        try:
            chunk = os.read(self._screen, 65536)
        except OSError:
            chunk = b""
        self.ended = not chunk
        self.seen += COLOUR.sub("", chunk.decode(errors="replace"))
        return True


@contextmanager
def terminal(*arguments: str, **env: str) -> Iterator[Terminal]:
    master, slave = os.openpty()
    command = [sys.executable, "-c", TAKE_THE_TERMINAL, "-m", "lockstitch", "chat", *arguments]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(**{"TERM": "dumb", **env}),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    ) as process:
        os.close(slave)
        try:
            yield Terminal(process, master)
        finally:
            process.kill()
            os.close(master)


@pytest.mark.parametrize("kind", ["dumb", "xterm"])
def test_ctrl_c_cancels_answer_and_stores_its_text(call: Call, kind: str) -> None:
    with terminal("teller", "--thread", "k", TERM=kind) as person:
        person.expect("> ")
        person.type("Tell me a story\n")
        person.expect("Once upon a time")
        person.interrupt("The run was cancelled.")
        person.expect("> ")
        person.type("And now?\n")
        person.expect("The end.")
        person.expect("total")
        person.expect("> ")
        person.type("\x04")
        assert person.end() == 0
    first, second = call("context", "k", "--json").json[1::2]
    assert first["content"][0]["text"].startswith("Once upon a time")
    assert len(first["content"][0]["text"]) < len(STORY)
    assert second["content"][0]["text"] == "The end."


def test_ctrl_c_at_prompt_leaves() -> None:
    with terminal("echo", "--thread", "k") as person:
        person.expect("> ")
        person.type("Hello\n")
        person.expect("You said: Hello")
        person.expect("> ")
        person.interrupt()
        assert person.end() == 0


def test_chat_finishes_killed_answer_first(call: Call) -> None:
    with terminal("teller", "--thread", "k") as person:
        person.expect("> ")
        person.type("Tell me a story\n")
        person.expect("Once upon a time")
        person.process.send_signal(signal.SIGKILL)
        person.end()
    with terminal("teller", "--thread", "k", STORY_PAUSE="0") as person:
        person.expect("thread k · 1 turn")
        person.expect("Once upon a time")
        person.expect("1 step · ")
        person.expect("> ")
        person.type("And now?\n")
        person.expect("The end.")
        person.expect("> ")
        person.type("\x04")
        assert person.end() == 0
    second, first = call("history", "k", "--json").json
    assert (first["final_response"], second["final_response"]) == (STORY, "The end.")


def test_signal_releases_thread(call: Call) -> None:
    with terminal("teller", "--thread", "k") as person:
        person.expect("> ")
        person.type("Tell me a story\n")
        person.expect("Once upon a time")
        person.process.send_signal(signal.SIGTERM)
        assert person.end() == 130
    assert call("show", "k", "--json").json["status"] == "pending"


def test_chat_asks_question_at_terminal() -> None:
    with terminal("payer", "--thread", "k") as person:
        person.expect("> ")
        person.type("Pay\n")
        person.expect("Approve this call?")
        person.interrupt("`lockstitch approve k call_1_1_0`")
        assert person.end() == 4
