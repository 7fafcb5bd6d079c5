"""Runs for tests: two turns with tools, a retry, a failure and a child, and a run with many rows."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

from lockstitch.agents.tools.function import tool
from lockstitch.agents.tools.threads import thread_tools
from lockstitch.model import Run
from lockstitch.store import Store
from tests.engine.agents import pay, scripted
from tests.engine.threads.families import agent, child, done, family
from tests.store.worlds import mirror, span

HOSTILE = "<img src=x onerror=alert(1)><b>bold</b>"
LONG = "word " * 900

PRICES = {"scripted": {"input": 3.0, "output": 15.0, "cache_read": 0.3, "cache_write": 3.75}}


@tool(effect="safe")
async def list_charges(limit: int) -> str:
    """List charges."""
    await asyncio.sleep(0.03)
    return f"{limit} charges. {LONG}"


@tool(effect="keyed")
async def lookup_order(order: str) -> str:
    """Look up an order."""
    await asyncio.sleep(0.02)
    return f"Order {order}: {HOSTILE}"


@tool
async def broken() -> str:
    """Break."""
    raise ValueError(f"no such luck {HOSTILE}")


def _use(input: int, cached: int, output: int) -> dict[str, int]:
    return {"input_tokens": input, "cache_read_tokens": cached, "output_tokens": output}


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "input": arguments}


FIRST = [
    {
        "thinking": "Charges first, then the order.",
        "text": "I look at the charges.",
        "calls": [_call("list_charges", limit=20), _call("lookup_order", order="10482")],
        "usage": _use(4_200, 0, 120),
        "pause": 0.005,
        "chunk": 4,
    },
    {"text": f"You were charged once. {HOSTILE}", "usage": _use(5_100, 4_200, 60)},
]
SECOND = [
    {
        "thinking": "The same again, with more of them.",
        "text": "I look at the charges.",
        "calls": [_call("list_charges", limit=50), _call("lookup_order", order="10482")],
        "usage": _use(6_000, 5_100, 130),
        "pause": 0.005,
        "chunk": 4,
    },
    {
        "text": "Somebody else should see this.",
        "calls": [
            {"name": child()[0], "input": {**child("Check for fraud", agent="fraud", wait=True)[1]}},
            _call("broken"),
        ],
        "fail": "overloaded",
        "times": 1,
        "usage": _use(7_000, 6_000, 90),
    },
    {"text": f"You were charged twice. {HOSTILE}", "usage": _use(7_600, 7_000, 40)},
]


async def two_turns(store: Store) -> list[Run]:
    """Create a thread with two turns. The second turn has more steps."""
    lead = scripted(
        turns=[FIRST, SECOND],
        name="support",
        instructions="You are the support agent of Nordhem.",
        tools=[list_charges, lookup_order, broken, *thread_tools()],
        prices=PRICES,
        base_delay=0.05,
    )
    lead = family(
        lead, agent("fraud", {"text": "Fine.", **done("no fraud"), "usage": _use(900, 0, 12)}, prices=PRICES)
    ).agent(lead.name)
    await lead.run("Was I charged twice?", store=store, thread="customer-42")
    await lead.run("Look again.", store=store, thread="customer-42")
    return await store.runs("customer-42")


async def waiting(store: Store) -> Run:
    """Create a run that waits for an approval."""
    payer = scripted({"calls": [_call("pay", amount=12)]}, "Paid.", name="payer", tools=[pay])
    await payer.run("Pay 12.", store=store, thread="payment")
    return (await store.runs("payment"))[-1]


async def long_wait(store: Store) -> Run:
    """Import a trace with a call of one second, a wait of three hours, and another call of one second."""
    world = mirror(foreign_id="long-wait")
    top = span(world, "root", took=10_802)
    started_at = world.runs[0].started_at
    for place, seconds in ((2, 0), (3, 10_801)):
        values: dict[str, Any] = {
            **top.__dict__,
            "id": UUID(int=place),
            "position": place,
            "parent_id": top.id,
            "name": f"call {place}",
            "at": started_at + timedelta(seconds=seconds + 1),
            "duration_ms": 1_000,
        }
        world.stitches.append(type(top).unchecked(values))
    await world.put(store)
    return world.runs[0]


async def many(store: Store, number: int) -> Run:
    """Import a trace with a number of spans in groups of ten. Every thousandth span failed."""
    world = mirror(foreign_id="many")
    top = span(world, "root", took=number / 10)
    run = world.runs[0]
    group = top
    for place in range(2, number + 1):
        first = place % 10 == 2
        values: dict[str, Any] = {
            **top.__dict__,
            "id": UUID(int=place),
            "position": place,
            "parent_id": top.id if first else group.id,
            "name": f"group {place // 10}" if first else f"span {place}",
            "status": "error" if place % 1_000 == 0 else "ok",
            "at": run.started_at + timedelta(milliseconds=place),
            "duration_ms": 10 if first else 1,
        }
        stitch = type(top).unchecked(values)
        group = stitch if first else group
        world.stitches.append(stitch)
    await world.put(store)
    await store._backend.put([world.threads[0].changed(position=number, last_sequence=1, last_turn=1, total_runs=1)])
    return run
