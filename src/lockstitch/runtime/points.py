"""Kill points: named places where a test may end the process, to see what is left of it.

LOCKSTITCH_KILL=append.before:3 kills the process with SIGKILL when it comes to the third `append.before`. Nothing
happens otherwise. LOCKSTITCH_POINTS=file writes down every point that is reached, so that a test knows which there are.
"""

import os
import signal
from collections import Counter
from pathlib import Path

_wanted = os.environ.get("LOCKSTITCH_KILL")
_trace = os.environ.get("LOCKSTITCH_POINTS")
_seen: Counter[str] = Counter()


def watch_for(wanted: str | None, trace: str | None = None) -> None:
    """Kill at this point, and write down every point in this file; for a process that was forked to be killed."""
    global _wanted, _trace
    _wanted, _trace = wanted, trace
    _seen.clear()


def reach(name: str) -> None:
    """Say that the process has come to this point."""
    if _wanted is None and _trace is None:
        return
    _seen[name] += 1
    point = f"{name}:{_seen[name]}"
    if _trace:
        with Path(_trace).open("a") as file:
            file.write(f"{point}\n")
    if _wanted == point:
        os.kill(os.getpid(), signal.SIGKILL)
