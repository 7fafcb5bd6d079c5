"""A process that forks child processes on demand: tests can kill many without starting Python for each.

    python -m tests.backends.files.nursery FOLDER DUTY

For each number on its input it forks that many children. Each child prints "pid N", does its duty and prints "did N"
for each acknowledged commit. When all children are dead for any reason, this process prints "dead".
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from lockstitch.backend import Find, Where
from lockstitch.backends.files import FilesBackend, coordinator
from lockstitch.errors import Conflict
from lockstitch.model import Blob, Run, SystemClock, Thread, codec
from tests.backends.files.writing import START, begin, create, finish, head_of


def say(*words: object) -> None:
    # One system call per line: no buffered line is lost when the process is killed.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def write(backend: FilesBackend) -> None:
    """Append to the one thread of the store until killed. Every commit is acknowledged."""
    threads = await backend.find(Find(Thread))
    head = threads[0] if threads else await create(backend, key="../the only one")
    if head.status == "running":
        (run,) = await backend.find(Find(Run, (Where("status", "=", "running"),)))
        head = await finish(backend, head, run, "resumed")
        say("did", head.position)
    while True:
        content = str(head.position).encode() * 100
        await backend.put([Blob(sha256=codec.digest(head.position), size=9, content=content, created_at=START)])
        head, run = await begin(backend, head, "x" * 500)
        say("did", head.position)
        head = await finish(backend, head, run, "y" * 500)
        say("did", head.position)


async def take_a_turn(backend: FilesBackend) -> None:
    """Append one turn to the one thread of the store, in competition with other processes."""
    (stored_thread,) = await backend.find(Find(Thread))
    while True:
        head = await head_of(backend, stored_thread.id)
        if head.status == "waiting":
            try:
                head, run = await begin(backend, head, f"from {os.getpid()}")
                break
            except Conflict:
                continue
        await asyncio.sleep(0.002)
    await finish(backend, head, run, "done")
    say("did", run.turn)


DUTIES: dict[str, Callable[[FilesBackend], Awaitable[None]]] = {"write": write, "take_a_turn": take_a_turn}


async def live(root: Path, duty: str) -> None:
    coordinator.CHECKPOINT = 40_000
    backend = FilesBackend(root, SystemClock())
    await backend.migrate()
    say("pid", os.getpid())
    await DUTIES[duty](backend)
    await backend.close()


def main() -> None:
    root, duty = Path(sys.argv[1]), sys.argv[2]
    for count in sys.stdin:
        children: list[int] = []
        for _ in range(int(count)):
            child = os.fork()
            if child == 0:
                try:
                    asyncio.run(live(root, duty))
                finally:
                    os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    main()
