"""`RunFilter`: LangSmith's filter expressions, such as `and(eq(run_type, "llm"), gt(latency, 2))`.

A recursive-descent parser reads an expression into calls, and `_condition` checks the calls: the names of functions and
fields, and the number and the types of arguments. So a filter that was parsed never fails on a span.

Metadata, inputs, outputs and feedback are lists of pairs. Conditions on the same list in one `and` apply to one pair:
`and(eq(metadata_key, "user"), eq(metadata_value, "ada"))` finds spans with this value of this key.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, cast

from lockstitch.model import Json, codec

LONGEST: Final = 20_000
"""Maximum number of characters of an expression."""
_DEEPEST: Final = 50
_DIGITS: Final = 30

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.])"
    r'|(?P<name>[A-Za-z_][\w.]*)|(?P<text>"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')|(?P<sign>[(),\[\]]))',
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_WORDS: Final = {"true": True, "false": False, "null": None, "none": None}


class FilterError(ValueError):
    """An expression that is not valid. The message is for the person who wrote it."""


class _Call(NamedTuple):
    """A function with its arguments: calls, field names, texts, numbers, booleans, None and lists of values."""

    name: str
    args: list[Any]


class _Field(NamedTuple):
    name: str


class _Parser:
    """Reads one expression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def expression(self) -> _Call:
        value = self._value(0)
        if not isinstance(value, _Call):
            raise FilterError('The filter must be a call, for example eq(name, "answer").')
        if self._text[self._at :].strip():
            raise self._wrong("the end of the filter")
        return value

    def _value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise FilterError(f"The filter is nested more than {_DEEPEST} levels deep.")
        kind, text = self._next()
        if kind == "number":
            return float(text) if len(text) > _DIGITS or any(sign in text for sign in ".eE") else int(text)
        if kind == "text":
            return _unescaped(text[1:-1])
        if text == "[":
            return self._values("]", depth)
        if kind != "name":
            raise self._wrong("a value")
        if self._peek() == "(":
            self._next()
            return _Call(text.lower(), self._values(")", depth))
        return _WORDS[text.lower()] if text.lower() in _WORDS else _Field(text.lower())

    def _values(self, end: str, depth: int) -> list[Any]:
        values: list[Any] = []
        while self._peek() != end:
            values.append(self._value(depth + 1))
            if self._peek() == ",":
                self._next()
            elif self._peek() != end:
                self._next()
                raise self._wrong(f"a comma or {end}")
        self._next()
        return values

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return match[match.lastgroup or 0] if match else ""

    def _next(self) -> tuple[str, str]:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup is None:
            raise self._wrong("a value", here=True)
        self._at = match.end()
        return match.lastgroup, match[match.lastgroup]

    def _wrong(self, wanted: str, *, here: bool = False) -> FilterError:
        rest = self._text[self._at :].strip()[:20] if here else self._text[: self._at][-20:]
        place = f"near {rest!r}" if rest else "at its end"
        return FilterError(f"The filter cannot be read {place}: {wanted} is expected.")


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) > 1 else _ESCAPES.get(escape, escape)

    return _ESCAPED.sub(plain, text) if "\\" in text else text


Kind = Literal["text", "number", "time", "boolean", "list", "any"]
Pair = Literal["metadata", "input", "output", "feedback"]

_FIELDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("id", "name", "run_type", "status", "error", "trace_id", "parent_run_id", "session_id"), "text"),
    **dict.fromkeys(("thread_id", "dotted_order", "reference_example_id", "reference_dataset_id", "user_id"), "text"),
    **dict.fromkeys(("project_id", "inputs", "outputs", "metadata"), "text"),
    **dict.fromkeys(("latency", "total_tokens", "prompt_tokens", "completion_tokens"), "number"),
    **dict.fromkeys(("total_cost", "prompt_cost", "completion_cost", "first_token_latency"), "number"),
    **dict.fromkeys(("start_time", "end_time", "first_token_time"), "time"),
    "is_root": "boolean",
    "tags": "list",
}
_PAIRS: Final[dict[str, tuple[Pair, str]]] = {
    **{f"{pair}_{part}": (pair, part) for pair in ("metadata", "input", "output") for part in ("key", "value")},
    **{f"feedback_{part}": ("feedback", part) for part in ("key", "score", "value", "comment", "source")},
}
_ALIASES: Final = {"tag": "tags", "latency_seconds": "latency", "trace": "trace_id", "parent_run": "parent_run_id"}

_Test = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class _Condition:
    """A checked part of an expression. `pair` is the list that all its comparisons are about, if there is one."""

    name: str
    parts: "tuple[_Condition, ...]" = ()
    field: str = ""
    pair: Pair | None = None
    test: _Test | None = None


class Bounds(NamedTuple):
    """Conditions that every match meets, to read fewer spans. None: not bounded."""

    since: datetime | None = None
    until: datetime | None = None
    trace_id: str | None = None
    thread_id: str | None = None
    run_id: str | None = None
    root_only: bool = False


@dataclass(frozen=True, slots=True)
class RunFilter:
    """A parsed expression."""

    condition: _Condition
    bounds: Bounds = field(default_factory=Bounds)
    needs_feedback: bool = False
    """True if `matches` needs the feedback on the span."""

    @classmethod
    def parse(cls, text: str) -> "RunFilter":
        """Return the filter of an expression. Raises `FilterError`."""
        if len(text) > LONGEST:
            raise FilterError(f"The filter has more than {LONGEST:,} characters.")
        call = _Parser(text).expression()
        condition = _condition(call)
        return cls(condition, _bounds(call), any(part.pair == "feedback" for part in _leaves(condition)))

    def matches(self, span: Json, feedback: Sequence[Json] = ()) -> bool:
        """True if a span matches. `feedback` is the feedback on the span, in the format of LangSmith."""
        return _holds(self.condition, _Subject(span, feedback))


class _Subject:
    """A span with its lists of pairs, which are computed on demand."""

    def __init__(self, span: Json, feedback: Sequence[Json]) -> None:
        self.span = span
        self._feedback = feedback
        self._pairs: dict[Pair, list[Json]] = {}

    def pairs(self, name: Pair) -> list[Json]:
        if name not in self._pairs:
            self._pairs[name] = list(self._read(name))
        return self._pairs[name]

    def _read(self, name: Pair) -> Iterator[Json]:
        if name == "feedback":
            for feedback in self._feedback:
                source: Any = feedback.get("feedback_source")
                kind = cast("Json", source).get("type") if isinstance(source, dict) else None
                yield {**feedback, "source": kind}
            return
        value: Any = metadata_of(self.span) if name == "metadata" else self.span.get(f"{name}s") or {}
        for key, each in _flat(value):
            yield {"key": key, "value": each}


def metadata_of(span: Json) -> Json:
    """Return the metadata of a span in the format of LangSmith."""
    extra = span.get("extra")
    metadata = cast("Json", extra).get("metadata") if isinstance(extra, dict) else None
    return cast("Json", metadata) if isinstance(metadata, dict) else {}


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects with their paths, such as `user.name`. Elements of a list have its path."""
    if isinstance(value, dict):
        for key, each in cast("Json", value).items():
            yield from _flat(each, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _flat(each, prefix)
    if prefix:
        yield prefix, value


def _holds(condition: _Condition, subject: _Subject) -> bool:
    if condition.pair is not None:
        return any(_pair_holds(condition, pair) for pair in subject.pairs(condition.pair))
    if condition.name == "and":
        groups: dict[Pair, list[_Condition]] = {}
        for part in condition.parts:
            if part.pair is not None:
                groups.setdefault(part.pair, []).append(part)
            elif not _holds(part, subject):
                return False
        return all(
            any(all(_pair_holds(part, pair) for part in parts) for pair in subject.pairs(name))
            for name, parts in groups.items()
        )
    if condition.name == "or":
        return any(_holds(part, subject) for part in condition.parts)
    if condition.name == "not":
        return not _holds(condition.parts[0], subject)
    assert condition.test is not None
    return condition.test(_value(subject.span, condition.field))


def _pair_holds(condition: _Condition, pair: Json) -> bool:
    if condition.name == "and":
        return all(_pair_holds(part, pair) for part in condition.parts)
    if condition.name == "or":
        return any(_pair_holds(part, pair) for part in condition.parts)
    assert condition.test is not None
    return condition.test(pair.get(condition.field))


def _leaves(condition: _Condition) -> Iterator[_Condition]:
    if condition.parts:
        for part in condition.parts:
            yield from _leaves(part)
    else:
        yield condition


def _value(span: Json, name: str) -> Any:
    """Return the value of a field of a span."""
    if name == "latency":
        return seconds_between(span.get("start_time"), span.get("end_time"))
    if name == "first_token_latency":
        return seconds_between(span.get("start_time"), span.get("first_token_time"))
    if name == "is_root":
        return span.get("parent_run_id") is None
    if name == "project_id":
        return span.get("session_id")
    if name == "metadata":
        return metadata_of(span)
    if name == "":
        texts = ("name", "error", "inputs", "outputs", "tags")
        return [*(span.get(text) for text in texts), metadata_of(span)]
    if name in ("start_time", "end_time", "first_token_time"):
        return _time(span.get(name))
    return span.get(name)


def seconds_between(start: Any, end: Any) -> float | None:
    """Return the seconds between two times, or None if one of them is unknown."""
    begun, ended = _time(start), _time(end)
    return None if begun is None or ended is None else (ended - begun).total_seconds()


def _time(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_LOGIC: Final = ("and", "or", "not")
_OBJECTS: Final = ("metadata", "inputs", "outputs")
_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "gt": lambda a, b: a > b,
    "gte": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "lte": lambda a, b: a <= b,
}
_LIKE: Final = ("like", "ilike", "nlike", "nilike")
_COMPARISONS: Final = ("eq", "neq", *_ORDER, "has", "exists", "in", "nin", *_LIKE, "search")


def _condition(call: _Call) -> _Condition:
    if call.name in _LOGIC:
        return _logic(call)
    if call.name not in _COMPARISONS:
        raise FilterError(
            f"Function {call.name} is not supported in a filter. Use {', '.join((*_LOGIC, *_COMPARISONS))}."
        )
    if call.name == "search" and len(call.args) == 1:
        return _Condition("search", test=_search(call.args[0]))
    if len(call.args) != 2:
        raise FilterError(f"{call.name} needs a field and a value, for example {call.name}(name, …).")
    named, value = call.args
    name = named.name if isinstance(named, _Field) else named if isinstance(named, str) else ""
    name = _ALIASES.get(name, name)
    if isinstance(value, _Call) or (isinstance(value, list) and call.name not in ("in", "nin")):
        raise FilterError(f"{call.name} needs a text, a number, true, false or null as its second argument.")
    if isinstance(value, _Field):
        raise FilterError(f'The value {value.name} in {call.name}({name}, …) needs quotes: "{value.name}".')
    if name in _PAIRS:
        pair, part = _PAIRS[name]
        kind: Kind = "number" if part == "score" else "any"
        return _Condition(call.name, field=part, pair=pair, test=_test(call.name, name, kind, value))
    if name not in _FIELDS:
        raise FilterError(f"Field {name or '(none)'} is not known. Fields are {', '.join((*_FIELDS, *_PAIRS))}.")
    return _Condition(call.name, field=name, test=_test(call.name, name, _FIELDS[name], value))


def _logic(call: _Call) -> _Condition:
    if not call.args or not all(isinstance(part, _Call) for part in call.args):
        raise FilterError(f"{call.name} needs calls as its arguments, for example {call.name}(eq(name, …), …).")
    if call.name == "not" and len(call.args) != 1:
        raise FilterError("not needs one call as its argument.")
    parts: list[_Condition] = []
    for part in map(_condition, call.args):
        # Conditions of a nested `and` are about the same pair as those around it.
        parts += part.parts if call.name == part.name == "and" else (part,)
    pairs = {part.pair for part in parts}
    pair: Pair | None = parts[0].pair if len(pairs) == 1 and call.name != "not" else None
    return _Condition(call.name, tuple(parts), pair=pair)


def _test(function: str, name: str, kind: Kind, value: Any) -> _Test:
    if function == "search":
        return _search(value)
    if function == "has":
        return _has(name, kind, value)
    if function == "exists":
        if name not in _OBJECTS or not isinstance(value, str):
            raise FilterError(f'exists needs {", ".join(_OBJECTS)} and a key, for example exists(metadata, "user").')
        return lambda found: isinstance(found, dict) and value in found
    if function in ("in", "nin"):
        if not isinstance(value, list):
            raise FilterError(f'{function}({name}, …) needs a list of values, for example ["a", "b"].')
        tests = [_equal(name, kind, each) for each in cast("list[Any]", value)]
        return lambda found: any(test(found) for test in tests) == (function == "in")
    if function in _LIKE:
        return _like(function, name, value)
    if function in _ORDER:
        return _ordered(function, name, kind, value)
    equal = _equal(name, kind, value)
    return equal if function == "eq" else lambda found: not equal(found)


def _equal(name: str, kind: Kind, value: Any) -> _Test:
    if value is None:
        return lambda found: found is None or found == ""
    if isinstance(value, _Call | _Field | list):
        raise FilterError(f"A list in a filter on {name} has texts, numbers, true, false and null only.")
    if kind == "list":
        return lambda found: isinstance(found, list) and value in found
    if kind == "time":
        moment = _literal_time(name, value)
        return lambda found: found == moment
    if kind == "number":
        number = _literal_number(name, value)
        return lambda found: _number(found) == number
    if kind == "boolean":
        return lambda found: found is (value if isinstance(value, bool) else str(value).lower() == "true")
    if kind == "text" or isinstance(value, str):
        wanted = _text(value)
        return lambda found: found is not None and _text(found) == wanted
    return lambda found: found == value or (found is not None and _text(found) == _text(value))


def _ordered(function: str, name: str, kind: Kind, value: Any) -> _Test:
    compare = _ORDER[function]
    if kind == "time":
        moment = _literal_time(name, value)
        return lambda found: found is not None and compare(found, moment)
    if kind == "number" or (kind == "any" and isinstance(value, int | float)):
        number = _literal_number(name, value)

        def in_order(found: Any) -> bool:
            known = _number(found)
            return known is not None and compare(known, number)

        return in_order
    if not isinstance(value, str):
        raise FilterError(f"{function}({name}, …) needs a text.")
    return lambda found: isinstance(found, str) and compare(found, value)


def _has(name: str, kind: Kind, value: Any) -> _Test:
    if kind == "list":
        return lambda found: isinstance(found, list) and value in found
    if name in _OBJECTS:
        try:
            wanted: Any = codec.loads(value) if isinstance(value, str) else None
        except ValueError:
            wanted = None
        if not isinstance(wanted, dict):
            raise FilterError(f'has({name}, …) needs a JSON object as a text, for example \'{{"user": "ada"}}\'.')
        return lambda found: _contains(found, wanted)
    return lambda found: _text(value) in (_text(found) if found is not None else "")


def _contains(found: Any, wanted: Any) -> bool:
    """True if a value has all members of the wanted object."""
    if not isinstance(wanted, dict):
        return bool(found == wanted)
    members = cast("Json", found) if isinstance(found, dict) else {}
    return all(key in members and _contains(members[key], each) for key, each in cast("Json", wanted).items())


def _like(function: str, name: str, value: Any) -> _Test:
    if not isinstance(value, str):
        raise FilterError(f"{function}({name}, …) needs a text with % for any characters.")
    pattern = "".join(".*" if sign == "%" else "." if sign == "_" else re.escape(sign) for sign in value)
    # Repeated wildcards match the same texts as one, and would need exponential time.
    pattern = re.sub(r"(\.\*)+", ".*", pattern)
    flags = re.DOTALL | (re.IGNORECASE if "ilike" in function else 0)
    matches = re.compile(pattern, flags).fullmatch
    wanted = not function.startswith("n")
    return lambda found: (found is not None and matches(_text(found)) is not None) == wanted


def _search(value: Any) -> _Test:
    if not isinstance(value, str) or not value.split():
        raise FilterError('search needs a text, for example search("refund").')
    words = value.lower().split()

    def found_in(found: Any) -> bool:
        text = _text(found).lower()
        return all(word in text for word in words)

    return found_in


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value)
    return codec.dumps(value).decode(errors="replace")


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, bool | int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _literal_number(name: str, value: Any) -> float:
    number = _number(value)
    if number is None:
        raise FilterError(f"A filter on {name} needs a number, not {value!r}.")
    return number


def _literal_time(name: str, value: Any) -> datetime:
    moment = _time(value)
    if moment is None:
        raise FilterError(f'A filter on {name} needs a time, for example "2026-03-05T14:00:00Z", not {value!r}.')
    return moment


def _bounds(call: _Call) -> Bounds:
    """Return conditions that every match meets: those of the call, or of the calls that its `and` joins."""
    bounds = Bounds()
    for part in _joined(call):
        if len(part.args) != 2 or not isinstance(part.args[0], _Field | str):
            continue
        named, value = part.args
        name = named.name if isinstance(named, _Field) else named
        name = _ALIASES.get(name, name)
        if name == "start_time":
            moment = _time(value)
            if moment is not None and part.name in ("gt", "gte", "eq"):
                bounds = bounds._replace(since=max(moment, bounds.since or moment))
            if moment is not None and part.name in ("lt", "lte", "eq"):
                bounds = bounds._replace(until=min(moment, bounds.until or moment))
        elif part.name == "eq" and isinstance(value, str) and name in ("trace_id", "thread_id"):
            bounds = bounds._replace(**{name: value})
        elif part.name == "eq" and isinstance(value, str) and name == "id":
            bounds = bounds._replace(run_id=value)
        elif part.name == "eq" and name == "is_root" and value is True:
            bounds = bounds._replace(root_only=True)
    return bounds


def _joined(call: _Call) -> Iterable[_Call]:
    if call.name != "and":
        return [call]
    return [part for each in call.args if isinstance(each, _Call) for part in _joined(each)]
