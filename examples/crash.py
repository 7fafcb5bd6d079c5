"""Kill an agent during a payment, and resume it in another process.

    python examples/crash.py

The first process is killed with SIGKILL after the bank has the payment and before the tool returns. The second process
does not pay again. The tool has the effect `once`, so the call is in doubt and the thread waits. This file looks at the
bank and settles the call.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from lockstitch import Agent, open_store, settle, tool
from lockstitch.testing import Scripted


@tool(effect="once", on_doubt="ask")
def pay(euros: int) -> str:
    """Pay a sum."""
    with open("bank.txt", "a") as bank:
        bank.write(f"paid {euros} euros\n")
    os.kill(os.getpid(), signal.SIGKILL)  # the power fails
    return "paid"


FILE = Path(__file__).resolve()
SCRIPT = [{"calls": [{"name": "pay", "input": {"euros": 42}}]}, "The invoice is paid."]

clerk = Agent("clerk", model=Scripted(SCRIPT), tools=[pay], title=False)


async def first() -> None:
    async with open_store("sqlite:///agents.db") as store:
        await clerk.run("Pay the invoice", store=store, thread="invoice-1")


async def second() -> None:
    async with open_store("sqlite:///agents.db") as store:
        waiting = await clerk.resume("invoice-1", store=store)
        assert waiting is not None  # None: the thread has no interrupted run
        print(f"after the crash: {waiting.status}, in doubt: {waiting.in_doubt[0]['name']}")

        bank = Path("bank.txt").read_text().strip()
        await settle(store, "invoice-1", waiting.in_doubt[0]["call_id"], done=bank)
        result = await clerk.resume("invoice-1", store=store)
        assert result is not None
        print(f"{result.status}: {result.output_text}")
        print(f"the bank: {bank}")


if __name__ == "__main__":
    if "first" in sys.argv:
        asyncio.run(first())
    else:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            killed = subprocess.run([sys.executable, FILE, "first"], check=False)
            print(f"the first process ended with signal {-killed.returncode}")
            asyncio.run(second())
