"""`in_fork`: run a coroutine in a forked process."""

import asyncio
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from typing import Any


def in_fork(work: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Return the signal that ended a forked process, or 0."""
    child = os.fork()
    if not child:
        code = 1
        try:
            asyncio.run(work())
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        sys.exit("A process failed, see above.")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
