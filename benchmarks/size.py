"""Bytes on disk compared with the bytes of the messages, by table and index."""

import sqlite3
from contextlib import closing
from typing import Any

import psycopg

from benchmarks.places import SQL, Places, sqlite_path
from benchmarks.prose import Prose
from benchmarks.report import Measured, Row, at_most
from benchmarks.scale import Scale
from benchmarks.workload import Agent as Writer
from benchmarks.workload import steps
from lockstitch import Agent
from lockstitch.model import Entry, Json, NextMessageWait, codec
from lockstitch.model.message import reference
from lockstitch.store import Store, open_store
from lockstitch.testing import Scripted

BACKENDS = SQL

LENGTH = 1000
"""Characters of a question and of an answer: 400 turns of them are 0.8 MB."""

CHATS = {"turns of a chat": (150, 900), "short turns": (40, 80)}
"""Characters of a question and of an answer. No aim: the less text, the larger is the share of rows and indexes."""

BRIEF = 3
"""Turns of each thread in a store of many threads."""

UNIFORM = {600: 2.0, 1024: 1.5, 2048: 1.5}
"""Bytes of each message of a log, and the aim."""

PEER = "LangGraph keeps 400 such turns in 483 MB: a peer, measured earlier"

_SQLITE_SIZES = "SELECT name, sum(pgsize) FROM dbstat GROUP BY name"
_POSTGRES_SIZES = """SELECT coalesce(owner.relname || ' (toast)', c.relname), pg_relation_size(c.oid)
FROM pg_class c
LEFT JOIN pg_class owner ON owner.reltoastrelid = c.oid
LEFT JOIN pg_index i ON i.indexrelid = c.oid
LEFT JOIN pg_class toast ON toast.oid = i.indrelid AND toast.relkind = 't'
WHERE c.relkind IN ('r', 'i', 't') AND toast.oid IS NULL
  AND coalesce(owner.relnamespace, c.relnamespace) = 'lockstitch'::regnamespace"""
_POSTGRES_TOTAL = """SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
WHERE c.relkind = 'r' AND c.relnamespace = 'lockstitch'::regnamespace"""

Sizes = dict[str, int]


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    rows: list[Row] = []
    notes = [PEER]

    async def count(name: str, aim: float | None, fill: Any, *arguments: Any) -> None:
        total, content, parts = await on_disk(places, backend, fill, *arguments)
        rows.append(Row(f"bytes of {name}", backend, total, "bytes", content, None if aim is None else at_most(aim)))
        notes.append(f"{backend}, {name}: {_breakdown(parts, content)}")

    await count(f"{scale.turns} turns of 1 KB + 1 KB", 1.5, _conversation, scale.turns, False)
    await count(f"{scale.turns} turns with request and cost", 1.5, _conversation, scale.turns, True)
    for size, aim in UNIFORM.items():
        await count(f"a tool loop in {size} B", aim, _loop, scale.stitches, size)
    for name, lengths in CHATS.items():
        await count(f"{scale.turns} {name}", None, talk, scale.turns, lengths)
    threads = max(scale.turns // BRIEF, 1)
    await count(f"{threads} threads of {BRIEF} turns", None, talk, BRIEF, CHATS["turns of a chat"], threads)
    return Measured(rows, notes)


async def on_disk(places: Places, backend: str, fill: Any, *arguments: Any) -> tuple[int, int, Sizes]:
    """Return the bytes that filling added to an empty store, the bytes of the messages, and the parts."""
    sizes = _sqlite_sizes if backend == "sqlite" else _postgres_sizes
    with places.fresh(backend) as url:
        async with open_store(url):
            pass
        empty_total, empty = sizes(url)
        async with open_store(url) as store:
            content = await fill(store, *arguments)
        total, full = sizes(url)
    parts = {name: bytes_ - empty.get(name, 0) for name, bytes_ in full.items()}
    return total - empty_total, content, parts


async def talk(store: Store, turns: int, lengths: tuple[int, int] = (LENGTH, LENGTH), threads: int = 1) -> int:
    """Run conversations with `agent.run`. Return the bytes of their messages."""
    prose = Prose(3)
    question, answer = lengths
    usage = {"input_tokens": 900, "output_tokens": 250}
    model = Scripted([[{"text": prose.take(answer), "usage": usage}] for _ in range(threads * turns)])
    agent = Agent("bench", model=model, instructions="Answer.", title=False)
    content = 0
    for number in range(threads):
        for _ in range(turns):
            await agent.run(prose.take(question), store=store, thread=f"talk-{number}")
        content += sum(len(codec.dumps(message)) for message in await store.context(f"talk-{number}"))
    return content


async def _conversation(store: Store, turns: int, detailed: bool) -> int:
    """Write questions and answers without tools: two commits per turn."""
    prose = Prose(3)
    head = await store.create()
    content = 0
    for _ in range(turns):
        run = store.new_run(head, input_position=head.position + 1, model="claude-sonnet-4-5", provider="anthropic")
        question: Json = {"role": "user", "content": prose.take(LENGTH)}
        answer: Json = {"role": "assistant", "content": [{"type": "text", "text": prose.take(LENGTH)}]}
        content += len(codec.dumps(question)) + len(codec.dumps(answer))
        input_entry = Entry(type="input", run_id=run.id, step_number=0, message=question)
        head = (await store.append(head, [input_entry], new_runs=[run])).head
        response_entry = Entry(
            type="llm_call",
            run_id=run.id,
            step_number=1,
            status="end_turn",
            message=answer,
            data=_request(answer) if detailed else {},
            input_tokens=250,
            output_tokens=250,
            duration_ms=1800,
        )
        now = store.clock.now()
        final_fields: Json = {
            "status": "completed",
            "stop_reason": "end_turn",
            "output_position": head.position + 1,
            "completed_at": now,
            "steps": 1,
            "input_tokens": 250,
            "output_tokens": 250,
            **(_cost() if detailed else {}),
        }
        waiting_fields = {"status": "waiting", "waiting_for": [NextMessageWait(now).as_json()]}
        head = (
            await store.append(head, [response_entry], fields=waiting_fields, run_updates=[(run, final_fields)])
        ).head
    return content


async def _loop(store: Store, stitches: int, size: int) -> int:
    writer = await Writer.start(store)
    await writer.append(stitches, size)
    bodies = steps(size)
    return sum(len(bodies[place % len(bodies)].text) for place in range(stitches))


def _request(message: Json) -> Json:
    """Return the data about a request. The engine stores it in two parts: one with the run, one with each answer."""
    parameters = {"model": "claude-sonnet-4-5", "max_tokens": 4096, "temperature": 1.0}
    return {"request": reference(parameters, codec.digest("system"), codec.digest("tools"), message)}


def _cost() -> Json:
    parts = {"input_cost": 0.00075, "output_cost": 0.00375, "source": "genai-prices", "version": "0.0.40"}
    return {"cost": {**parts, "total_cost": 0.0045}, "total_cost": 0.0045}


def _sqlite_sizes(url: str) -> tuple[int, Sizes]:
    with closing(sqlite3.connect(sqlite_path(url))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        try:
            parts = dict(connection.execute(_SQLITE_SIZES).fetchall())
        except sqlite3.OperationalError:
            # Some builds of SQLite have no dbstat.
            parts = {}
    return pages * size, parts


def _postgres_sizes(url: str) -> tuple[int, Sizes]:
    with psycopg.connect(url) as connection:
        row = connection.execute(_POSTGRES_TOTAL).fetchone()
        parts = dict(connection.execute(_POSTGRES_SIZES).fetchall())
    return int(row[0]) if row else 0, parts


def _breakdown(parts: Sizes, content: int) -> str:
    """Return the largest parts as shares of the content."""
    largest = sorted(parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {bytes_ / content:.3f}" for name, bytes_ in largest if bytes_ > content * 0.002)
