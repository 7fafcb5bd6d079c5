"""The command line: what people type and what they see."""

import os
import sys


def main() -> None:
    """The entry of `lockstitch` and `python -m lockstitch`: run what was typed, and leave with its exit code."""
    try:
        # Here, because a Ctrl-C may come while the imports are still running.
        from lockstitch.cli.entry import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    if code == 130:
        # At once: a store survives being left in the middle, and whoever interrupts does not want to wait for
        # threads that the interpreter would wait for.
        os._exit(code)
    sys.exit(code)


__all__ = ["main"]
