"""`SentText`: which text of the current model call a reader has, for formats that cannot take text back."""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from lockstitch.engine.events import Event
from lockstitch.errors import LockstitchError

TextKind = Literal["text", "thinking"]

_RESTARTED: Final = "The model started its answer again. Load the answer from its start."


class AnswerRestarted(LockstitchError):
    """A model call was repeated, and the new answer does not start with the text that the reader has."""


class TextPart(NamedTuple):
    """More text of one part of an answer."""

    kind: TextKind
    id: str
    """Id of the part. It is the same if the run is shown again."""
    text: str
    first: bool
    """True if the part starts with this text."""


class SentText:
    """The text parts of one run, in their order. A part ends with text of another kind and with its model call."""

    def __init__(self) -> None:
        self._sent: list[tuple[TextKind, str]] = []
        """The parts of the current model call."""
        self._repeated: list[tuple[TextKind, str]] = []
        """Sent text that a repeated model call has not repeated yet."""
        self._step: int | None = None
        """The number of model calls before the current one."""
        self.open: TextPart | None = None
        """The last text, if its part can continue."""

    def is_next_call(self, event: Event) -> bool:
        """True if the text of an event belongs to another model call than the text before."""
        return self._step is not None and self._step != event.step

    def add(self, event: Event) -> Iterator[TextPart]:
        """Yield the new text of a `text` or `thinking` event.

        Raises:
            AnswerRestarted: If a repeated model call gives another answer.
        """
        self._step = event.step
        kind: TextKind = "thinking" if event.type == "thinking" else "text"
        text = self._without_repeated(kind, str(event.data.get("text", "")))
        if not text:
            return
        first = not self._sent or self._sent[-1][0] != kind
        if first:
            self._sent.append((kind, ""))
        self._sent[-1] = (kind, self._sent[-1][1] + text)
        self.open = TextPart(kind, f"{event.run_id}-{event.step}-{len(self._sent)}", text, first)
        yield self.open

    def retry(self) -> None:
        """The model call is repeated. Its answer may start with the text that was sent."""
        self._repeated = list(self._sent)

    def end_call(self) -> None:
        """The model call has ended.

        Raises:
            AnswerRestarted: If the answer does not have all sent text.
        """
        if self._repeated:
            raise AnswerRestarted(_RESTARTED)
        self._sent, self._step, self.open = [], None, None

    def _without_repeated(self, kind: TextKind, text: str) -> str:
        while self._repeated and text:
            sent_kind, sent = self._repeated[0]
            known = min(len(sent), len(text))
            if kind != sent_kind or sent[:known] != text[:known]:
                raise AnswerRestarted(_RESTARTED)
            text = text[known:]
            if sent[known:]:
                self._repeated[0] = (kind, sent[known:])
            else:
                del self._repeated[0]
        return text
