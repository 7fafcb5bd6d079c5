"""Tasks from Markdown: headings are documents and their sections, `- [ ]` are tasks, what is indented belongs to them.

    # Checkout                                 a document
    ## Payment                                 a section of it
    - [ ] T4: Choose the provider (3h)         an id of its own, and an estimate
    - [ ] Payment form (after: T4)             waits for it
      - [ ] 3-D Secure                         a part: "Payment form" waits for it
      Only for cards.                          details
    - [x] Refund policy                        done, so nothing waits for it
    - [ ] Receipts (after: payment form, T4; related: Refund policy)

A file without any `[ ]` has every list item as a task.
"""

import re
from typing import Final

from lockstitch.apps.prioritizer.lists import Item, Reference, Sheet, estimate_in
from lockstitch.apps.prioritizer.models import RelationshipType

# No two repetitions in a row may match the same: a long line would be tried in every way there is.
_HEADING: Final = re.compile(r"^ {0,3}(#{1,6})\s+(.*)$")
_ITEM: Final = re.compile(r"^(?P<indent>\s*)(?:[-*+]|\d{1,9}[.)])\s+(?:\[(?P<box>[ xX])\]\s+)?(?P<text>\S.*)$")
_BOX: Final = re.compile(r"^[^\S\n]*(?:[-*+]|\d{1,9}[.)])[^\S\n]+\[[ xX]\][^\S\n]+\S", re.MULTILINE)
_FENCE: Final = re.compile(r"^\s*(```|~~~)")
_ID: Final = re.compile(
    r"^(?:\[(?P<boxed>[A-Za-z][\w.-]{0,30})\]\s*"
    r"|(?P<small>[a-z]{1,9}-?\d{1,9}):\s*"
    r"|(?P<plain>[A-Z][A-Z0-9]{0,9}-?\d{1,9})(?::|\.\s|\)\s|\s+[-\u2013\u2014]\s)\s*)"
)
_ASIDE: Final = re.compile(r"\(([^()]*)\)")
_SAYS: Final = re.compile(
    r"\b(?:after|needs|requires|depends on|blocked by|before|blocks|related|related to|see|id)\s*:", re.IGNORECASE
)
_KINDS: Final[dict[str, tuple[RelationshipType, bool]]] = {
    **dict.fromkeys(("after", "needs", "requires", "depends on", "blocked by"), ("prerequisite", False)),
    **dict.fromkeys(("before", "blocks"), ("blocks", True)),
    **dict.fromkeys(("related", "related to", "see"), ("related", False)),
}


def read_markdown(text: str, title: str) -> list[Sheet]:
    """The documents of a Markdown text: one for each heading of the first level, or one for all."""
    boxes = bool(_BOX.search(text))
    sheets = [Sheet(title, "")]
    section: str | None = None
    # The items that a line may belong to, with how far each is indented.
    above: list[tuple[int, Item]] = []
    fenced = False
    lines: list[list[str]] = [[]]
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        heading = None if fenced else _HEADING.match(line)
        if heading and len(heading[1]) == 1:
            sheets.append(Sheet(_said(heading[2]) or title, ""))
            lines.append([])
            section, above = None, []
        elif heading:
            section, above = _said(heading[2]) or None, []
        lines[-1].append(line)
        if fence:
            fenced = not fenced
        if fence or heading or fenced:
            continue
        found = _ITEM.match(line.expandtabs(4))
        if found and (found["box"] is not None or not boxes):
            indent = len(found["indent"])
            above = [(depth, item) for depth, item in above if depth < indent]
            item = _markdown_item(found["text"], number)
            item.section, item.done = section, (found["box"] or " ") in "xX"
            item.parent = above[-1][1] if above else None
            above.append((indent, item))
            sheets[-1].items.append(item)
        elif above and line.strip() and line[:1].isspace():
            _detail(above, line)
        elif line.strip():
            above = []
    for sheet, own in zip(sheets, lines, strict=True):
        sheet.text = "\n".join(own).strip("\n")
    return [sheet for sheet in sheets if sheet.items]


def _said(heading: str) -> str:
    """What a heading says, without the marks that may close it."""
    return heading.rstrip().rstrip("#").rstrip()


def _detail(above: list[tuple[int, Item]], line: str) -> None:
    """A line below a task belongs to the last one that it is indented deeper than."""
    indent = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
    owner = next((item for depth, item in reversed(above) if depth < indent), above[0][1])
    owner.details.append(line.strip())


def _markdown_item(text: str, line: int) -> Item:
    item = Item(title="", line=line)
    title, at = "", 0
    for found in _ASIDE.finditer(text):
        if _SAYS.search(found[1]):
            for saying in found[1].split(";"):
                _take(item, saying, line)
            title += text[at : found.start()].rstrip()
            at = found.end()
    title = (title + text[at:]).strip()
    own = _ID.match(title)
    if own and title[own.end() :].strip():
        item.id = item.id or own["boxed"] or own["small"] or own["plain"]
        title = title[own.end() :].strip()
    title, item.estimate = estimate_in(title)
    item.title = re.sub(r"(\*\*|__|`)", "", title).strip() or text.strip()
    return item


def _take(item: Item, saying: str, line: int) -> None:
    word, _, names = saying.partition(":")
    kind = _KINDS.get(word.strip().lower())
    if word.strip().lower() == "id":
        item.id = names.strip() or None
    elif kind is not None:
        wanted = [name.strip() for name in names.split(",") if name.strip()]
        item.references += [Reference(name, *kind, line) for name in wanted]
