"""XML tags: a stream that is well-formed once it stands inside a root element.

    <meta_init agent="…" run_id="…" step="0">…</meta_init>
    <content-block-text …>…</content-block-text>
    <awaiting_frontend_tools …>…</awaiting_frontend_tools>
    <meta_files …>…</meta_files>
    <meta_final …>…</meta_final>

and content-block- for thinking, citation, tool_call, server_tool_call, tool_result, tool_result_image,
server_tool_result and error as for text.

Every element has agent, run_id and step, and those of formatters.json besides (id, name, …); its content is the same as
there and stands in CDATA sections. Characters that XML cannot have are replaced by U+FFFD. What is left out without
demand is the same, too.
"""

import re
from typing import Final
from xml.sax.saxutils import quoteattr

from lockstitch.runtime.event import Event
from lockstitch.runtime.formatters.item import BREAKS, Fields, Item, items_of

_ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PLAIN: Final = frozenset({"meta_init", "awaiting_frontend_tools", "meta_files", "meta_final"})


class XmlFormatter:
    """One stream of elements. Where two runs speak at once, their elements take turns."""

    name = "xml"

    def __init__(self, detail: bool = False) -> None:
        self._detail = detail
        self._open = ""
        """The start tag of a text that may go on."""

    def feed(self, event: Event) -> list[str]:
        frames: list[str] = self.end() if event.type in BREAKS else []
        for item in items_of(event, self._detail):
            start = _start(event, item)
            if self._open == start:
                frames.append(_cdata(item.content))
                continue
            frames += self.end()
            if item.open:
                self._open = start
                frames.append(start + _cdata(item.content))
            else:
                frames.append(start + _cdata(item.content) + _end(start))
        return frames

    def end(self) -> list[str]:
        start, self._open = self._open, ""
        return [_end(start)] if start else []


def _start(event: Event, item: Item) -> str:
    tag = item.type if item.type in _PLAIN else f"content-block-{item.type}"
    attributes: Fields = {"agent": event.agent, "run_id": str(event.run_id), "step": str(event.step), **item.fields}
    written = "".join(f" {name}={_quoted(value)}" for name, value in attributes.items())
    return f"<{tag}{written}>"


def _quoted(value: str | bool) -> str:
    return quoteattr(_legal(value)) if isinstance(value, str) else f'"{str(value).lower()}"'


def _end(start: str) -> str:
    return f"</{start[1:].partition(' ')[0]}>"


def _cdata(text: str) -> str:
    # A parser would read a carriage return as a newline, and ]]> as the end of the section.
    safe = _legal(text).replace("]]>", "]]]]><![CDATA[>").replace("\r", "]]>&#13;<![CDATA[")
    return f"<![CDATA[{safe}]]>"


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
