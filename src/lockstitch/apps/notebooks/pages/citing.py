"""Citations in answers: numbers in brackets become small links to the cited place."""

from collections import Counter
from collections.abc import Iterator

from lockstitch.apps.notebooks.citing import mentions
from lockstitch.apps.notebooks.pages.places import Mark
from lockstitch.server.pages import markdown
from lockstitch.server.pages.markdown import Block, Inline


def blocks(text: str, position: int, href: str) -> list[Block]:
    """The answer at a position as Markdown's blocks; `href` is what stands before a citation in a link."""
    found = markdown.markdown_blocks(text)
    times: Counter[int] = Counter()
    for block in found:
        block.items = [[piece for one in item for piece in _pieces(one, position, href, times)] for item in block.items]
    return found


def _pieces(piece: Inline, position: int, href: str, times: Counter[int]) -> Iterator[Inline]:
    kind, text, _ = piece
    if kind != "text":
        yield piece
        return
    place = 0
    for mention in mentions(text):
        if mention.start > place:
            yield ("text", text[place : mention.start], "")
        for number in mention.numbers:
            times[number] += 1
            yield ("cite", str(number), f"{href}{Mark(position, number, times[number])}")
        place = mention.end
    if place < len(text):
        yield ("text", text[place:], "")
