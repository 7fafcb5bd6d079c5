"""Execute the code blocks of a documentation page in order, in one folder, as a reader would.

The rules for writers:

- A block with a title, such as ```` ```python title="app.py" ````, becomes a file of that name.
- A `sh` block runs in bash. Exported variables stay for later blocks.
- A `python` block without a title runs as a script.
- A `text` block after such a block is its output. `…` matches any text, alone in a line any lines. Two or more spaces
  match two or more spaces, because columns of tables have the width of their content.
- `<!-- test: background http://127.0.0.1:8765/healthz -->` before a `sh` block leaves it running until the page ends.
  The next block starts when the address answers.
- `<!-- test: skip REASON -->` before a block leaves it out. `<!-- test: exit 5 -->` names an expected exit code.
- `<!-- test: model ["Hello.", {"name": "look", "input": {}}] -->` sets the replies of the model: texts and tool calls.
  `openai:` and `anthropic:` models are answered by a loopback server.
- `<!-- test: stderr -->` before a block: its output is stdout and stderr, as in a terminal, not stdout only.
- `<!-- test: models 11434 8000 -->` lets that server answer at these ports, from this block on.

Ports such as 8765 are replaced, so that pages can run at the same time.
"""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.agents.fake_api import Answer, FakeApi, fake_api
from tests.docs.warm import warm_commands

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_BLOCK = re.compile(
    r"(?P<notes>(?:^<!-- test: (?:.|\n)*? -->\n+)*)"
    r"^(?P<indent> *)```(?P<language>\w+)(?P<rest>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_NOTE = re.compile(r"<!-- test: (\w+)(?: ((?:(?!-->)(?:.|\n))*))? -->")
_TITLE = re.compile(r'title="([^"]+)"')
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}\b|(?<=localhost:)\d{4,5}\b|(?<=--port )\d{4,5}\b")
SECONDS = 120.0


@dataclass
class Block:
    """A fenced block of a page."""

    language: str
    code: str
    title: str | None
    notes: dict[str, str]
    line: int

    @property
    def runs(self) -> bool:
        return self.title is None and self.language in ("sh", "python") and "skip" not in self.notes


@dataclass
class Session:
    """The folder, the processes and the environment of a page."""

    folder: Path
    api: FakeApi
    variables: dict[str, str]
    ports: dict[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def localized(self, text: str) -> str:
        """Return the text with a free port for each port of the page."""
        return _PORT.sub(lambda match: self.ports.setdefault(match[0], str(_free_port())), text)


def blocks(path: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    text = path.read_text(encoding="utf-8")
    page: list[Block] = []
    for match in _BLOCK.finditer(text):
        title = _TITLE.search(match["rest"])
        code = re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        line = text.count("\n", 0, match.start("indent")) + 1
        notes = dict(_NOTE.findall(match["notes"]))
        page.append(Block(match["language"], code, title[1] if title else None, notes, line))
    return page


def run_page(path: Path, folder: Path, **variables: str) -> None:
    """Execute a page. Raises AssertionError with the line of the first block that does not do what the page says."""
    with _session(folder, variables) as session:
        page = blocks(path)
        for block, following in zip(page, [*page[1:], None], strict=True):
            output = following.code if following is not None and following.language == "text" else None
            try:
                _execute(session, block, output)
            except AssertionError as exc:
                raise AssertionError(f"{path.name}, line {block.line}: {exc}") from exc


def _execute(session: Session, block: Block, output: str | None) -> None:
    if "model" in block.notes:
        session.api.answer(*(_answer(reply) for reply in json.loads(block.notes["model"])))
    for port in block.notes.get("models", "").split():
        session.ports[port] = session.api.url.rpartition(":")[2]
    if block.title is not None:
        target = session.folder / block.title
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(session.localized(block.code), encoding="utf-8")
        return
    if not block.runs:
        return
    command = _command(session, block)
    environment = _environment(session, warm="kill" not in block.code)
    if "background" in block.notes:
        session.processes.append(subprocess.Popen(command, cwd=session.folder, env=environment, start_new_session=True))
        _wait_for(session.localized(block.notes["background"]), session.processes[-1])
        return
    done = subprocess.run(
        command,
        cwd=session.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if "stderr" in block.notes else subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    expected = int(block.notes.get("exit", "0"))
    assert done.returncode == expected, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    if output is not None:
        assert matches(session.localized(output), done.stdout), (
            f"expected\n{output}\nbut got\n{done.stdout}\n{done.stderr}"
        )


def matches(expected: str, actual: str) -> bool:
    """Return True if `actual` is the expected text, in which `…` matches any text."""
    parts = [r"(?:.*\n)*" if line.strip() == "…" else _pattern(line) for line in expected.rstrip().splitlines()]
    return re.fullmatch("".join(parts), actual.rstrip() + "\n") is not None


def _pattern(line: str) -> str:
    parts = (re.sub(r"(\\ ){2,}", "  +", re.escape(part)) for part in line.rstrip().split("…"))
    return ".*".join(parts) + r"[^\S\n]*\n"


def _command(session: Session, block: Block) -> list[str]:
    code = session.localized(block.code)
    if block.language == "python":
        return ["python", "-c", code]
    exported = session.folder / ".exported"
    exported.touch()
    last = "exec " if "background" in block.notes and code.count("\n") == 1 else ""
    return ["bash", "-euo", "pipefail", "-c", f"source {exported}\ntrap 'export -p > {exported}' EXIT\n{last}{code}"]


def _environment(session: Session, *, warm: bool) -> dict[str, str]:
    """Return the environment of a block. `warm` means that its commands may be forked from a loaded interpreter."""
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    if warm:
        folders.insert(0, str(warm_commands()))
    left_out = ("LOCKSTITCH_", "OPENAI_", "ANTHROPIC_", "LANGSMITH_", "OTEL_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return {
        **inherited,
        "PATH": os.pathsep.join(folders),
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONUNBUFFERED": "1",
        "HOME": str(session.folder),
        "OPENAI_BASE_URL": f"{session.api.url}/v1",
        "OPENAI_API_KEY": "test",
        "ANTHROPIC_BASE_URL": session.api.url,
        "ANTHROPIC_API_KEY": "test",
        **session.variables,
    }


def _answer(reply: Any) -> Answer:
    if isinstance(reply, str):
        return Answer([{"type": "text", "text": reply}])
    calls = reply if isinstance(reply, list) else [reply]
    return Answer([{"type": "tool_use", "id": f"call_{call['name']}", **call} for call in calls], stop="tool_use")


@contextmanager
def _session(folder: Path, variables: dict[str, str]) -> Iterator[Session]:
    """Start the model server in a thread, and end all processes of the page."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    serving = fake_api()
    api = asyncio.run_coroutine_threadsafe(serving.__aenter__(), loop).result()
    api.answer(Answer([{"type": "text", "text": "Done."}]))
    session = Session(folder, api, variables)
    try:
        yield session
    finally:
        for process in session.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        asyncio.run_coroutine_threadsafe(serving.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    if not address:
        return
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the background process ended with {process.returncode}"
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"no answer at {address}")
