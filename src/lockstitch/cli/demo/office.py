"""The app of `serve --demo`: agents with scripted models that users can look at and control.

The tools only wait. Approvals, answers and settled calls on the pages have their normal effect.
"""

from typing import Annotated, Any, Final

from pydantic import Field

from lockstitch.agents import Agent, App, ToolContext, ToolFailed, thread_tools
from lockstitch.agents.tools.function import tool
from lockstitch.apps.notebooks import Notebooks
from lockstitch.apps.prioritizer import Prioritizer
from lockstitch.cli.demo import notebook
from lockstitch.cli.demo.pace import DelayedModel, Pace
from lockstitch.cli.demo.plans import DemoEmbedder, Planner
from lockstitch.cli.demo.replies import reply

pace: Final = Pace()

_PRICES: Final = {
    "large": {"input": 3.0, "output": 15.0, "cache_read": 0.3, "cache_write": 3.75},
    "small": {"input": 1.0, "output": 5.0, "cache_read": 0.1, "cache_write": 1.25},
    "fast": {"input": 0.25, "output": 2.0, "cache_read": 0.025, "cache_write": 0.25},
}


@tool(effect="safe")
async def lookup_order(order_id: str) -> dict[str, Any]:
    """Find an order by its number."""
    await pace.take(0.1, 0.4)
    return {"order": order_id, "customer": "Ada Lindqvist", "total": "€129.00", "parcels": 1, "status": "packed"}


@tool(effect="safe")
async def list_charges(order_id: str, since: str = "", limit: int = 50) -> dict[str, Any]:
    """List what a customer was charged for an order."""
    await pace.take(0.4, 0.9)
    charges = [
        {"id": "ch_81F", "amount": 12900, "at": "10:14:02"},
        {"id": "ch_81G", "amount": 12900, "at": "10:14:09"},
    ]
    return {"charges": charges, "currency": "EUR"}


@tool(effect="once", approval=True)
async def refund_payment(charge: str, amount: str, to: str, reason: str) -> str:
    """Send a charge back. A person agrees to each."""
    await pace.take(0.6, 1.2)
    return f"refunded {amount}, re_5521"


@tool(frontend=True)
async def ask_address(
    street: Annotated[str, Field(description="Street and number")] = "",
    postal_code: str = "",
    city: str = "",
    reason: str = "",
) -> str:
    """Ask the customer for an address with a form in the page."""
    raise AssertionError("a browser executes it")


@tool(frontend=True)
async def collect_bank_details(person: str, iban: str = "", holder: str = "") -> str:
    """Ask a person for bank details with a form in the page."""
    raise AssertionError("a browser executes it")


@tool(effect="safe")
async def score_device(device: str) -> dict[str, Any]:
    """Return a score from 0 to 1 for how trustworthy a device is."""
    await pace.take(0.3, 0.8)
    return {"device": device, "score": 0.97, "orders": 14}


@tool(effect="safe")
async def ip_history(ip: str) -> str:
    """Return where an IP address was seen."""
    await pace.take(2.8, 3.4)
    raise ToolFailed("The history did not answer within 3 s.")


@tool(effect="keyed")
async def order_certificate(name: str) -> str:
    """Order a certificate with an idempotency key."""
    await pace.take(0.8, 1.5)
    return f"ordered for {name}"


@tool(effect="once", on_doubt="ask")
async def dns_update(record: str, value: str) -> str:
    """Change a record of a zone."""
    await pace.take(0.5, 1.0)
    return f"{record} is set"


@tool(effect="safe")
async def read_document(name: str) -> str:
    """Read a document."""
    await pace.take(0.2, 0.6)
    return f"{name}: 38 pages, 14,210 words."


@tool(effect="once")
async def write_document(name: str, words: int, ctx: ToolContext) -> str:
    """Write and store a document."""
    await pace.take(0.8, 2.0)
    return f"{name} has {words} words."


@tool(effect="once")
async def make_account(name: str, team: str) -> str:
    """Create an account for a person."""
    await pace.take(0.5, 1.0)
    return f"{name} is in {team}."


@tool(effect="safe")
async def web_search(query: str) -> str:
    """Search the web."""
    await pace.take(0.8, 3.8)
    return f"Nine pages about {query}."


@tool(effect="safe")
async def fetch_page(url: str) -> str:
    """Read a page of the web."""
    await pace.take(0.5, 3.0)
    return f"{url}: 12 filings, the last of February."


@tool(effect="keyed")
async def label_issue(number: int, label: str) -> str:
    """Put a label on an issue."""
    await pace.take(0.4, 1.4)
    return f"#{number} is labelled {label}"


def _agent(name: str, model: str, instructions: str, *tools: Any) -> Agent:
    return Agent(
        name,
        model=DelayedModel(model, reply, pace),
        instructions=instructions,
        tools=tools,
        prices={model: _PRICES[model]},
        title=False,
        base_delay=0.05,
    )


app: Final = App(
    [
        _agent(
            "support",
            "large",
            "You help customers of a shop. Refunds above €100 need a fraud check and an approval.",
            *(lookup_order, list_charges, refund_payment, ask_address, write_document, *thread_tools()),
        ),
        _agent("fraud", "small", "You check orders for fraud.", score_device, ip_history),
        _agent("infra", "large", "You keep certificates and zones in order.", order_certificate, dns_update),
        _agent("legal", "large", "You read contracts.", read_document, *thread_tools()),
        _agent("people", "small", "You help new colleagues.", make_account, collect_bank_details),
        _agent("review-lead", "large", "You split reviews and put them together.", *thread_tools()),
        _agent("researcher", "small", "You research one supplier.", web_search, fetch_page, *thread_tools()),
        _agent("translate", "fast", "You translate.", read_document),
        _agent("writer", "large", "You write.", web_search, write_document, *thread_tools()),
        _agent("triage", "fast", "You read issues.", label_issue, *thread_tools()),
        _agent("watcher", "fast", "You watch tables.", *thread_tools()),
    ],
    plugins=[
        Notebooks(model=DelayedModel("large", notebook.reply, pace, haste=2.5), prices={"large": _PRICES["large"]}),
        # With all sessions stored, a user who plans again sees both plans.
        Prioritizer(
            model=Planner(pace),
            embedder=DemoEmbedder(pace),
            sessions="all",
            prices={"large": _PRICES["large"]},
        ),
    ],
)
