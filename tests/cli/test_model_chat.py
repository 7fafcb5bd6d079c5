"""`run`, `chat`, `resume` and `regenerate` without an app: a model on the command line, and stored definitions."""

import asyncio
import io
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstitch import sync
from tests.agents.fake_api import Answer, FakeApi, fake_api
from tests.cli.calling import Call, CommandResult
from tests.cli.test_chat import terminal

MODEL = "openai:llama3"
SECRET = "very-secret-key"


@pytest.fixture(autouse=True)
def url(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    address = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("LOCKSTITCH_STORE", address)
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    return address


@pytest.fixture
def server() -> Iterator[FakeApi]:
    """A model server in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    serving = fake_api()
    try:
        yield asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result()
        asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def say(*texts: str) -> list[Answer]:
    return [Answer([{"type": "text", "text": text}]) for text in texts]


@pytest.fixture
def at(server: FakeApi) -> tuple[str, ...]:
    return (MODEL, "--base-url", f"{server.url}/v1")


Piped = Callable[..., CommandResult]


@pytest.fixture
def piped(call: Call, monkeypatch: pytest.MonkeyPatch) -> Piped:
    """`chat` with messages from a pipe."""

    def chat_with(text: str, *arguments: str) -> CommandResult:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))
        return call("chat", *arguments)

    return chat_with


def sent(server: FakeApi) -> list[list[tuple[str, str]]]:
    """Return the messages of each request."""
    return [[(part["role"], part["content"]) for part in request.body["messages"]] for request in server.requests]


def test_run_needs_no_app(call: Call, server: FakeApi, at: tuple[str, ...], url: str, tmp_path: Path) -> None:
    server.answer(*say("Hello."))
    (tmp_path / "system.txt").write_text("Be brief.\n")
    result = call("run", *at, "Hi", "--thread", "t", "--api-key", SECRET, "--system", f"@{tmp_path}/system.txt")
    assert (result.code, result.out) == (0, "Hello.\n")
    assert server.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    assert sent(server) == [[("system", "Be brief."), ("user", "Hi")]]
    with sync.open_store(url) as store:
        head = store.thread("t")
        definition = store.agents.version("default", MODEL, 1).definition
    assert (head.agent, head.title) == (MODEL, None)
    assert definition["model"] == f"{server.url.removeprefix('http://').replace(':', '-')}:llama3"
    assert SECRET.encode() not in (tmp_path / "store.db").read_bytes()
    assert server.url.encode() not in (tmp_path / "store.db").read_bytes()


def test_price_warning_is_printed_once_on_its_own_line(piped: Piped, server: FakeApi) -> None:
    server.answer(*say("One.", "Two."))
    # A name that no other test uses: the warning is printed once per process.
    result = piped("a\nb\n", "openai:price-test", "--base-url", f"{server.url}/v1")
    assert result.out == "One.\nTwo.\n"
    lines = [line for line in result.err.splitlines() if "Unknown price" in line]
    assert len(lines) == 1
    assert lines[0].startswith("lockstitch: Unknown price of model price-test at provider ")


def test_chat_keeps_its_thread_and_system_text(piped: Piped, server: FakeApi, at: tuple[str, ...]) -> None:
    server.answer(*say("One.", "Two.", "Three."))
    result = piped("a\nb\n", *at, "--system", "Be brief.")
    assert result.out == "One.\nTwo.\n"
    hint = re.search(r"`lockstitch chat (.*) --thread (\S+)`", result.err)
    assert hint is not None
    assert hint[1].split() == list(at)
    again = piped("c\n", *hint[1].split(), "--thread", hint[2])
    assert (again.out, "2 turns" in again.err) == ("Three.\n", True)
    assert sent(server)[-1][0] == ("system", "Be brief.")
    assert [text for _, text in sent(server)[-1][1:]] == ["a", "One.", "b", "Two.", "c"]


def test_thread_names_its_agent(
    piped: Piped, call: Call, server: FakeApi, at: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer(*say("One.", "Two.", "Three."))
    assert call("run", *at, "a", "--thread", "t", "--system", "Be brief.").code == 0
    unknown = piped("b\n", "--thread", "t")
    assert unknown.code == 2
    assert "at a server that is not known here. Pass its URL with --base-url." in unknown.err
    assert len(server.requests) == 1
    assert piped("b\n", "--thread", "t", "--base-url", f"{server.url}/v1").out == "Two.\n"
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    assert piped("c\n/system\n", "--thread", "t").out == "Three.\n"
    assert {messages[0] for messages in sent(server)} == {("system", "Be brief.")}
    assert piped("d\n", "--thread", "nothing").code == 3
    assert piped("d\n").code == 2


def test_commands_change_model_and_system_text(piped: Piped, call: Call, server: FakeApi, at: tuple[str, ...]) -> None:
    server.answer(*say("One.", "Two.", "Three."))
    result = piped("a\n/model qwen3\nb\n/system Be kind.\nc\n/model\n/system\n/cost\n//etc\n", *at, "--thread", "t")
    assert result.out == "One.\nTwo.\nThree.\nThree.\n"
    assert [request.body["model"] for request in server.requests] == ["llama3", "qwen3", "qwen3", "qwen3"]
    assert sent(server)[2][0] == ("system", "Be kind.")
    assert sent(server)[3][-1] == ("user", "/etc")
    assert "openai:qwen3 · 127.0.0.1-" in result.err
    assert "Be kind." in result.err
    assert re.search(r"3 turns · [\d,]+ tokens in, [\d,]+ out · unknown cost", result.err)
    versions = call("sql", "SELECT agent, version FROM runs ORDER BY turn", "--format", "csv").lines[1:]
    assert versions == ["openai:llama3,1", "openai:qwen3,1", "openai:qwen3,2", "openai:qwen3,2"]


def test_help_lists_commands_and_unknown_command_is_refused(piped: Piped, server: FakeApi, at: tuple[str, ...]) -> None:
    result = piped("/help\n/quit\nHi\n", *at)
    assert (result.code, result.out) == (0, "")
    assert all(name in result.err for name in ("/model", "/system", "/cost", "/retry", "/fork"))
    refused = piped("/nonsense\n", *at)
    assert (refused.code, "Unknown command /nonsense" in refused.err) == (2, True)
    assert server.requests == []


def test_retry_answers_again(piped: Piped, call: Call, server: FakeApi, at: tuple[str, ...]) -> None:
    failure = Answer(status=400, body={"error": {"message": "the model is broken"}})
    server.answer(failure, *say("One.", "Two."))
    result = piped("a\n/retry\n/retry\n", *at, "--thread", "t")
    assert result.out == "One.\nTwo.\n"
    assert f"{server.url}/v1/chat/completions answered with status 400: the model is broken" in result.err
    assert sent(server) == [[("user", "a")]] * 3
    assert call("history", "t", "--json").json[0]["final_response"] == "Two."
    unnamed = piped("a\n/retry\n/cost\n", *at)
    assert "Now in a copy of the thread with the new answer: " in unnamed.err
    assert "1 turn · " in unnamed.err


def test_fork_continues_in_a_copy(piped: Piped, call: Call, server: FakeApi, at: tuple[str, ...]) -> None:
    server.answer(*say("One.", "Two.", "Three."))
    result = piped("a\n/fork copy\nb\n", *at, "--thread", "t")
    assert (result.out, "Now in a copy of the thread: copy" in result.err) == ("One.\nTwo.\n", True)
    assert [len(call("history", key, "--json").json) for key in ("t", "copy")] == [1, 2]


def test_resume_and_regenerate_need_no_app(call: Call, server: FakeApi, at: tuple[str, ...], url: str) -> None:
    server.answer(*say("One.", "Two.", "Three."))
    assert call("run", *at, "a", "--thread", "t", "--system", "Be brief.").code == 0
    with sync.open_store(url) as store:
        store.enqueue(MODEL, {"role": "user", "content": "b"}, thread="t")
    assert call("resume", "t").code == 2
    assert call("resume", "t", *at[1:]).out == "Two.\n"
    assert call("regenerate", "t", *at[1:]).out == "Three.\n"
    assert {messages[0] for messages in sent(server)} == {("system", "Be brief.")}
    assert sent(server)[1:] == [[*sent(server)[0], ("assistant", "One."), ("user", "b")]] * 2


def test_worker_continues_chat_with_agent_of_this_name(
    call: Call, server: FakeApi, at: tuple[str, ...], url: str, tmp_path: Path
) -> None:
    server.answer(*say("One.", "Two."))
    assert call("run", *at, "a", "--thread", "t").code == 0
    code = f"from lockstitch import Agent, App\napp = App([Agent('{MODEL}', model='{MODEL}', base_url='{at[2]}')])\n"
    (tmp_path / "model_app.py").write_text(code)
    with sync.open_store(url) as store:
        store.enqueue(MODEL, {"role": "user", "content": "b"}, thread="t")
    assert call("worker", "--until-idle", "--app", f"{tmp_path}/model_app.py:app").code == 0
    assert call("history", "t", "--json").json[0]["final_response"] == "Two."


def test_mcp_server_gives_tools(call: Call, server: FakeApi, at: tuple[str, ...]) -> None:
    use: dict[str, Any] = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 2, "b": 3}}
    server.answer(Answer([use], stop="tool_use"), *say("It is 5."))
    result = call("run", *at, "2+3?", "--thread", "t", "--mcp", f"{sys.executable} -m tests.agents.tools.mcp_server")
    assert (result.code, result.out) == (0, "It is 5.\n"), result.err
    assert "5" in json.dumps(server.last["messages"][-1])
    refused = call("run", *at, "Hi", "--mcp", "nothing-of-this-name")
    assert (refused.code, "nothing-of-this-name" in refused.err) == (2, True)


def test_error_names_the_url_of_the_server(call: Call) -> None:
    result = call("run", MODEL, "Hi", "--base-url", "http://user:pw@127.0.0.1:1/v1")
    assert result.code == 1
    assert "The connection to http://127.0.0.1:1/v1 broke: " in result.err
    assert "pw@" not in result.err
    key = call("run", "openai:gpt-5", "Hi")
    assert (key.code, "OpenAI needs a key. Set OPENAI_API_KEY" in key.err) == (1, True)


def test_options_of_models_are_refused_for_agents(call: Call) -> None:
    for option in ("--base-url", "--api-key", "--mcp", "--system"):
        result = call("run", "helper", "Hi", option, "http://localhost:1/v1", "--app", "tests.cli.shop:app")
        assert (result.code, "need a model" in result.err) == (2, True)
    assert "needs an app" in call("run", "helper", "Hi").err


def test_answer_is_rendered_at_a_terminal(server: FakeApi, at: tuple[str, ...], url: str) -> None:
    server.answer(*say("# Title\n\nSome **bold** text.\n\n```python\nx = 1\n\ny = 2\n```\n\n1. one\n2. two"))
    with terminal(*at, "--thread", "t", TERM="xterm", COLUMNS="60", LOCKSTITCH_STORE=url) as person:
        person.expect("> ")
        person.type("Hi\n")
        person.expect("Some bold text.")
        person.expect("y = 2")
        person.expect(" 2 two")
        person.expect("1 step")
        person.expect("> ")
        person.type("/nonsense\n")
        person.expect("Unknown command /nonsense")
        person.expect("> ")
        person.type("\x04")
        assert person.end() == 0
