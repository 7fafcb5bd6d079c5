"""Reading in a process of its own: what is made to take all time and memory there is can be ended there.

Such a process is a module that takes LIMITS as its arguments and the bytes as its input, and says JSON.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from lockstitch.apps.notebooks.reader import Limits
from lockstitch.errors import Refused
from lockstitch.records import Json, codec


async def read_apart(module: str, name: str, content: bytes, limits: Limits) -> Json:
    """What the process that reads says. Refused when it says what is wrong, or nothing at all."""
    arguments = [str(limits.pages), str(limits.characters), str(limits.memory), str(int(limits.seconds) + 1)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(content), limits.seconds)
    except TimeoutError as exc:
        raise Refused(
            f"{name} takes more than {limits.seconds:g} seconds to be read, so it was given up. Nothing was added."
        ) from exc
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        found = codec.loads(said)
    except ValueError as exc:
        raise Refused(f"{name} cannot be read: it is damaged, or takes too much memory. Nothing was added.") from exc
    if "refused" in found:
        raise Refused(f"{name} {found['refused']} Nothing was added.")
    return found


def answer(read: Callable[[bytes, int, int], Json], arguments: Sequence[str]) -> None:
    """Be such a process: `read` is given the bytes, the most pages and the most characters."""
    pages, characters, memory, seconds = map(int, arguments)
    _limit(memory, seconds)
    try:
        said = read(sys.stdin.buffer.read(), pages, characters)
    except MemoryError:
        said: Json = {"refused": "takes too much memory to be read."}
    except Exception as exc:  # what is broken may break a reader in any way
        said = {"refused": f"cannot be read; it is damaged, or too large inside ({type(exc).__name__})."}
    sys.stdout.buffer.write(codec.dumps(said))


def _limit(memory: int, seconds: int) -> None:
    """Have the system end this process when it takes too much, where it can."""
    try:
        import resource
    except ImportError:
        return
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds)):
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))
