"""Finding: texts anywhere in the project, and what went wrong lately."""

from typing import Annotated

from fastapi import APIRouter, Query

from lockstitch.server.access import Reader
from lockstitch.server.api import shapes
from lockstitch.server.api.answers import Exact, rows
from lockstitch.server.api.parameters import Limit, Plain, Since

search_router = APIRouter(prefix="/api", tags=["finding"], default_response_class=Exact)


@search_router.get("/search", response_model=list[shapes.Hit])
async def search(
    caller: Reader,
    q: Annotated[Plain, Query(min_length=1, max_length=1000, description="Every word must be there.")],
    limit: Limit = 20,
) -> Exact:
    """Where the words stand: in titles, in what was asked and what was answered. The best first."""
    hits = await caller.store.search(q, limit=limit)
    heads = {hit.thread_id: await caller.store.thread(hit.thread_id) for hit in hits}
    return Exact(
        [
            {
                "thread_id": str(hit.thread_id),
                "position": hit.position,
                "score": hit.score,
                "key": heads[hit.thread_id].key,
                "title": heads[hit.thread_id].title,
            }
            for hit in hits
        ]
    )


@search_router.get("/errors", response_model=list[shapes.Stitch])
async def errors(caller: Reader, since: Since = None, limit: Limit = 50) -> Exact:
    """The latest errors of all threads, the newest first."""
    return Exact(rows(await caller.store.errors(limit=limit, since=since)))
