"""`report` prints an error as one line or one JSON object; `warnings_to_stderr` prints log records."""

import logging
import os
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from lockstitch.cli import stdio
from lockstitch.cli.exit_codes import ExitCode
from lockstitch.cli.render.text import one_line, safe
from lockstitch.errors import LockstitchError, wire_name_of

DEBUG = "LOCKSTITCH_DEBUG"
"""Environment variable. If it is set, errors are printed with their traceback."""


def report(exc: BaseException, *, as_json: bool) -> int:
    """Print an error to stderr and return its exit code."""
    code, kind, message = explain(exc)
    if os.environ.get(DEBUG):
        stdio.print_error("".join(traceback.format_exception(exc)).rstrip())
    if as_json:
        from lockstitch.model import codec

        stdio.print_error(codec.dumps({"error": kind, "message": message}).decode())
    else:
        stdio.print_error(f"lockstitch: {safe(message)}")
    return code


def explain(exc: BaseException) -> tuple[int, str, str]:
    """Return the exit code, the name and the message of an error."""
    kind = wire_name_of(exc)
    if isinstance(exc, LockstitchError):
        return exc.exit_code, kind, _one_line(str(exc))
    if isinstance(exc, KeyboardInterrupt):
        return ExitCode.INTERRUPTED, "Interrupted", str(exc) or "interrupted"
    # Typer raises these for invalid options and arguments. Its classes moved between versions, this method did not.
    format_message = getattr(exc, "format_message", None)
    if format_message is not None:
        return getattr(exc, "exit_code", ExitCode.USAGE), "Usage", _usage(exc, str(format_message()))
    if isinstance(exc, OSError) and exc.strerror:
        where = f"{exc.filename}: " if exc.filename else ""
        return ExitCode.FAILED, kind, f"{where}{exc.strerror}"
    if isinstance(exc, ModuleNotFoundError) and "pip install" in str(exc):
        return ExitCode.USAGE, kind, str(exc)
    text = f"unexpected {kind}: {_one_line(str(exc))} (set {DEBUG}=1 for details; please report it)"
    return ExitCode.FAILED, kind, text


def _usage(exc: BaseException, message: str) -> str:
    context = getattr(exc, "ctx", None)
    command = getattr(context, "command_path", None)
    hint = f" Try `{command} --help`." if command else ""
    return f"{_one_line(message).rstrip('.')}.{hint}"


def _one_line(message: str) -> str:
    return " ".join(message.split())


SILENT: Final = 60.0
"""Seconds before an equal log line is printed again. An unreachable store is retried every second."""


@contextmanager
def warnings_to_stderr(
    *, as_json: bool, print_line: Callable[[str], None] = stdio.print_error
) -> Generator[None, None, None]:
    """Print warnings of the `lockstitch` loggers to stderr inside this context.

    `print_line` gets each line, on the thread that logs it.
    """
    log, handler = logging.getLogger("lockstitch"), _Lines(as_json, print_line)
    propagated = log.propagate
    log.addHandler(handler)
    # The handlers of the root logger belong to the app. Without this, they would print the warnings a second time.
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagated


class _Lines(logging.Handler):
    def __init__(self, as_json: bool, print_line: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._as_json = as_json
        self._print_line = print_line
        self._printed: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        text = one_line(record.getMessage())
        problem = record.exc_info[1] if record.exc_info else None
        if problem is not None:
            text = f"{text}: {type(problem).__name__}: {one_line(str(problem))}"
        now = time.monotonic()
        if now - self._printed.get(text, -SILENT) < SILENT:
            return
        self._printed = {line: at for line, at in self._printed.items() if now - at < SILENT} | {text: now}
        if self._as_json:
            from lockstitch.model import codec

            self._print_line(codec.dumps({"level": record.levelname.lower(), "message": text}).decode())
        else:
            self._print_line(f"lockstitch: {text}")
        if problem is not None and os.environ.get(DEBUG):
            self._print_line(logging.Formatter().formatException((type(problem), problem, problem.__traceback__)))
