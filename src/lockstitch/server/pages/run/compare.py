"""The comparison of two runs, and text differences."""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from fastapi import Request
from starlette.responses import HTMLResponse

from lockstitch.errors import LockstitchError, NotFound
from lockstitch.model import Json, Run, Thread, text_of
from lockstitch.model.format import duration, plural
from lockstitch.server.auth import Reader
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.pages.common.content import arguments, one_line
from lockstitch.server.pages.common.format import dollars
from lockstitch.server.pages.common.render import render_page
from lockstitch.server.pages.navbar import page_router
from lockstitch.store import Store, Where
from lockstitch.store.replays import replayed_run
from lockstitch.store.reports.alignment import Allowance, align
from lockstitch.store.reports.diff import Change, Difference, Pair, Step

_WORDS: Final = 3_000
"""Maximum number of words for a comparison by words. Longer texts are compared by lines."""

_LONGEST: Final = 20_000
"""Maximum number of characters of a text on the page."""

_WORD_OR_SPACE: Final = re.compile(r"\s+|\w+|[^\w\s]")

MarkedText = tuple[bool, str]
"""True if the other text does not contain the piece, and its text."""


class Side(NamedTuple):
    """The marked parts of both texts."""

    a: list[MarkedText]
    b: list[MarkedText]


def unmarked_texts(a: Any, b: Any) -> Side:
    """Return both values as texts in one part each, without a comparison."""
    return Side([(False, as_text(a))], [(False, as_text(b))])


def marked_texts(a: Any, b: Any, allowance: Allowance) -> Side:
    """Return both as texts, in pieces that mark the parts that only one of them has.

    Texts whose comparison costs more than the allowance of the page are shown whole.
    """
    left, right = as_text(a), as_text(b)
    if not left or not right:
        return Side([(True, left)] if left else [], [(True, right)] if right else [])
    # Skip the common start and end, which are most of a long text with few changes.
    start = _shared(left, right)
    left, right, head = left[start:], right[start:], left[:start]
    end = _shared(left[::-1], right[::-1])
    tail = left[len(left) - end :]
    left, right = left[: len(left) - end], right[: len(right) - end]
    middle = _compared(left, right, allowance)
    return Side(*(_joined(head, texts, tail) for texts in middle))


def _joined(head: str, texts: list[MarkedText], tail: str) -> list[MarkedText]:
    return [piece for piece in ((False, head), *texts, (False, tail)) if piece[1]]


def _shared(a: str, b: str) -> int:
    """Return the length of the common start of two texts, up to the end of a word."""
    length = next((place for place, (value, other) in enumerate(zip(a, b, strict=False)) if value != other), None)
    if length is None:
        length = min(len(a), len(b))
    while length and (length < len(a) or length < len(b)) and a[length - 1].isalnum():
        length -= 1
    return length


def _compared(left: str, right: str, allowance: Allowance) -> Side:
    words_a, words_b = _WORD_OR_SPACE.findall(left), _WORD_OR_SPACE.findall(right)
    if len(words_a) + len(words_b) > _WORDS:
        words_a, words_b = left.splitlines(keepends=True), right.splitlines(keepends=True)
        if len(words_a) + len(words_b) > _WORDS:
            return Side([(True, left)], [(True, right)])
    texts_a: list[MarkedText] = []
    texts_b: list[MarkedText] = []
    aligned_ranges = align(words_a, words_b, allowance)
    if aligned_ranges is None:
        return Side([(True, left)], [(True, right)])
    for aligned_range in aligned_ranges:
        _put(texts_a, not aligned_range.equal, words_a[aligned_range.start_a : aligned_range.end_a])
        _put(texts_b, not aligned_range.equal, words_b[aligned_range.start_b : aligned_range.end_b])
    return Side(texts_a, texts_b)


def _put(texts: list[MarkedText], differs: bool, words: Sequence[str]) -> None:
    if words:
        texts.append((differs, "".join(words)))


def as_text(value: Any) -> str:
    """Return a value as text: a string unchanged, JSON with indentation."""
    if value is None or value == "":
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


router = page_router()


async def counterpart(store: Store, run: Run, head: Thread) -> UUID | None:
    """Return the id of the run that answered the same input before this one, or None.

    It is the run that a replay runs again, the run that this one retries, the run of the same turn in the thread that a
    fork comes from, or the previous run if its input has the same text.
    """
    if (source := await replayed_run(store, run)) is not None:
        return source.id
    top_level = Where("parent_run_id", "is null")
    if run.parent_run_id is not None or run.input_position is None:
        return None
    earlier = Where("sequence", "<", run.sequence)
    (before,) = await store.find_runs(run.thread_id, top_level, earlier, order=("-sequence",), limit=1) or (None,)
    if before is not None and await _input_of(store, head, before) == await _input_of(store, head, run):
        return before.id
    origin: Any = head.state.get("forked_from")
    if before is None and isinstance(origin, dict):
        try:
            source = await store.thread(str(cast("Json", origin).get("thread_id")))
        except NotFound:
            return None
        found = await store.find_runs(source.id, top_level, Where("turn", "=", run.turn), order=("-sequence",), limit=1)
        return found[0].id if found else None
    return None


async def _input_of(store: Store, head: Thread, run: Run) -> str | None:
    if run.is_trace:
        return run.imported_input or None
    if run.input_position is None:
        return None
    stitches = await store.stitches(head, run.input_position, run.input_position)
    return text_of(stitches[0].message) if stitches else None


SHOWN: Final = 200
"""Maximum number of different steps on the page."""

MARKS: Final = 5_000
"""Maximum number of marked rows on the run page."""

_FIGURES: Final = (
    *(("agent", "Agent"), ("version", "Version"), ("status", "Status"), ("stop_reason", "Stop reason")),
    *(("model", "Model"), ("steps", "Steps"), ("duration_ms", "Time"), ("total_cost", "Cost")),
    *(("input_tokens", "Input"), ("cache_read_input_tokens", "From cache"), ("output_tokens", "Output")),
    ("error", "Error"),
)


@router.get("/run/{ref}/against/{other}")
async def against(request: Request, caller: Reader, ref: str, other: str) -> HTMLResponse:
    """Render the comparison line of the run page, with marks for the different rows."""
    run = await caller.store.run(ref)
    add_log_fields(run=run.id, thread=run.thread_id)
    try:
        before = await caller.store.run(other)
        difference = await caller.store.difference(before.id, run.id)
    except LockstitchError as exc:
        return render_page(request, caller, "run/comparison.html", run=run, problem=str(exc))
    first = next((pair for pair in difference.pairs if not pair.same), None)
    return render_page(
        request,
        caller,
        "run/comparison.html",
        run=run,
        other=before,
        problem="",
        says=_sentences(difference),
        first=_first(first) if first else "",
        marks=_marks(difference, before)[:MARKS],
    )


@router.get("/run/{a}/difference/{b}")
async def difference(request: Request, caller: Reader, a: str, b: str) -> HTMLResponse:
    """Render two runs next to each other."""
    result = await caller.store.difference(a, b)
    add_log_fields(run=result.b.id, thread=result.b.thread_id)
    steps, differing = _steps(result)
    return render_page(
        request,
        caller,
        "run/difference.html",
        a=result.a,
        b=result.b,
        threads=(await caller.store.thread(result.a.thread_id), await caller.store.thread(result.b.thread_id)),
        same=result.same,
        says=_sentences(result),
        figures=_figures(result),
        steps=steps,
        differing=differing,
        omitted=max(0, differing - SHOWN),
        total=len(result.pairs),
    )


def _counted(number: float | None) -> str:
    return plural(int(number or 0), "step")


_AMOUNTS: Final[tuple[tuple[str, str, str, Callable[[float | None], str]], ...]] = (
    ("duration_ms", "slower", "faster", duration),
    ("total_cost", "more expensive", "cheaper", dollars),
    ("steps", "more", "fewer", _counted),
)


def _sentences(difference: Difference) -> list[str]:
    """Return the differences of duration, cost, steps and status as texts."""
    changes = {change.name: change for change in difference.changes}
    lines: list[str] = []
    for name, more, less, words in _AMOUNTS:
        change = changes.get(name)
        if change is not None and change.a is not None and change.b is not None:
            apart_by = change.b - change.a
            lines.append(f"{words(abs(apart_by))} {more if apart_by > 0 else less}")
    if (change := changes.get("status")) is not None:
        lines.append(f"{change.b}, was {change.a}")
    return lines


def _first(pair: Pair) -> str:
    """Return the first different step as text."""
    step = pair.b or pair.a
    name = step.name if step else ""
    if pair.a is None:
        return f"{name} is new"
    if pair.b is None:
        return f"{name} is missing"
    change = pair.changes[0]
    return _change_text(change) if change.name == "calls" else f"{name}: {_change_text(change)}"


def _marks(difference: Difference, before: Run) -> list[tuple[int, str]]:
    """Return the positions of different steps with a description."""
    marks: list[tuple[int, str]] = []
    for pair in difference.pairs:
        if pair.same or pair.b is None:
            continue
        says = "; ".join(map(_change_text, pair.changes)) if pair.a else f"not in run {before.sequence}"
        marks.append((pair.b.details["position"], one_line(says, 200)))
    return marks


def _change_text(change: Change) -> str:
    """Return a change on one line; of arguments only the different ones."""
    was: Any = change.a
    now: Any = change.b
    if isinstance(was, dict) and isinstance(now, dict):
        a, b = cast("Json", was), cast("Json", now)
        differing = [name for name in {**a, **b} if a.get(name) != b.get(name)]
        return "; ".join(f"{name} {_short(b.get(name))}, was {_short(a.get(name))}" for name in differing)
    if change.name == "calls" and (value := _first_different_call(was, now)):
        return value
    if change.name in ("answer", "result", "calls", "system", "tools", "prompt"):
        return f"different {change.name.removesuffix('s')}"
    return f"{change.name} {_short(now)}, was {_short(cast('Any', was))}"


def _first_different_call(was: Any, now: Any) -> str:
    """Return the first different call of two responses: another tool or other arguments."""
    for (name_a, input_a), (name_b, input_b) in zip(was, now, strict=False):
        if name_a != name_b:
            return f"{name_b}, was {name_a}"
        if input_a != input_b:
            return f"{name_b} got {_change_text(Change('args', input_a, input_b))}"
    return ""


def _short(value: Any) -> str:
    if value is None:
        return "none"
    return one_line(value if isinstance(value, str) else arguments(value) or str(value), 60)


def _figures(difference: Difference) -> list[Json]:
    both = difference.as_json()
    rows: list[Json] = []
    for name, says in _FIGURES:
        a, b = both["a"].get(name), both["b"].get(name)
        if a is None and b is None:
            continue
        rows.append({"name": says, "a": _figure(name, a), "b": _figure(name, b), "differs": a != b})
    return rows


def _figure(name: str, value: Any) -> str:
    if value is None:
        return "\N{EN DASH}"
    if name == "duration_ms":
        return duration(value)
    if name == "total_cost":
        return dollars(value)
    return f"{value:,}" if isinstance(value, int) and name != "version" else str(value)


def _steps(difference: Difference) -> tuple[list[Json], int]:
    """Return the different steps in order, with counts of the identical steps between them."""
    steps: list[Json] = []
    same = differing = 0
    allowance = Allowance()
    for number, pair in enumerate(difference.pairs, 1):
        if pair.same:
            same += 1
            continue
        differing += 1
        if differing > SHOWN:
            continue
        if same:
            steps.append({"same": same})
            same = 0
        steps.append(
            {
                "same": 0,
                "number": number,
                "a": _title(pair.a),
                "b": _title(pair.b),
                "look": (pair.b or pair.a or _NOTHING).kind,
                "changes": [_change(change, allowance) for change in pair.changes] or _alone(pair),
            }
        )
    if same and differing <= SHOWN:
        steps.append({"same": same})
    return steps, differing


_NOTHING: Final = Step("model", None, {})


def _title(step: Step | None) -> Json | None:
    if step is None:
        return None
    value = step.details
    return {
        "name": step.name or step.kind,
        "position": value.get("position"),
        "took": duration(value.get("duration_ms")),
        "cost": dollars(value["total_cost"]) if value.get("total_cost") is not None else "",
    }


_SHOWN_FIELDS: Final = ("answer", "calls", "args", "result", "error")
"""Values that are shown for a step without counterpart."""


def _alone(pair: Pair) -> Sequence[Json]:
    """Return the values of a step that only one run has."""
    step = pair.a or pair.b
    rows: list[Json] = []
    for name, value in (step.values if step else {}).items():
        if value in (None, "", {}, []) or name not in _SHOWN_FIELDS:
            continue
        here = unmarked_texts("", value) if pair.a is None else unmarked_texts(value, "")
        rows.append({"name": name, "a": here.a if pair.a else None, "b": here.b if pair.b else None})
    return rows


def _change(change: Change, allowance: Allowance) -> Json:
    side: Side = marked_texts(change.a, change.b, allowance)
    return {"name": change.name, "a": side.a, "b": side.b}
