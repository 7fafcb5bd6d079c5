"""The rows of the waterfall as columns of numbers, decoded as in the browser."""

import json
from array import array
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from lockstitch.model import Run, Thread, call_key, new_id
from lockstitch.model.statistics import StitchOutline
from lockstitch.server.pages.run.compare import marked_texts
from lockstitch.server.pages.run.waterfall import OPEN, Waterfall, waterfall
from lockstitch.store.reports.alignment import Allowance
from lockstitch.store.reports.trace import Node, native
from lockstitch.store.reports.traces import Trace

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def drawn(
    *log: StitchOutline,
    waiting_for: list[dict[str, Any]] | None = None,
    calls: Any = None,
    children: Callable[[Node], list[Node]] | None = None,
    **run: Any,
) -> Waterfall:
    """Return the waterfall of a run. `children` are nodes below its last call."""
    values: dict[str, Any] = {"status": "completed", "completed_at": NOW + timedelta(seconds=9), **run}
    owner = Run(thread_id=new_id(), sequence=3, turn=3, first_position=1, agent="one", started_at=NOW, **values)
    head = Thread(id=owner.thread_id, waiting_for=waiting_for or [], created_at=NOW, updated_at=NOW)
    root = native(owner, log, calls)
    if children is not None:
        last = [node for node, _ in root.walk() if node.kind == "tool"][-1]
        last.children += children(last)
    return waterfall(Trace(owner, root, len(log), 0), head, NOW + timedelta(seconds=20))


def outline(position: int, type: str, at: float, **more: Any) -> StitchOutline:
    values: dict[str, Any] = dict.fromkeys(StitchOutline._fields)
    fields = {"position": position, "id": new_id(), "type": type, "at": NOW + timedelta(seconds=at)}
    return StitchOutline(**{**values, **fields, **more})


def read(packed: bytes) -> dict[str, Any]:
    length = int.from_bytes(packed[:4], "little")
    header: dict[str, Any] = json.loads(packed[4 : 4 + length])
    place = 4 + length
    for name, kind in header["columns"]:
        column = array(kind)
        assert place % column.itemsize == 0, name
        column.frombytes(packed[place : place + column.itemsize * header["rows"]])
        place += column.itemsize * header["rows"]
        header[name] = column.tolist()
    assert place == len(packed)
    return header


def test_step_contains_failed_attempts_and_tools() -> None:
    waterfall = drawn(
        outline(1, "api_retry", 4, status="overloaded", duration_ms=500, delay=1.5),
        outline(2, "llm_call", 4, name="m", step_number=1, duration_ms=4000, first_token_ms=2600, cost=0.5),
        outline(3, "tool_call", 5, name="look", call_id="a", reply_to=2, call_index=0, status="ok", duration_ms=800),
    )
    rows = read(waterfall.packed())
    assert [rows["names"][name] for name in rows["name"]] == ["Run 3", "Step 1", "overloaded", "m", "look"]
    assert rows["parent"] == [-1, 0, 1, 1, 1]
    assert [rows["looks"][look] for look in rows["look"]] == ["run", "step", "fail", "model", "tool"]
    # The call took four seconds. The first two are a failed attempt and its pause.
    assert rows["start"] == [0, 0, 0, 2000, 4200]
    assert rows["length"] == [9000, 5000, 500, 2000, 800]
    assert rows["pause"] == [0, 0, 1500, 0, 0]
    assert rows["early"][3] == 600
    assert rows["cost"] == [-1, 0.5, -1, 0.5, -1]
    assert [waterfall.at(row) for row in range(5)] == ["run", "2", "1", "2", "3"]
    assert [row["level"] for row in waterfall.rows(60)] == [1, 2, 3, 3, 3]


def test_costs_of_a_run_and_its_steps_include_children() -> None:
    waterfall = drawn(
        outline(1, "llm_call", 4, name="m", step_number=1, calls=1, cost=0.5),
        outline(2, "tool_call", 5, name="spawn", call_id="a", reply_to=1, call_index=0, status="ok"),
        children=lambda at: [
            Node(
                "thread",
                "task",
                at.id,
                at.id,
                NOW,
                cost=0.25,
                children=[Node("run", "main", at.id, at.id, NOW, cost=0.25)],
            )
        ],
        total_cost=0.5,
    )
    rows = read(waterfall.packed())
    named = zip([rows["names"][name] for name in rows["name"]], rows["cost"], strict=True)
    assert list(named) == [
        ("Run 3", 0.75),
        ("Step 1", 0.75),
        ("m", 0.5),
        ("spawn", -1),
        ("thread", 0.25),
        ("main", 0.25),
    ]


def test_row_is_open_until_it_ends() -> None:
    response = outline(1, "llm_call", 1, name="m", step_number=1, calls=2, duration_ms=1000)
    waterfall = drawn(
        response,
        calls={1: [{"id": "a", "name": "pay", "index": 0}, {"id": "b", "name": "look", "index": 1}]},
        waiting_for=[{"kind": "approval", "id": "a", "key": call_key(response.id, 0)}],
        status="waiting",
        completed_at=None,
    )
    rows = read(waterfall.packed())
    drawn_rows = [
        (rows["names"][rows["name"][row]], rows["looks"][rows["look"][row]], rows["length"][row]) for row in (3, 4)
    ]
    assert drawn_rows == [("pay", "wait", OPEN), ("look", "tool", OPEN)]
    assert [waterfall.at(row) for row in (3, 4)] == ["1-0", "1-1"]
    assert rows["end"] == 20_000


def test_time_of_a_child_that_has_not_started_is_collapsed() -> None:
    ends: dict[str, float] = {}
    for status in ("pending", "running"):
        waterfall = drawn(
            outline(1, "llm_call", 4, name="m", step_number=1, calls=1, duration_ms=3_000),
            outline(2, "tool_call", 5, name="spawn", call_id="a", reply_to=1, call_index=0, status="ok"),
            children=lambda at, status=status: [Node("thread", "task", at.id, at.id, NOW, status=status)],
            status="waiting",
            completed_at=None,
        )
        ends[status] = waterfall.scale.length
    assert ends["running"] == 20_000
    assert ends["pending"] < 10_000


def test_too_large_numbers_become_the_maximum() -> None:
    waterfall = drawn(outline(1, "llm_call", 1, name="m", duration_ms=2**40))
    assert read(waterfall.packed())["length"][1] == 2**31 - 1


def test_text_difference_marks_the_changed_words() -> None:
    assert marked_texts("You were charged once.", "You were charged twice.", Allowance()).b == [
        (False, "You were charged "),
        (True, "twice"),
        (False, "."),
    ]
    assert marked_texts("", "new", Allowance()).a == []
    for a, b in (("x" * 50_000, "y" * 50_000), ("word " * 9_000, "other " * 9_000), ("aa", "aaa"), ("same", "same")):
        both = marked_texts(a, b, Allowance())
        for text, parts in ((a, both.a), (b, both.b)):
            joined = "".join(part for _, part in parts)
            assert joined.removesuffix("…") == text[:20_000], "nothing is lost"
