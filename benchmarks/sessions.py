"""Fills a store with conversations as the engine writes them, for the benchmarks of lenses."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

from benchmarks.filling import CHUNK
from benchmarks.prose import Prose
from lockstitch.model import (
    CHAIN_TYPES,
    Blob,
    Entry,
    Json,
    Record,
    Run,
    Stitch,
    Thread,
    at_position,
    new_id,
    tool_result,
)
from lockstitch.store import Store

TURNS, ACTIONS = 5, 3
"""Turns of an ordinary thread, and uses of tools in each."""

MODEL, PROVIDER = "claude-sonnet-4-5", "anthropic"
_SYSTEM, _TOOLS = b"You look after parcels.", b'[{"name": "look", "description": "Look.", "input_schema": {}}]'
_PROSE = Prose(6)
_TEXTS = [_PROSE.take(420).replace("\n", " ") for _ in range(64)]
SPREAD = timedelta(days=70)
"""The period of the threads. A tenth of it is the week that a query selects."""
_FAILS = 10
"""One of this number of threads has a failed turn."""


class Session(NamedTuple):
    thread: Thread
    runs: list[Run]
    stitches: list[Stitch]


class Known(NamedTuple):
    """The threads that queries select, among many other threads."""

    typical: Session
    """A typical thread."""
    long: Session
    """One turn with a thousand stitches in its list."""
    small: Session
    """Twenty runs of twenty messages."""
    large: Session
    """Eighty of them."""


async def fill(store: Store, number: int) -> Known:
    """Write this number of stitches in threads of fifty, and the four special threads."""
    texts = [
        Blob(sha256=_digest(content), size=len(content), content=content, created_at=store.clock.now())
        for content in (_SYSTEM, _TOOLS)
    ]
    await store._backend.put(texts)
    now = store.clock.now()
    per_thread = TURNS * (2 * ACTIONS + 4)
    threads = max(number // per_thread, 2)

    def ordinary(place: int) -> Session:
        return session(store, now - SPREAD * (place / threads), TURNS, ACTIONS, failed=0 if place % _FAILS else 2)

    typical = ordinary(threads // 2)
    ids = Known(
        typical,
        # All times differ, so that the order is unique.
        session(store, now - timedelta(seconds=1), 1, 500),
        session(store, now - timedelta(seconds=2), 20, 9),
        session(store, now - timedelta(seconds=3), 80, 9),
    )
    await put(store, (typical if number == threads // 2 else ordinary(number) for number in range(threads)))
    await put(store, iter(ids[1:]))
    return ids


async def put(store: Store, sessions: Iterator[Session]) -> None:
    """Write the records in chunks, referenced records first."""
    waiting: list[Session] = []
    stitches = 0
    for session in sessions:
        waiting.append(session)
        stitches += len(session.stitches)
        if stitches >= CHUNK:
            await _write(store, waiting)
            waiting, stitches = [], 0
    if waiting:
        await _write(store, waiting)


async def _write(store: Store, sessions: list[Session]) -> None:
    parts: tuple[list[Record], ...] = (
        [session.thread for session in sessions],
        [run for session in sessions for run in session.runs],
        [stitch for session in sessions for stitch in session.stitches],
    )
    for records in parts:
        await store._backend.put(records)


def session(store: Store, ended_at: datetime, turns: int, actions: int, *, failed: int = 0) -> Session:
    """Return a thread with turns of tool calls and an answer; one turn may have failed."""
    digests = {"system": _digest(_SYSTEM), "tools": _digest(_TOOLS)}
    thread = store.new_thread(
        agent="bench",
        user_id=str(new_id()),
        title=_TEXTS[turns % len(_TEXTS)][:40],
        status="waiting",
        settings={"model": f"{PROVIDER}:{MODEL}", "texts": digests},
        extras={"outcome_id": str(new_id())},
    ).changed(created_at=ended_at - timedelta(minutes=turns), updated_at=ended_at, last_run_at=ended_at)
    request: Json = {**digests, "parameters": {"model": MODEL, "max_tokens": 4096}}
    runs: list[Run] = []
    stitches: list[Stitch] = []
    tip = None
    for turn in range(1, turns + 1):
        first = len(stitches) + 1
        run = _run(store, thread, turn, first, actions, ended_at - timedelta(minutes=turns - turn), turn == failed)
        for entry in _turn(run, first, actions, request):
            at = run.started_at + timedelta(milliseconds=100 * (len(stitches) + 1 - first))
            stitch = at_position(entry, thread.id, len(stitches) + 1, tip, 1, at)
            tip = stitch.id if stitch.type in CHAIN_TYPES else tip
            stitches.append(stitch)
        runs.append(run)
    head = thread.changed(
        position=len(stitches), tip_id=tip, last_sequence=turns, last_turn=turns, total_runs=turns, fence=1
    )
    return Session(head, runs, stitches)


def _run(store: Store, thread: Thread, turn: int, first: int, actions: int, started: datetime, failed: bool) -> Run:
    calls = actions + 1
    return store.new_run(
        thread,
        input_position=first + 1,
        status="failed" if failed else "completed",
        stop_reason="error" if failed else "end_turn",
        model=MODEL,
        provider=PROVIDER,
    ).changed(
        sequence=turn,
        turn=turn,
        first_position=first,
        output_position=first + 2 + 2 * actions,
        error="The parcel is gone." if failed else None,
        input_tokens=900 * calls,
        output_tokens=120 * calls,
        cost={"total_cost": 0.0045 * calls, "input_cost": 0.0027 * calls, "output_cost": 0.0018 * calls},
        total_cost=0.0045 * calls,
        steps=calls,
        started_at=started,
        completed_at=started + timedelta(seconds=calls),
    )


def _turn(run: Run, first: int, actions: int, request: Json) -> Iterator[Entry]:
    """Return the entries of a turn: start, input, tool calls, answer and end."""
    start_data: Json = {"queue_present": False, "formatter": "json", "log": "lean", "request": request}
    yield Entry(type="run_started", run_id=run.id, step_number=0, data=start_data)
    yield Entry(type="input", run_id=run.id, step_number=0, message={"role": "user", "content": _text(first)})
    for step in range(1, actions + 1):
        call_id = f"toolu_{run.id.hex}_{step}"
        call = {"type": "tool_use", "id": call_id, "name": "look", "input": {"query": _text(first + step)}}
        yield _response(run, step, [call], "tool_use")
        yield Entry(
            type="tool_call",
            run_id=run.id,
            step_number=step,
            status="ok",
            name="look",
            call_id=call_id,
            reply_to=first + 2 * step,
            call_index=0,
            message=tool_result(call_id, _text(first + step + 1)),
            duration_ms=35 + step,
        )
    yield _response(run, actions + 1, [{"type": "text", "text": _text(first + actions)}], "end_turn")
    end = "run_failed" if run.status == "failed" else "run_completed"
    yield Entry(
        type=end,
        run_id=run.id,
        step_number=actions + 1,
        status=run.status,
        data={"stop_reason": run.stop_reason, "total_steps": run.steps},
        duration_ms=1000 * run.steps,
    )


def _response(run: Run, step: int, content: list[Json], status: str) -> Entry:
    return Entry(
        type="llm_call",
        run_id=run.id,
        step_number=step,
        name=MODEL,
        status=status,
        message={"role": "assistant", "content": content},
        data={"finish_reason": status, "response_id": f"msg_{run.id.hex}_{step}", "request": {"sha256": "0" * 64}},
        input_tokens=900,
        output_tokens=120,
        duration_ms=800,
    )


def _text(number: int) -> str:
    return _TEXTS[number % len(_TEXTS)]


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
