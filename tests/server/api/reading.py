"""Reading server-sent events in tests."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx2

from lockstitch.model import codec


class Event(NamedTuple):
    type: str
    data: Any
    id: int | None


async def events(
    http: httpx2.AsyncClient, path: str, *, method: str = "GET", after: int | None = None, **more: Any
) -> AsyncIterator[Event]:
    """Yield the events of a stream until it ends, as a browser does."""
    headers = {"Accept": "text/event-stream", **({} if after is None else {"Last-Event-ID": str(after)})}
    async with http.stream(method, path, headers=headers, **more) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if line.startswith(":"):
                continue
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                yield Event(
                    fields.get("event", "message"),
                    fields["data"] if fields["data"] == "[DONE]" else codec.loads(fields["data"]),
                    int(fields["id"]) if "id" in fields else None,
                )
                fields = {}
