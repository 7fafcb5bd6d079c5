"""Where answers go: tables and lines for people, JSON for programs."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lockstitch.cli.table import Column, lay_out
from lockstitch.cli.text import safe
from lockstitch.records import codec


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        # rich would leave the process right here, with an exit code of its own.
        raise BrokenPipeError


class Output:
    """One command's output. Colours and widths only where a person looks at it."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.console = _Console(highlight=False, markup=False, emoji=False, legacy_windows=False)
        self._aside = _Console(stderr=True, highlight=False, markup=False, emoji=False, legacy_windows=False)

    @property
    def width(self) -> int | None:
        """The columns there are, or None where nobody counts them."""
        return self.console.width if self.console.is_terminal else None

    def json(self, value: Any) -> None:
        """One JSON value on one line, exactly as it is kept; in UTF-8, whatever the terminal speaks."""
        sys.stdout.flush()
        sys.stdout.buffer.write(codec.dumps(value) + b"\n")

    def line(self, text: str | Text = "", style: str = "", indent: int = 0, mark: Text | None = None) -> None:
        """Text, wrapped on a terminal only, every line indented; a mark stands before the first one."""
        content = Text(safe(text), style=style) if isinstance(text, str) else text
        first = Text(" " * indent) + (mark or Text())
        margin = Text(" " * cell_len(first.plain))
        for number, one in enumerate(self._lines(content, cell_len(first.plain)) or [Text()]):
            one.rstrip()
            shown = (margin if number else first) + one
            shown.rstrip()
            self.console.print(shown, soft_wrap=True)

    def _lines(self, content: Text, indent: int) -> Iterable[Text]:
        if self.width is None:
            return content.split("\n", allow_blank=True)
        return content.wrap(self.console, max(self.width - indent, 20), tab_size=4)

    def cropped(self, text: Text) -> None:
        """One line, cut to what a terminal shows of it."""
        if self.width is not None:
            text.truncate(self.width, overflow="ellipsis")
        self.console.print(text, soft_wrap=True)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str | Text]]) -> None:
        for line in lay_out(columns, rows, self.width):
            self.console.print(line, soft_wrap=True)

    def fields(self, pairs: Sequence[tuple[str, str | Text]]) -> None:
        """Names and values below each other; those without a value are left out."""
        shown = [(name, value) for name, value in pairs if str(value)]
        longest = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            label = Text(name.ljust(longest + 2), style="dim")
            value = Text(safe(value)) if isinstance(value, str) else value
            self.console.print(label + value, soft_wrap=True)

    def stream(self, text: str) -> None:
        """A piece of an answer as it comes."""
        sys.stdout.write(safe(text))
        sys.stdout.flush()

    def aside(self, text: Text) -> None:
        """A line about the answer, cut to what a terminal shows of it."""
        sys.stdout.flush()
        if self._aside.is_terminal:
            text = text.copy()
            text.plain = " ".join(text.plain.split())
            text.truncate(self._aside.width, overflow="ellipsis")
        self._aside.print(text, soft_wrap=True)

    def note(self, text: str) -> None:
        """Something about the answer that is no part of it, for people only."""
        if not self.as_json:
            sys.stdout.flush()
            sys.stderr.write(safe(text) + "\n")
            sys.stderr.flush()
