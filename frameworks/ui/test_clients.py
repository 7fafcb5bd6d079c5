"""The unchanged clients of npm with a real server: chats, approvals, browser tools, and SIGKILL in a stream."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frameworks.ui.app import STORY

HERE = Path(__file__).parent


class Server:
    """A server with a worker, in its own process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "lockstitch", "serve", "--app", "frameworks.ui.app:app"]
        environment = {**os.environ, "LOCKSTITCH_STORE": f"sqlite:///{self._folder}/record.db"}
        with (self._folder / "serve.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "--port", str(self._port)], cwd=HERE.parents[1], env=environment, stdout=log, stderr=log
            )
        until = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/api/whoami", timeout=5).close()
                return process
            except OSError:
                assert process.poll() is None, (self._folder / "serve.log").read_text()
                assert time.monotonic() < until
                time.sleep(0.1)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def restart(self) -> None:
        self._process = self._start()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("ui"))
    yield server
    server.stop()


def client(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["node", str(HERE / script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def lines(process: subprocess.Popen[str]) -> list[Any]:
    with process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def interrupted(script: str, server: Server, chat: str) -> Any:
    """Kill the server in the middle of an answer, start another one, and return what the client shows in the end."""
    with client(script, server.url, "teller", chat, "interrupted") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert "half" in json.loads(process.stdout.readline())
            server.kill()
            server.restart()
            process.stdin.write("go\n")
            process.stdin.flush()
            return lines(process)[-1]
        finally:
            process.kill()


def parts(message: Any) -> list[Any]:
    """Return the parts of a message without the ids, which each run has of its own."""
    own = ("id", "approval")
    return [{name: value for name, value in part.items() if name not in own} for part in message["parts"]]


def test_ai_sdk_shows_the_same_message_after_sigkill(server: Server) -> None:
    whole = lines(client("ai_sdk.mjs", server.url, "teller", "whole", "send"))[-1]
    cut = interrupted("ai_sdk.mjs", server, "cut")

    texts = [part["text"] for part in whole["messages"][-1]["parts"] if part["type"] == "text"]
    assert texts == [STORY, STORY[::-1]]
    assert parts(cut["messages"][-1]) == parts(whole["messages"][-1])
    assert len(cut["messages"]) == len(whole["messages"]) == 2
    assert cut["status"] == whole["status"] == "ready"
    assert parts(cut["history"][-1]) == parts(whole["messages"][-1])


def test_ag_ui_shows_the_same_messages_after_sigkill(server: Server) -> None:
    def shown(messages: list[Any]) -> list[Any]:
        return [(message["role"], message.get("content")) for message in messages if message["role"] != "reasoning"]

    whole = lines(client("ag_ui.mjs", server.url, "teller", "whole-ag", "send"))[-1]
    cut = interrupted("ag_ui.mjs", server, "cut-ag")

    assert [content for role, content in shown(whole["messages"]) if role == "assistant" and content] == [
        STORY,
        STORY[::-1],
    ]
    assert shown(cut["messages"]) == shown(whole["messages"])
    assert cut["outcome"] == {"type": "success"}


@pytest.mark.parametrize(("act", "state"), [("approve", "output-available"), ("deny", "output-error")])
def test_person_replies_to_an_approval(server: Server, act: str, state: str) -> None:
    chat = lines(client("ai_sdk.mjs", server.url, "payer", act, act))[-1]
    agent = lines(client("ag_ui.mjs", server.url, "payer", f"{act}-ag", act))[-1]

    (call,) = [part for part in chat["messages"][-1]["parts"] if part["type"] == "tool-pay"]
    assert (call["state"], chat["messages"][-1]["parts"][-1]["text"]) == (state, "Done.")
    (result,) = [message for message in agent["messages"] if message["role"] == "tool"]
    assert ("Too much" in result["content"], agent["messages"][-1]["content"]) == (act == "deny", "Done.")


def test_browser_executes_a_call(server: Server) -> None:
    chat = lines(client("ai_sdk.mjs", server.url, "browser", "confirm", "confirm"))[-1]
    agent = lines(client("ag_ui.mjs", server.url, "browser", "confirm-ag", "confirm"))[-1]

    assert chat["messages"][-1]["parts"][-1]["text"] == "Fine."
    assert [message["role"] for message in agent["messages"]] == ["user", "assistant", "tool", "assistant"]


def test_answer_is_generated_again(server: Server) -> None:
    chat = lines(client("ai_sdk.mjs", server.url, "teller", "again", "regenerate"))[-1]
    assert [message["role"] for message in chat["messages"]] == ["user", "assistant"]
    assert [message["id"] for message in chat["messages"]][1] == chat["history"][1]["id"]
    assert len(chat["history"]) == 2


def test_failed_run_is_an_error(server: Server) -> None:
    errors = lines(client("ai_sdk.mjs", server.url, "failing", "fail", "send"))
    assert "error" in errors[0]
    assert errors[-1]["status"] == "error"
    assert "error" in lines(client("ag_ui.mjs", server.url, "failing", "fail-ag", "send"))[0]
