"""Asking before something is gone for good."""

import sys

from lockstitch.errors import Refused


def confirm(question: str, *, yes: bool) -> bool:
    """Whether to go on. Where nobody can answer, --yes must have said so beforehand."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(f"{question} Nobody is here to ask: say --yes.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    # An end of input is no answer, and no answer is no.
    return sys.stdin.readline().strip().lower() in ("y", "yes")
