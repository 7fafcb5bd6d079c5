"""An app with threads that end their process, and the processes that execute it, for tests of suspects.

`steady` calls a `safe` tool that takes a while. `poison` calls one that kills its process, once the steady threads of
this process have started theirs; `keyed` and `once` call tools with another effect that do the same. Each writes a line
to $POISON for each attempt: agent, pid, thread.
"""

import asyncio
import os
import signal
from pathlib import Path

from lockstitch import Agent, App, ToolContext, tool
from lockstitch.engine.worker import WorkerLoop
from lockstitch.store import open_store
from lockstitch.testing import Scripted
from tests.races.processes import call

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


def work_in_a_loop(url: str, notes: Path, *, most: int = 12) -> list[int]:
    """Start one worker after the other until one ends by itself. Return the pids of the killed ones."""
    environment = {"POISON": str(notes), "POISON_SECONDS": "0.5"}
    # In a separate process, which forks: a test process has threads and must not fork.
    return call("tests.engine.threads.poison:fork_workers", url, most, environment=environment)


def fork_workers(url: str, most: int) -> list[int]:
    """Fork workers for `work_in_a_loop`."""
    killed: list[int] = []
    for _ in range(most):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                asyncio.run(_work(url))
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == 0:
            return killed
        assert code == -signal.SIGKILL, code
        killed.append(pid)
    raise AssertionError(f"after {most} workers there is still something to do; killed were {killed}")


async def _work(url: str) -> None:
    async with open_store(url) as store:
        await WorkerLoop(app, store, until_idle=True).run()
