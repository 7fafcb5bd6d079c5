"""An app with threads that end their process, and the processes that execute it, for tests of suspects.

`steady` calls a `safe` tool that takes a while. `poison` calls one that kills its process, once the steady threads of
this process have started theirs; `keyed` and `once` call tools with another effect that do the same. Each writes a line
to $POISON for each attempt: agent, pid, thread.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from lockstitch import Agent, App, ToolContext, tool
from lockstitch.testing import Scripted

ROOT = Path(__file__).parents[3]
INNOCENT = 5


def _note(name: str, ctx: ToolContext) -> None:
    with open(os.environ["POISON"], "a") as notes:
        notes.write(f"{name} {os.getpid()} {ctx.thread.id}\n")


@tool(effect="safe")
async def wait(ctx: ToolContext) -> str:
    """Take as long as the test sets, so that the call is in flight when the process is killed."""
    _note("steady", ctx)
    await asyncio.sleep(float(os.environ.get("POISON_SECONDS", "1")))
    return "waited"


async def _kill(name: str, ctx: ToolContext) -> str:
    """Kill this process while the other threads are in flight."""
    for _ in range(20):
        beside = [line for line in attempts(Path(os.environ["POISON"]), "steady") if line[0] == os.getpid()]
        if len(beside) >= INNOCENT:
            break
        await asyncio.sleep(0.01)
    _note(name, ctx)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@tool(effect="safe")
async def kill(ctx: ToolContext) -> str:
    """Kill this process. It may run again."""
    return await _kill("poison", ctx)


@tool(effect="keyed")
async def kill_keyed(ctx: ToolContext) -> str:
    """Kill this process. It may run again under the same key."""
    return await _kill("keyed", ctx)


@tool(effect="once")
async def kill_once(ctx: ToolContext) -> str:
    """Kill this process. It may not run again, so the thread continues."""
    return await _kill("once", ctx)


def _agent(name: str, tool_name: str) -> Agent:
    replies = [{"calls": [{"name": tool_name, "input": {}}]}, "Done."]
    return Agent(name, model=Scripted(replies), tools=[wait, kill, kill_keyed, kill_once], title=False)


steady, poison = _agent("steady", "wait"), _agent("poison", "kill")
keyed, once = _agent("keyed", "kill_keyed"), _agent("once", "kill_once")
app = App([steady, poison, keyed, once])


def attempts(notes: Path, name: str) -> list[tuple[int, str]]:
    """Return pid and thread of every attempt to run the tool of an agent."""
    lines = [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []
    return [(int(pid), thread) for agent, pid, thread in lines if agent == name]


def worker(url: str, notes: Path, *options: str, seconds: float = 1.0) -> subprocess.Popen[str]:
    """Start `lockstitch worker --until-idle` on this app."""
    environment = {
        **os.environ,
        "POISON": str(notes),
        "POISON_SECONDS": str(seconds),
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
    }
    command = [sys.executable, "-m", "lockstitch", "--store", url, "--app", "tests.engine.threads.poison:app"]
    return subprocess.Popen(
        [*command, "worker", "--until-idle", *options],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def work_in_a_loop(url: str, notes: Path, *, most: int = 12, seconds: float = 1.0) -> list[int]:
    """Start one worker after the other until one ends by itself. Return the pids of the killed ones."""
    killed: list[int] = []
    for _ in range(most):
        process = worker(url, notes, seconds=seconds)
        try:
            output, _ = process.communicate(timeout=120)
        finally:
            process.kill()
            process.wait()
        if process.returncode == 0:
            return killed
        assert process.returncode == -signal.SIGKILL, output
        killed.append(process.pid)
    raise AssertionError(f"after {most} workers there is still something to do; killed were {killed}")
