"""Fills a store with threads that differ in all properties that the list of threads shows and filters by."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from benchmarks.filling import put_all
from benchmarks.sessions import ACTIONS, MODEL, SPREAD, TURNS, Session, put, session
from lockstitch.model import ApprovalWait, Feedback, Thread, call_key
from lockstitch.model.figures import figures_after
from lockstitch.store import Store

RARE: Final = 1000
"""One of this number of threads has the rare value of a filter."""

_NEEDS_PERSON: Final = 100
"""One of this number of threads waits for an approval."""

_RATED: Final = 20
"""One of this number of threads has feedback."""

_USERS: Final = 2000

Shares = tuple[tuple[str, int], ...]

_AGENTS: Final[Shares] = (("support", 60), ("research", 25), ("billing", 15))
_MODELS: Final[Shares] = ((MODEL, 70), ("gpt-5", 25), ("gemini-2.5-pro", 5))
_KINDS: Final[Shares] = (("chat", 70), ("goal", 15), ("task", 10), ("trace", 3), ("replay", 2))
_ENDINGS: Final[Shares] = (("completed", 82), ("failed", 13), ("cancelled", 5))
_TAGS: Final[Shares] = (("production", 50), ("staging", 10), ("beta", 5), ("", 35))
_TENANTS: Final[Shares] = (("acme", 40), ("globex", 30), ("initech", 29), ("umbrella", 1))
_ERRORS: Final = ("TimeoutError: the tool took longer than 30 s", "RateLimited: 429 of the provider")


@dataclass(frozen=True)
class Varied:
    """The threads that paths of pages name."""

    typical: Session
    """A thread in the middle of the list."""
    rare: Session
    """A thread with the rare values, about there."""


async def fill(store: Store, number: int, spread: timedelta = SPREAD) -> Varied:
    """Write this number of stitches in threads of fifty, and feedback. The threads are of this period."""
    threads = max(number // (TURNS * (2 * ACTIONS + 4)), 20)
    middle = threads // 2
    kept: dict[bool, Session] = {}
    feedback: list[Feedback] = []

    def sessions() -> Iterator[Session]:
        parent: Thread | None = None
        for place in range(threads):
            varied = _varied(store, place, spread * (place / threads), parent)
            if varied.thread.kind == "chat":
                parent = varied.thread
            if place >= middle:
                kept.setdefault(place % RARE == 0, varied)
            if place % _RATED == 0:
                feedback.append(_feedback(varied, place))
            yield varied

    await put(store, sessions())
    await put_all(store, feedback)
    for name, _ in _AGENTS:
        await store.agents.register(store.project, name, {"name": name, "model": MODEL})
    return Varied(kept[False], kept.get(True, kept[False]))


def _varied(store: Store, place: int, age: timedelta, parent: Thread | None) -> Session:
    """Return the thread at a place of the list. The same place has the same properties in every store."""
    chance = random.Random(place)
    rare = place % RARE == 0
    kind = _one_of(chance, _KINDS)
    failed = chance.randrange(TURNS) + 1 if chance.random() < 0.1 else 0
    plain = session(store, store.clock.now() - age, TURNS, ACTIONS, failed=failed)
    cost, speed = chance.lognormvariate(0, 1), chance.lognormvariate(0, 1)
    model = "legacy-model" if rare else _one_of(chance, _MODELS)
    tags = [tag for tag in (_one_of(chance, _TAGS), "incident" if rare else "") if tag]
    metadata = {"tenant": _one_of(chance, _TENANTS), "order": place}
    errors = ("Zebra: the shipment is lost.",) if rare else _ERRORS
    runs = [
        run.changed(
            model=model,
            tags=tags,
            metadata=metadata,
            total_cost=round((run.total_cost or 0) * cost, 6),
            input_tokens=int(run.input_tokens * cost),
            completed_at=run.started_at + timedelta(seconds=run.steps * speed),
            error=chance.choice(errors) if run.status == "failed" else None,
        )
        for run in plain.runs
    ]
    fields: dict[str, Any] = figures_after(plain.thread, [(None, run) for run in runs])
    if kind in ("goal", "task"):
        ending = _one_of(chance, _ENDINGS)
        fields |= {"goal": "Look after the shipments.", "status": ending}
        fields |= {} if ending == "cancelled" else {"result": {"text": "Done."}}
    if kind == "task" and parent is not None:
        fields |= {"parent_id": parent.id, "depth": 1}
    if place % _NEEDS_PERSON == 1 and kind == "chat":
        fields |= _approval(plain)
    head = plain.thread.changed(
        kind=kind,
        agent="archivist" if rare else _one_of(chance, _AGENTS),
        version=chance.randrange(1, 6),
        user_id="user-rare" if rare else f"user-{min(chance.randrange(_USERS), chance.randrange(_USERS))}",
        key=f"order-{place}",
        title=f"{'Zebra' if rare else 'Shipment'} {place}",
        **fields,
    )
    return Session(head, runs, plain.stitches)


def _approval(plain: Session) -> dict[str, Any]:
    since = plain.thread.updated_at
    answers = {stitch.position: stitch for stitch in plain.stitches if stitch.type == "llm_call"}
    call = next(stitch for stitch in reversed(plain.stitches) if stitch.type == "tool_call")
    key = call_key(answers[call.reply_to or 0].id, 0)
    wait = ApprovalWait(since, call_id=str(call.call_id), key=key, name=str(call.name))
    return {"waiting_for": [wait.as_json()], "awaiting_person_since": since}


def _feedback(varied: Session, place: int) -> Feedback:
    at = varied.thread.updated_at
    thread, run = varied.thread.id, varied.runs[-1].id
    score = place % 3 / 2
    return Feedback(thread_id=thread, run_id=run, name="helpful", score=score, created_at=at, updated_at=at)


def _one_of(chance: random.Random, shares: Shares) -> str:
    return chance.choices([name for name, _ in shares], [share for _, share in shares])[0]
