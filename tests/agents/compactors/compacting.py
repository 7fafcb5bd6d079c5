"""What tests of compactors share: contexts worth compacting, and a compactor let loose on them."""

from collections.abc import Sequence
from random import Random
from typing import Any
from uuid import UUID

from lockstitch.engine.ports.compactor import CompactionInput, CompactionResult, Compactor
from lockstitch.engine.usage import estimate_all
from lockstitch.model import Message, Stitch, context
from lockstitch.model.context import kept_positions, replaced_positions, replaces_context
from lockstitch.model.message import blocks
from tests.model.logs import Log

OVERHEAD = 500
"""System text and tools, which a request has beside its messages."""


class Summarizer:
    """Stands for the model: it says how many messages it was given, and remembers them."""

    def __init__(self, text: str = "a summary of {count} messages") -> None:
        self.text = text
        self.asked: list[Sequence[Message]] = []

    async def __call__(self, messages: Sequence[Message]) -> str:
        self.asked.append(messages)
        return self.text.format(count=len(messages))


def finish(coroutine: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for something")


def sight(stitches: Sequence[Stitch], lane: UUID | None = None) -> CompactionInput:
    return CompactionInput(stitches, OVERHEAD + estimate_all(context(stitches, lane)), lane)


def compact(
    compactor: Compactor, stitches: Sequence[Stitch], lane: UUID | None = None, summarizer: Summarizer | None = None
) -> CompactionResult | None:
    return finish(compactor.compact(sight(stitches, lane), summarizer or Summarizer()))


def apply(log: Log, compacted: CompactionResult, lane: UUID | None = None) -> list[Message]:
    """Write a compaction into the log; the context after it."""
    log.add("compaction", lane, data=compacted.as_data())
    return context(log.stitches, lane)


def enrich(log: Log, seed: int) -> Log:
    """Make results long, of text or of blocks, and let some responses think."""
    chance = Random(seed)
    for place, stitch in enumerate(log.stitches):
        message = stitch.message
        if stitch.type == "tool_call" and message is not None:
            text = message["content"] + "x" * chance.choice([0, 0, 100, 900])
            image = {"type": "image", "source": {"type": "base64", "data": "A" * 9}}
            content = chance.choice([text, [{"type": "text", "text": text}, image]])
            log.stitches[place] = stitch.changed(message={**message, "content": content})
        elif stitch.type == "llm_call" and message is not None and chance.random() < 0.5:
            thinking = {"type": "thinking", "thinking": "h" * chance.choice([1, 900]), "signature": "s"}
            log.stitches[place] = stitch.changed(message={**message, "content": [thinking, *blocks(message)]})
    return log


def needed(log: Log, lane: UUID | None) -> list[Stitch]:
    """The least that a context of this lane can be folded from."""
    start = next((one for one in reversed(log.stitches) if one.lane == lane and replaces_context(one)), None)
    positions = {one.position for one in log.stitches if start is None or one.position >= start.position}
    if start is not None and start.type == "compaction":
        positions |= {place for first, last in kept_positions(start) for place in range(first, last + 1)}
        positions |= set(replaced_positions(start))
    return [one for one in log.stitches if one.position in positions]


def first_said(messages: Sequence[Message]) -> Message | None:
    """The first user message that is no answer to a call."""
    return next((one for one in messages if one["role"] == "user" and not results(one)), None)


def results(message: Message) -> list[Any]:
    return [block for block in blocks(message) if block["type"] == "tool_result"]


def chat(turns: int, calls: int = 1, length: int = 4_000) -> Log:
    """A conversation of which every turn looks something up."""
    log = Log()
    for _ in range(turns):
        log.turn(None)
        step(log, calls, length)
        log.respond(None, 0)
    return log


def long_run(steps: int, length: int = 4_000) -> Log:
    """One question and many steps."""
    log = Log()
    log.turn(None)
    for _ in range(steps):
        step(log, 1, length)
    return log


def step(log: Log, calls: int, length: int) -> None:
    log.respond(None, calls)
    for call in log.open_calls():
        log.answer(call)
        last = log.stitches[-1]
        content = f"{(last.message or {})['content']} {'x' * length}"
        log.stitches[-1] = last.changed(message={**(last.message or {}), "content": content})
