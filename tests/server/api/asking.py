"""Requests of tests to a server: runs that wait, and responses that must succeed."""

import asyncio
from typing import Any

import httpx2

from lockstitch.model import codec


async def run(http: httpx2.AsyncClient, agent: str, text: str = "Hello", **more: object) -> dict[str, Any]:
    answer = await http.post(f"/api/agents/{agent}/runs", json={"input": text, "wait": True, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def get(http: httpx2.AsyncClient, path: str, **parameters: object) -> Any:
    answer = await http.get(path, params={key: str(value) for key, value in parameters.items()} or None)
    assert answer.status_code == 200, answer.text
    return codec.loads(answer.content)


async def result(http: httpx2.AsyncClient, run_id: object) -> dict[str, Any]:
    """Return the result of a run when it has ended."""
    async with asyncio.timeout(60):
        while True:
            outcome = await get(http, f"/api/runs/{run_id}/result")
            if outcome["status"] in ("completed", "failed", "cancelled"):
                return outcome
            await asyncio.sleep(0.02)
