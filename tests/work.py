"""Counting work instead of time: steps of a regular expression, and lines of Python.

`steps` runs a pattern with the rules of the `re` module and counts each comparison of a character. `lines` counts the
lines of Python that a call executes. Both give the same number on every machine, so a test can double an input and
assert that the work at most doubles.
"""

import re
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from re import _constants as c  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import FrameType
from typing import Any

Text = str | bytes


def assert_linear(work: Callable[[int], int], sizes: tuple[int, ...] = (50, 100, 200), most: float = 2.3) -> None:
    """Fail if the work grows faster than the input. Each size is twice the one before."""
    counts = [work(size) for size in sizes]
    for before, after in pairwise(counts):
        assert after <= most * before + 50, f"work grew from {before} to {after} for an input of twice the size"


def lines(call: Callable[[], object]) -> int:
    """Return the number of lines of Python that a call executes, in all functions that it calls."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def steps(pattern: "re.Pattern[Any]", text: Text) -> int:
    """Return the number of characters that a search for all matches compares, with the backtracking of `re`.

    The matches are compared with those of the `re` module, so that a mistake here fails the test that uses it.
    """
    matcher = _Matcher(pattern, text)
    spans: list[tuple[int, int]] = []
    at = 0
    while at <= len(text):
        end = matcher.match(at)
        if end is None:
            at += 1
            continue
        spans.append((at, end))
        at = end if end > at else at + 1
    expected = [match.span() for match in pattern.finditer(text)]
    empty_aside = [span for span in spans if span[0] != span[1]]
    assert empty_aside == [span for span in expected if span[0] != span[1]], pattern.pattern
    return matcher.steps


class _Matcher:
    """A backtracking matcher over the syntax tree of a pattern. It stores no groups: no pattern refers to one."""

    def __init__(self, pattern: "re.Pattern[Any]", text: Text) -> None:
        self._tree = list(parser.parse(pattern.pattern, pattern.flags))
        self._text = text
        self._binary = isinstance(text, bytes)
        self._flags = pattern.flags
        self.steps = 0

    def match(self, at: int) -> int | None:
        return next(self._sequence(self._tree, at, self._flags), None)

    def _sequence(self, nodes: list[Any], at: int, flags: int) -> Iterator[int]:
        if not nodes:
            yield at
            return
        for end in self._node(nodes[0], at, flags):
            yield from self._sequence(nodes[1:], end, flags)

    def _node(self, node: Any, at: int, flags: int) -> Iterator[int]:
        kind, argument = node
        if kind in (c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN):
            if self._fits(node, at, flags):
                yield at + 1
        elif kind is c.BRANCH:
            for way in argument[1]:
                yield from self._sequence(list(way), at, flags)
        elif kind is c.SUBPATTERN:
            _, added, removed, inner = argument
            yield from self._sequence(list(inner), at, (flags | added) & ~removed)
        elif kind in (c.MAX_REPEAT, c.MIN_REPEAT):
            least, most, inner = argument
            yield from self._repeat(list(inner), at, least, most, flags, greedy=kind is c.MAX_REPEAT)
        elif kind is c.POSSESSIVE_REPEAT:
            least, most, inner = argument
            count = 0
            while count < most and (end := next(self._sequence(list(inner), at, flags), None)) not in (None, at):
                count, at = count + 1, end
            if count >= least:
                yield at
        elif kind is c.ATOMIC_GROUP:
            yield from list(self._first(list(argument), at, flags))
        elif kind in (c.ASSERT, c.ASSERT_NOT):
            direction, inner = argument
            matches = self._looks(direction, list(inner), at, flags)
            if matches == (kind is c.ASSERT):
                yield at
        elif kind is c.AT:
            self.steps += 1
            if self._at(argument, at, flags):
                yield at
        else:
            raise NotImplementedError(kind)

    def _first(self, nodes: list[Any], at: int, flags: int) -> Iterator[int]:
        end = next(self._sequence(nodes, at, flags), None)
        if end is not None:
            yield end

    def _looks(self, direction: int, nodes: list[Any], at: int, flags: int) -> bool:
        if direction > 0:
            return next(self._sequence(nodes, at, flags), None) is not None
        least, most = parser.SubPattern(parser.State(), nodes).getwidth()
        return any(
            end == at
            for size in range(least, most + 1)
            if size <= at
            for end in self._sequence(nodes, at - size, flags)
        )

    def _repeat(self, inner: list[Any], at: int, least: int, most: int, flags: int, *, greedy: bool) -> Iterator[int]:
        if len(inner) == 1 and inner[0][0] in (c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN):
            yield from self._run(inner[0], at, least, most, flags, greedy=greedy)
            return
        # A stack instead of recursion: a repeat may match thousands of times.
        if greedy:
            stack: list[tuple[int, int, Iterator[int]]] = [
                (at, 0, self._sequence(inner, at, flags) if most else iter(()))
            ]
            while stack:
                place, count, ways = stack[-1]
                end = next(ways, None)
                if end is not None and (end > place or count < least):
                    more = self._sequence(inner, end, flags) if count + 1 < most else iter(())
                    stack.append((end, count + 1, more))
                elif end is None:
                    stack.pop()
                    if count >= least:
                        yield place
            return
        waiting = [(at, 0)]
        while waiting:
            place, count = waiting.pop()
            if count >= least:
                yield place
            if count < most:
                waiting.extend(
                    (end, count + 1) for end in reversed(list(self._sequence(inner, place, flags))) if end > place
                )

    def _run(self, node: Any, at: int, least: int, most: int, flags: int, *, greedy: bool) -> Iterator[int]:
        end = at
        if greedy:
            while end - at < most and self._fits(node, end, flags):
                end += 1
            for place in range(end, at + least - 1, -1):
                self.steps += 1
                yield place
            return
        while end - at < least:
            if not self._fits(node, end, flags):
                return
            end += 1
        yield end
        while end - at < most and self._fits(node, end, flags):
            end += 1
            yield end

    def _fits(self, node: Any, at: int, flags: int) -> bool:
        self.steps += 1
        if at >= len(self._text):
            return False
        kind, argument = node
        code = self._text[at] if self._binary else ord(self._text[at])
        codes = self._cases(code, flags)
        if kind is c.LITERAL:
            return argument in codes
        if kind is c.NOT_LITERAL:
            return argument not in codes
        if kind is c.ANY:
            return bool(flags & re.DOTALL) or code != 10
        negated = argument[0][0] is c.NEGATE
        return any(self._in(code, item) for code in codes for item in argument[negated:]) != negated

    def _cases(self, code: int, flags: int) -> set[int]:
        if not flags & re.IGNORECASE:
            return {code}
        return {code} | {ord(variant) for variant in (chr(code).lower(), chr(code).upper()) if len(variant) == 1}

    def _in(self, code: int, item: Any) -> bool:
        kind, argument = item
        if kind is c.LITERAL:
            return code == argument
        if kind is c.RANGE:
            return argument[0] <= code <= argument[1]
        return self._category(str(argument), code)

    def _category(self, name: str, code: int) -> bool:
        character = chr(code)
        ascii_only = self._binary and code > 127
        for word, holds in (
            ("DIGIT", character.isdigit()),
            ("SPACE", character.isspace()),
            ("WORD", character.isalnum() or character == "_"),
        ):
            if name.endswith(word):
                return (holds and not ascii_only) != ("NOT" in name)
        raise NotImplementedError(name)

    def _at(self, place: Any, at: int, flags: int) -> bool:
        size = len(self._text)
        newline: Any = b"\n" if self._binary else "\n"
        if place is c.AT_BEGINNING:
            return at == 0 or bool(flags & re.MULTILINE and self._text[at - 1 : at] == newline)
        if place is c.AT_BEGINNING_STRING:
            return at == 0
        if place is c.AT_END_STRING:
            return at == size
        if place is c.AT_END:
            at_end = at == size or (at == size - 1 and self._text[at:] == newline)
            return at_end or bool(flags & re.MULTILINE and self._text[at : at + 1] == newline)
        edge = self._word(at - 1) != self._word(at)
        return edge if place is c.AT_BOUNDARY else not edge

    def _word(self, at: int) -> bool:
        if not 0 <= at < len(self._text):
            return False
        code = self._text[at] if self._binary else ord(self._text[at])
        return self._category("WORD", code)
