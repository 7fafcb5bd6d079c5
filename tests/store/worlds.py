"""Records of many runs to count: native ones and mirrors, priced and not, with one model and with several."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from lockstitch.model import Record, Run, Stitch, Thread, new_id, tool_result
from lockstitch.store import Store

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
MODELS = ("large-1", "small-1", None)
TOOLS = ("search", "charge", "look")


@dataclass
class World:
    """The written records, for expected values."""

    threads: list[Thread] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    stitches: list[Stitch] = field(default_factory=list)

    def head(self, run: Run) -> Thread:
        return next(head for head in self.threads if head.id == run.thread_id)

    def root(self, head: Thread) -> Thread:
        while head.parent_id is not None:
            head = next(thread for thread in self.threads if thread.id == head.parent_id)
        return head

    async def put(self, store: Store) -> "World":
        kinds: Sequence[Sequence[Record]] = (self.threads, self.runs, self.stitches)
        for records in kinds:
            if records:
                await store._backend.put(records)
        return self


def world(seed: int, trees: int = 8) -> World:
    """A few days of work in two projects."""
    random, result = Random(seed), World()
    for number in range(trees):
        project = random.choice(("default", "default", "elsewhere"))
        root = _thread(result, project=project, key=f"k{number}", user_id=random.choice(("ada", "bob", None)))
        heads = [
            root,
            *(_thread(result, project=project, parent_id=root.id, depth=1) for _ in range(random.randrange(3))),
        ]
        for head in heads:
            for sequence in range(1, random.randrange(1, 4)):
                _run(result, random, head, sequence)
    return result


def _thread(world: World, **fields: Any) -> Thread:
    thread = Thread(id=new_id(), status="completed", created_at=NOW, updated_at=NOW, **fields)
    world.threads.append(thread)
    return thread


def _run(world: World, random: Random, head: Thread, sequence: int) -> None:
    started = NOW - timedelta(minutes=random.randrange(5 * 24 * 60))
    run_id = new_id()
    position = max((stitch.position for stitch in world.stitches if stitch.thread_id == head.id), default=0)
    choice = random.choice(MODELS)
    several = random.random() < 0.4
    tokens, costs, unpriced, first = [0, 0, 0, 0], [], 0, position + 1
    calls = random.randrange(4)
    for number in range(calls):
        counts = [random.randrange(1000) for _ in range(4)]
        tokens = [number + more for number, more in zip(tokens, counts, strict=True)]
        cost = random.choice((None, {"total_cost": random.randrange(1, 10**6) / 10**7}))
        data: dict[str, Any] = {"cost": cost} if cost else {}
        if cost:
            costs.append(cost["total_cost"])
        else:
            unpriced += 1
        position += 1
        common = {"thread_id": head.id, "run_id": run_id, "at": started, "parent_id": run_id}
        world.stitches.append(
            Stitch(
                position=position,
                type="llm_call",
                name=random.choice(("large-1", "small-1")) if several else choice,
                step_number=number + 1,
                duration_ms=random.choice((None, random.randrange(5000))),
                status=random.choice(("end_turn", "end_turn", "error")),
                data=data,
                **dict(zip(_COUNTS, counts, strict=True)),
                **common,
            )
        )
        for index in range(random.randrange(3)):
            position += 1
            world.stitches.append(
                Stitch(
                    position=position,
                    type="tool_call",
                    name=random.choice(TOOLS),
                    call_id=f"c{position}",
                    call_index=index,
                    reply_to=position - 1 - index,
                    duration_ms=random.choice((None, random.randrange(300), random.randrange(300))),
                    status=random.choice(("ok", "ok", "error", "denied", "in_doubt", None)),
                    message=tool_result(f"c{position}", "done"),
                    **common,
                )
            )
    if random.random() < 0.2:
        tokens[0] += 77  # archived: the run counts it, but the log no longer has it
    status = random.choice(("completed", "completed", "failed", "cancelled", "running"))
    world.runs.append(
        Run(
            id=run_id,
            thread_id=head.id,
            sequence=sequence,
            turn=sequence,
            agent=random.choice(("helper", "scout", None)),
            version=(None, 1, 2)[len(world.runs) % 3],
            tags=([], ["new"], ["eu", "new", "new"])[len(world.runs) % 3],
            model=choice,
            status=status,
            first_position=first,
            steps=calls,
            total_cost=sum(costs) if costs else None,
            cost={"unpriced": unpriced} if unpriced else {},
            started_at=started,
            completed_at=None if status == "running" else started + timedelta(milliseconds=random.randrange(10**6)),
            **dict(zip(_COUNTS, tokens, strict=True)),
        )
    )


_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def mirror(project: str = "default", foreign_id: str = "trace-1", **fields: Any) -> World:
    """A thread and a run of another system's trace, without spans yet."""
    thread = Thread(
        id=new_id(),
        project=project,
        key=f"langsmith:{foreign_id}",
        kind="trace",
        status="completed",
        state={"source": "langsmith", "foreign_id": foreign_id},
        created_at=NOW,
        updated_at=NOW,
    )
    values: dict[str, Any] = {
        "agent": "assistant",
        "role": "trace",
        "status": "completed",
        "source": "langsmith",
        "input_position": 1,
        "started_at": NOW,
        "completed_at": NOW + timedelta(seconds=10),
        **fields,
    }
    run = Run(thread_id=thread.id, sequence=1, turn=1, first_position=1, foreign_id=foreign_id, **values)
    return World([thread], [run])


def span(
    world: World, name: str, parent: UUID | None = None, *, after: float = 0, took: float = 1, **more: Any
) -> Stitch:
    """Append another span of an imported trace, at an offset in seconds."""
    run = world.runs[0]
    values: dict[str, Any] = {"type": "span", "status": "ok", "data": {"name": name, "kind": "chain"}, **more}
    stitch = Stitch(
        id=new_id(),
        thread_id=run.thread_id,
        run_id=run.id,
        position=len(world.stitches) + 1,
        parent_id=parent or run.id,
        name=name,
        at=run.started_at + timedelta(seconds=after),
        duration_ms=round(took * 1000),
        **values,
    )
    world.stitches.append(stitch)
    world.threads[0] = world.threads[0].changed(position=stitch.position)
    return stitch
