"""The time from the kill of a holder until another process holds the thread, and until its agent continues."""

import time

from benchmarks.crew import Member
from benchmarks.places import ALL, Places
from benchmarks.report import Measured, Row, within
from benchmarks.scale import Scale

BACKENDS = ALL

AIM = 2.0


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    with places.fresh(backend) as url:
        claimed = [await _kill(url, "hold", "take_over") for _ in range(scale.kills)]
        resumed = [await _kill(url, "execute", "resume") for _ in range(scale.kills)]
    rows = [
        Row("claimed after kill -9, worst", backend, max(claimed), "s", aim=within(AIM)),
        Row("next step after kill -9, worst", backend, max(resumed), "s", aim=within(AIM)),
    ]
    return Measured(rows)


async def _kill(url: str, first: str, second: str) -> float:
    """Return the seconds from the kill of one process to the report of the other, including opening the store."""
    holder = await Member.start(first, url)
    successor = await Member.start(second, url)
    try:
        thread = await holder.line()
        await successor.line()
        killed = time.monotonic()
        holder.kill()
        await successor.tell(thread)
        return float(await successor.line()) - killed
    finally:
        await holder.end()
        await successor.end()
