"""Agents for tests of pages: they ask, wait, use frontend tools, create children, stream and fail.

All models are scripted, so tests need no network and are repeatable.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from lockstitch.agents import Agent, App, ToolContext, ToolFailed, thread_tools
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.provider import Chunk, ModelRequest, Response
from lockstitch.model import Json
from lockstitch.store import Store

PRICES: dict[str, Json] = {"scripted": {"input": 3.0, "output": 15.0}}

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@tool(effect="safe")
async def lookup_order(order_id: str) -> Json:
    """Find an order."""
    return {"order": order_id, "customer": "Ada Lindqvist", "total": 12900, "currency": "EUR"}


@tool(effect="safe")
async def list_charges(order_id: str, since: str, limit: int = 20) -> Json:
    """List the charges of an order."""
    charges = [
        {"id": f"ch_{name}", "amount": 12900, "at": at} for name, at in (("81F", "10:14:02"), ("81G", "10:14:09"))
    ]
    return {"charges": charges, "currency": "EUR"}


@tool(approval=True)
async def refund_payment(charge: str, amount: str, to: str, reason: str) -> str:
    """Refund a payment, after an approval."""
    return f"refunded {amount} of {charge}"


class Gated(Scripted):
    """A model that streams the first piece, and the rest after a signal."""

    def __init__(self, script: Any) -> None:
        super().__init__(script)
        self.gate = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        started = False
        async for part in super().stream(request):
            yield part
            if not started:
                started = True
                await self.gate.wait()


class Mail:
    """A mail server that fails on the first mail."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.dies: asyncio.Task[Any] | None = None

    async def send(self, to: str, subject: str, ctx: ToolContext) -> str:
        self.sent.append(ctx.key)
        if self.dies is not None:
            dying, self.dies = self.dies, None
            dying.cancel()
            await asyncio.sleep(60)
        return f"sent to {to}"


mail = Mail()


@tool(effect="once", on_doubt="ask")
async def send_mail(to: str, subject: str, ctx: ToolContext) -> str:
    """Send a mail. This must not happen twice."""
    return await mail.send(to, subject, ctx)


@tool(frontend=True)
def ask_address(street: str, postal_code: str, city: str = "", floor: int = 0, ring: bool = False) -> Json:
    """Ask the customer for an address, in the browser."""
    raise AssertionError("never run here")


@tool(effect="safe")
async def fetch_page(url: str) -> str:
    """Read a page."""
    if "gone" in url:
        raise ToolFailed("timeout after 3.2 s")
    return f"<h1>{url}</h1><script>document.title = 'stolen'</script>"


THREAD_TOOLS = thread_tools()

SUPPORT = [
    {
        "thinking": "Two charges seven seconds apart look like a double submit, not two orders. I should see the order "
        "and the charges before promising anything.",
        "text": "I'll look at the order and at both charges first.",
        "calls": [
            {"name": "lookup_order", "input": {"order_id": "10482"}},
            {"name": "list_charges", "input": {"order_id": "10482", "since": "2026-03-01"}},
            {
                "name": "update_tasks",
                "input": {
                    "tasks": [
                        {"description": "Find the order and its charges", "status": "completed"},
                        {"description": "Decide whether it is a duplicate", "status": "completed"},
                        {"description": "Refund the second charge", "status": "in_progress"},
                        {"description": "Change the delivery address", "status": "pending"},
                        {"description": "Write to Ada", "status": "blocked"},
                    ]
                },
            },
        ],
    },
    {
        "thinking": "Same card, same amount, one shipment: a duplicate. Policy asks for a fraud check above €100.",
        "text": "You were charged twice: `ch_81F` and `ch_81G`, **€129.00** each, seven seconds apart, for one parcel. "
        "I'm preparing the refund of the second one.\n\n- the parcel goes to the *new* address\n- see "
        "https://example.com/policy or [the rules](https://example.com/rules)\n\n```\nrefund(ch_81G)\n```",
        "calls": [
            {
                "name": "refund_payment",
                "input": {
                    "charge": "ch_81G",
                    "amount": "€129.00",
                    "to": "Visa ending 4417, Ada Lindqvist",
                    "reason": "duplicate of ch_81F",
                },
            },
            {
                "name": "send_mail",
                "input": {"to": "ada@lindqvist.example", "subject": "We are looking into your double charge"},
            },
            {"name": "ask_address", "input": {"street": "Brännkyrkagatan 14", "postal_code": "118 20"}},
            {"name": "create_thread", "input": {"goal": "Fraud check, order 10482", "agent": "fraud"}},
        ],
    },
    "Done: the second charge is on its way back, and the parcel goes to the new address.",
]

FRAUD = [
    {
        "text": "I look at the device and its past.",
        "calls": [
            {"name": "fetch_page", "input": {"url": "https://devices.example/d_55e1"}},
            {"name": "fetch_page", "input": {"url": "https://devices.example/gone"}},
        ],
    },
    "The device has been seen on 14 orders since 2024, all paid and kept. No sign of fraud.",
]

LEAD = [
    {
        "text": "I hand each supplier to a researcher.",
        "calls": [
            {"name": "create_thread", "input": {"goal": "Norrland Timber", "agent": "researcher"}},
            {"name": "create_thread", "input": {"goal": "Kestrel Polymers", "agent": "researcher"}},
            {
                "name": "create_thread",
                "input": {"goal": "Vela Coatings", "agent": "broken", "wait_for_completion": True},
            },
        ],
    },
    "Keep Norrland, renegotiate freight; Kestrel needs a certificate.",
]

RESEARCH = [
    {"text": "", "calls": [{"name": "fetch_page", "input": {"url": "https://suppliers.example"}}]},
    "Recommend: keep, renegotiate freight.",
]


def _agent(name: str, script: Any, *tools: Any, **more: Any) -> Agent:
    model = Scripted(script if isinstance(script, dict) else {"replies": script})
    return Agent(name, model=model, tools=list(tools), title=False, base_delay=0.0, prices=PRICES, **more)


ASK = next(tool for tool in THREAD_TOOLS if tool.name == "ask_for_input")
TASKS = next(tool for tool in THREAD_TOOLS if tool.name == "update_tasks")
CREATE = next(tool for tool in THREAD_TOOLS if tool.name == "create_thread")


def agents() -> list[Agent]:
    return [
        _agent(
            "support",
            SUPPORT,
            *(lookup_order, list_charges, refund_payment, send_mail, ask_address, TASKS, CREATE),
            instructions="Settle double charges within policy.",
        ),
        _agent("fraud", FRAUD, fetch_page),
        _agent(
            "legal",
            [
                {
                    "text": "One thing I cannot find out myself.",
                    "calls": [
                        {
                            "name": "ask_for_input",
                            "input": {
                                "question": "Which law should govern the lease, Scotland's or England's?",
                                "options": ["Scotland's", "England's"],
                            },
                        }
                    ],
                },
                "The lease is under the law you chose.",
            ],
            ASK,
        ),
        _agent("review-lead", LEAD, CREATE),
        _agent("researcher", RESEARCH, fetch_page),
        _agent("broken", [{"fail": "request", "message": "context of 214,880 tokens is longer than 200,000"}]),
        _agent("echo", [["You are welcome."], ["Always."]]),
        _agent(
            "mailer", [{"calls": [{"name": "send_mail", "input": {"to": "x", "subject": "y"}}]}, "Sent."], send_mail
        ),
    ]


def office(*more: Agent) -> App:
    return App([*agents(), *more])


async def in_doubt(app: App, store: Store, agent: str, text: str, key: str) -> None:
    """Create a run that was interrupted while it sent a mail."""
    task = asyncio.create_task(app.agent(agent).run(text, store=store, thread=key))
    mail.dies = task
    with suppress(asyncio.CancelledError):
        await task
    await app.agent(agent).resume(key, store=store)


async def fill(app: App, store: Store) -> None:
    """Create threads of all kinds."""
    await app.agent("review-lead").run("Review our suppliers", store=store, thread="suppliers")
    await app.agent("echo").run("Thank you", store=store, thread="thanks")
    await app.agent("broken").run("Translate the release notes to Finnish", store=store, thread="notes")
    await app.agent("broken").start(store=store, goal="Nightly triage of 214 issues", key="triage")
    await app.agent("broken").resume("triage", store=store)
    await app.agent("legal").run("Redlines for the Aldermoor lease", store=store, thread="lease")
    await support(app, store)
    await store.start("nobody-here", "Scrape competitor prices", key="prices")


async def support(app: App, store: Store, key: str = "customer-42") -> None:
    """Create a thread with a child that waits for an approval, an unknown outcome and a form."""
    text = "I was charged twice for order 10482, please send one of them back. And I have moved."
    await in_doubt(app, store, "support", text, key)
    await store.edit(key, title="Refund for order 10482, charged twice")
