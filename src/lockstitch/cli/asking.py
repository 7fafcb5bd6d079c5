"""Asking whoever sits at the terminal, or whatever comes through a pipe, line by line."""

import sys
from contextlib import suppress
from importlib import import_module


class Asker:
    """Reads answers from stdin. A terminal is prompted and may edit its line; a pipe is only read."""

    def __init__(self) -> None:
        self.at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        reconfigure = getattr(sys.stdin, "reconfigure", None)
        if reconfigure is not None:
            # What is no text is seen as such by the model, instead of ending a conversation.
            reconfigure(errors="replace")
        if self.at_terminal:
            with suppress(ImportError):
                # Gives `input` its line editing.
                import_module("readline")

    def ask(self, prompt: str) -> str | None:
        """One line; None when there are no more."""
        sys.stdout.flush()
        if self.at_terminal:
            try:
                return input(prompt)
            except EOFError:
                return None
        line = sys.stdin.readline()
        return line.rstrip("\r\n") if line else None
