"""The command line of Lockstitch."""

import gc
import os
import sys


def main() -> None:
    """Entry point of `lockstitch` and `python -m lockstitch`: run the command line and exit with its exit code."""
    # Modules, classes and functions stay until the end, so frequent collections during a start find nothing.
    gc.set_threshold(10_000)
    try:
        # Imported here because the user may press Ctrl-C while the imports still run.
        from lockstitch.cli.entry import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    if code == 130:
        # Exit at once. The store stays consistent if a process ends at any point, and a user who interrupts does not
        # want to wait for threads that the interpreter would join.
        os._exit(code)
    sys.exit(code)


__all__ = ["main"]
