"""The examples: each prints what it promises, without a key, and without the extras that it does not need."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.cli.calling import environment

EXAMPLES = Path(__file__).parents[2] / "examples"

SUMMARIES = "\n".join(f"Summarise chapter {number}: Summarised." for number in range(1, 5))

OUTPUTS = {
    "first_agent": """\
completed: Take an umbrella: it rains in Bergen.
2 model calls
1 run_started
2 input
3 llm_call
4 tool_call
5 llm_call
6 run_completed
""",
    "approval": """\
waiting: awaiting_approval
thread order-7 waits
  (the bank pays 42 euros)
completed: Your request is answered.
""",
    "approval deny": """\
waiting: awaiting_approval
thread order-7 waits
completed: Your request is answered.
""",
    "children": """\
completed: The guide has three cities.
Describe Bergen in one line: Bergen is worth a visit.
Describe Oslo in one line: Oslo is worth a visit.
Describe Tromsø in one line: Tromsø is worth a visit.
""",
    "crash": """\
the first process ended with signal 9
after the crash: waiting, in doubt: pay
completed: The invoice is paid.
the bank: paid 42 euros
""",
    "evaluation": """\
guide-facts #1, guide version 1
  sum: passed
  capital: “The capital is Bergen.” lacks “Oslo”
  score 0.5, now pass: none
guide-facts #2, guide version 2
  sum: passed
  capital: passed
  score 1.0, now pass: capital
""",
    "streaming": """\
I look for a train.\x20
→ find_train({'city': 'Bergen'})
← 09:12 to Bergen, platform 3
The next train to Bergen leaves at 09:12 from platform 3.
[completed]
""",
    "structured_output": "Ada pays 42.0 euros, after 2 answers\n",
    "workers": f"""\
{SUMMARIES}
Summarise everything: The run has spent 0.300150 USD of its budget of 0.1 USD.
""",
}

EXTRAS = (
    *(
        "anthropic",
        "fastapi",
        "genai_prices",
        "httpx2",
        "jinja2",
        "jsonschema",
        "mcp",
        "multipart",
        "obstore",
        "openai",
    ),
    *("opentelemetry", "psycopg", "psycopg_pool", "pyarrow", "pypdf", "starlette", "uvicorn", "yaml"),
)
"""Modules of the extras."""


@pytest.fixture
def no_extras(tmp_path: Path) -> str:
    """Return a folder for PYTHONPATH that makes a process behave as if no extra was installed."""
    folder = tmp_path / "no_extras"
    folder.mkdir()
    code = f"import sys\nfor name in {EXTRAS}:\n    sys.modules[name] = None\n"
    (folder / "sitecustomize.py").write_text(code)
    return str(folder)


@pytest.mark.parametrize("command", OUTPUTS)
def test_example_prints_its_output_without_extras(command: str, tmp_path: Path, no_extras: str) -> None:
    name, *arguments = command.split()
    folder = tmp_path / "folder"
    folder.mkdir()
    env = environment(TMPDIR=str(folder), PYTHONIOENCODING="utf-8")
    env["PYTHONPATH"] += os.pathsep + no_extras
    env.pop("MODEL", None)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == OUTPUTS[command]
    assert list(folder.iterdir()) == [], "an example leaves no files"


def test_blocks_extras(no_extras: str) -> None:
    env = {**os.environ, "PYTHONPATH": no_extras}
    code = "import importlib.util as u, sys; print([name for name in %r if sys.modules.get(name, 0) is not None])"
    done = subprocess.run([sys.executable, "-c", code % (EXTRAS,)], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Start the chat server on a free port. Yield its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    env = environment(PORT=str(port), LOCKSTITCH_STORE="sqlite:///chat.db")
    env.pop("MODEL", None)
    process = subprocess.Popen([sys.executable, str(EXAMPLES / "fastapi_chat.py")], cwd=folder, env=env)
    try:
        until = time.monotonic() + 120
        while True:
            assert process.poll() is None, "the server has ended"
            assert time.monotonic() < until
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def test_fastapi_chat_streams_answers_and_accepts_a_message_once(tmp_path: Path) -> None:
    with serving(tmp_path) as url, httpx2.Client(base_url=url, timeout=60) as client:
        message = {"message": "Hello", "message_id": "m-1"}
        assert client.post("/chats/ada", json=message).text == "You said: Hello"
        client.post("/chats/ada", json=message)
        assert client.get("/chats/ada").json() == [{"user": "Hello", "answer": "You said: Hello"}]
        page = client.get("/agents/")
        assert page.status_code == 200
        assert "ada" in page.text


def test_every_example_is_tested() -> None:
    tested = {command.split()[0] for command in OUTPUTS} | {"demo", "fastapi_chat", "ledger"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested
