"""SQL over the record or a lens of it. It cannot write, but it sees all projects: it is for admins alone, and noted."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from lockstitch import lenses
from lockstitch.backend import Answer
from lockstitch.records.cells import plain
from lockstitch.server.access import Admin, Caller
from lockstitch.server.api import shapes
from lockstitch.server.api.answers import Exact
from lockstitch.server.api.parameters import Body, Plain

sql_router = APIRouter(prefix="/api/sql", tags=["sql"], default_response_class=Exact)

Lens = Literal["three_table", "reasoning", "langsmith", "agentic_threads", "agno"]
assert set(lenses.NAMES) == set(Lens.__args__)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]

_LONGEST = 100_000


class Question(Body):
    """One SELECT, over the core tables or those of a lens."""

    query: Annotated[Plain, Field(min_length=1, max_length=_LONGEST)]
    lens: Lens | None = None
    limit: Annotated[int, Field(ge=1)] | None = None


@sql_router.get("", response_model=shapes.Cells)
async def sql(
    caller: Admin,
    q: Annotated[Plain, Query(min_length=1, max_length=_LONGEST)],
    lens: Annotated[Lens | None, Query()] = None,
    limit: Annotated[int | None, Query(ge=1)] = None,
) -> Exact:
    """Ask the record in SQL. All projects are seen."""
    return as_answer(await ask(caller, q, lens, limit))


@sql_router.post("", response_model=shapes.Cells)
async def ask_sql(caller: Admin, question: Question) -> Exact:
    """The same, for questions that are too long for an address."""
    return as_answer(await ask(caller, question.query, question.lens, question.limit))


async def ask(caller: Caller, query: str, lens: str | None = None, limit: int | None = None) -> Answer:
    """One statement within the server's limits, noted before it is asked."""
    settings = caller.house.settings
    await caller.store.audits.note(caller.actor, "sql", lens or "record", query=query)
    most = settings.sql_rows if limit is None else min(limit, settings.sql_rows)
    return await caller.store.sql(query, limit=most, seconds=settings.sql_seconds, lens=lens, force=settings.sql_force)


def as_answer(answer: Answer) -> Exact:
    rows = [[plain(value) for value in row] for row in answer.rows]
    return Exact({"columns": answer.columns, "rows": rows, "more": answer.more})
