"""Markdown as a tree of blocks, which a template renders with escaping."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

MarkdownInline = tuple[str, str, str]
"""Kind (text, code, bold, soft, struck, link, or cite, which apps add), text, and link target."""

_BLOCKS: Final = {
    "paragraph_open": "p",
    "heading_open": "h",
    "bullet_list_open": "ul",
    "ordered_list_open": "ol",
    "list_item_open": "li",
    "blockquote_open": "quote",
    "table_open": "table",
    "thead_open": "head",
    "tbody_open": "body",
    "tr_open": "row",
    "th_open": "cell",
    "td_open": "cell",
}
_STYLES: Final = {"strong_open": "bold", "em_open": "soft", "s_open": "struck"}

_ADDRESS: Final = re.compile(r"https?://[^\s<>\"'`()\[\]]{1,2000}[^\s<>\"'`()\[\].,;:!?]")
"""An address without the mark that ends a sentence."""


@dataclass(slots=True)
class MarkdownBlock:
    """A block of a Markdown text: a leaf with inline nodes or text, or a block with other blocks."""

    kind: str
    """`p`, `h` (heading), `ul`, `ol`, `li`, `pre` (code), `quote`, `hr`, or `table` with `head`, `body`, `row` and
    `cell`."""
    inlines: list[MarkdownInline] = field(default_factory=list[MarkdownInline])
    """The inline nodes of a paragraph, heading or cell."""
    blocks: "list[MarkdownBlock]" = field(default_factory=list["MarkdownBlock"])
    """The blocks inside a list, list item, quote or table."""
    text: str = ""
    """The text of a code block."""
    start: int = 1
    """The first number of an ordered list."""

    def replace_inlines(self, change: Callable[[MarkdownInline], Iterable[MarkdownInline]]) -> None:
        """Replace each inline node below this block, in the order of the text.

        Args:
            change: Returns the nodes that replace a node.
        """
        self.inlines = [changed for inline in self.inlines for changed in change(inline)]
        for block in self.blocks:
            block.replace_inlines(change)

    def all_inlines(self) -> list[MarkdownInline]:
        """Return all inline nodes below this block, in the order of the text."""
        return [*self.inlines, *(inline for block in self.blocks for inline in block.all_inlines())]


@cache
def _parser() -> MarkdownIt:
    # HTML is not parsed, so it remains text.
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def markdown_blocks(text: str) -> list[MarkdownBlock]:
    """Return a Markdown text as blocks.

    CommonMark with tables and struck text. HTML remains text, images become links, and addresses become links.

    Args:
        text: The Markdown text.
    """
    root = MarkdownBlock("root")
    inside = [root]
    for token in _parser().parse(text):
        above = inside[-1]
        if kind := _BLOCKS.get(token.type):
            block = MarkdownBlock(kind, start=int(token.attrGet("start") or 1))
            above.blocks.append(block)
            inside.append(block)
        elif token.type == "inline":
            above.inlines = _inlines(token.children or ())
        elif token.type in ("fence", "code_block"):
            above.blocks.append(MarkdownBlock("pre", text=token.content.removesuffix("\n")))
        elif token.type == "hr":
            above.blocks.append(MarkdownBlock("hr"))
        elif token.nesting < 0:
            inside.pop()
    return root.blocks


_MARKS: Final = re.compile(r"[\\`*_\[\]<>!&#~|]|^\s*(?:[-+=]|\d+[.)])", re.MULTILINE)
"""Matches every text in which Markdown changes more than white space."""


@lru_cache(maxsize=1000)
def plain_text(text: str) -> str:
    """Return a Markdown text without its marks. The white space can differ.

    A list of threads shows the same answers again and again, and most of them have no marks.
    """
    return " ".join(_texts(markdown_blocks(text))) if _MARKS.search(text) else text


def _texts(blocks: Iterable[MarkdownBlock]) -> Iterator[str]:
    for block in blocks:
        yield block.text or "".join(text for _, text, _ in block.inlines)
        yield from _texts(block.blocks)


def _inlines(tokens: Sequence[Token]) -> list[MarkdownInline]:
    """Return inline tokens as nodes. A node has one style: the innermost one, or the link around it."""
    result: list[MarkdownInline] = []
    styles: list[str] = []
    href = ""
    for token in tokens:
        match token.type:
            case "link_open":
                href = _web_address(token)
            case "link_close":
                href = ""
            case "image":
                source = _web_address(token)
                result.append(("link", token.content or source, source) if source else ("text", token.content, ""))
            case "softbreak" | "hardbreak":
                result.append(("text", "\n", ""))
            case "code_inline":
                result.append(("link", token.content, href) if href else ("code", token.content, ""))
            case opens if opens in _STYLES:
                styles.append(_STYLES[opens])
            case _ if token.nesting < 0:
                styles.pop()
            case _ if href:
                result.append(("link", token.content, href))
            case _ if styles:
                result.append((styles[-1], token.content, ""))
            case _:
                result += _linked(token.content)
    return [inline for inline in result if inline[1]]


def _web_address(token: Token) -> str:
    """Return the target of a link or image if it is an address on the web, or an empty string."""
    target = str(token.attrGet("href") or token.attrGet("src") or "")
    return target if target.startswith(("http://", "https://")) else ""


def _linked(text: str) -> list[MarkdownInline]:
    """Return a plain text with its addresses as links."""
    result: list[MarkdownInline] = []
    place = 0
    for match in _ADDRESS.finditer(text):
        result += [("text", text[place : match.start()], ""), ("link", match[0], match[0])]
        place = match.end()
    return [*result, ("text", text[place:], "")]
