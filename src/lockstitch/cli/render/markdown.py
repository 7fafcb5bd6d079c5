"""`MarkdownStream`: render streamed Markdown on a terminal, block by block."""

import re
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_REFRESH: Final = 0.08
"""Minimum seconds between two renderings of a growing block."""


class MarkdownStream:
    """Renders text that arrives in parts.

    A blank line outside of a code block ends a block. The finished blocks stay on the screen unchanged, and only the
    last block is rendered again while it grows.
    """

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._block = ""
        self._live: Live | None = None
        self._shown = 0.0
        self._follows = False
        """True if a block of the same answer is above."""

    def feed(self, text: str) -> None:
        """Add a part of the text."""
        self._block += text
        while (end := _end_of_block(self._block)) is not None:
            block, self._block = self._block[:end], self._block[end:].lstrip("\n")
            self._finish(block)
        if self._block.strip() and time.monotonic() - self._shown >= _REFRESH:
            self._show(self._block)

    def end(self) -> None:
        """Render the last block."""
        block, self._block = self._block, ""
        self._finish(block)
        self._follows = False

    def _finish(self, block: str) -> None:
        if block.strip():
            self._show(block)
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._follows = True

    def _show(self, block: str) -> None:
        # Imported here, because most commands render no Markdown.
        from rich.live import Live
        from rich.markdown import Markdown

        # The addresses of links are printed, because a model must not hide where a link leads.
        content = Markdown(block, hyperlinks=False)
        if self._live is None:
            if self._follows:
                self._console.print()
            self._live = Live(
                content, console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        self._live.update(content, refresh=True)
        self._shown = time.monotonic()


def _end_of_block(text: str) -> int | None:
    """Return the position after the first block, or None if the block may still grow."""
    start = 0
    while (gap := text.find("\n\n", start)) != -1:
        fence: str | None = None
        for match in _FENCE.finditer(text, 0, gap):
            if fence is None:
                fence = match[1]
            elif match[1].startswith(fence):
                fence = None
        rest = text[gap:].lstrip("\n")
        if fence is None and rest and not rest[0].isspace():
            # An indented line continues a list.
            return gap + 1
        start = gap + 2
    return None
