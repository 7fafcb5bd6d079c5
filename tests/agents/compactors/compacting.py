"""Helpers for tests of compactors: long contexts, and functions that compact them."""

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
"""The system text and the tools that a request has in addition to its messages."""


class Summarizer:
    """A fake model. It answers with the number of its messages and stores them."""

    def __init__(self, text: str = "a summary of {count} messages") -> None:
        self.text = text
        self.asked: list[Sequence[Message]] = []

    async def __call__(self, messages: Sequence[Message]) -> str:
        self.asked.append(messages)
        return self.text.format(count=len(messages))


def finish(coroutine: Any) -> Any:
    """Return the result of a coroutine that does not wait."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for something")


def compaction_input(stitches: Sequence[Stitch], lane: UUID | None = None) -> CompactionInput:
    return CompactionInput(stitches, OVERHEAD + estimate_all(context(stitches, lane)), lane)


def compact(
    compactor: Compactor, stitches: Sequence[Stitch], lane: UUID | None = None, summarizer: Summarizer | None = None
) -> CompactionResult | None:
    return finish(compactor.compact(compaction_input(stitches, lane), summarizer or Summarizer()))


def apply(log: Log, compacted: CompactionResult, lane: UUID | None = None) -> list[Message]:
    """Write a compaction into the log and return the context after it."""
    log.add("compaction", lane, data=compacted.as_data())
    return context(log.stitches, lane)


def enrich(log: Log, seed: int) -> Log:
    """Make tool results long, as text or as blocks, and add thinking to some responses."""
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
    """Return the smallest set of stitches that gives the context of this lane."""
    start = next(
        (stitch for stitch in reversed(log.stitches) if stitch.lane == lane and replaces_context(stitch)), None
    )
    positions = {stitch.position for stitch in log.stitches if start is None or stitch.position >= start.position}
    if start is not None and start.type == "compaction":
        positions |= {place for first, last in kept_positions(start) for place in range(first, last + 1)}
        positions |= set(replaced_positions(start))
    return [stitch for stitch in log.stitches if stitch.position in positions]


def first_said(messages: Sequence[Message]) -> Message | None:
    """Return the first user message that is not a tool result."""
    return next((message for message in messages if message["role"] == "user" and not results(message)), None)


def results(message: Message) -> list[Any]:
    return [block for block in blocks(message) if block["type"] == "tool_result"]


def chat(turns: int, calls: int = 1, length: int = 4_000) -> Log:
    """Return a conversation with a tool call in every turn."""
    log = Log()
    for _ in range(turns):
        log.turn(None)
        step(log, calls, length)
        log.respond(None, 0)
    return log


def long_run(steps: int, length: int = 4_000) -> Log:
    """Return a run with one question and many steps."""
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
