"""The SQL page: a lens, a query, its result. Queries see all projects, so they need the admin scope and are audited."""

import time
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Depends, Form, Query, Request
from starlette.responses import HTMLResponse, Response

from lockstitch.errors import NotFound, Refused
from lockstitch.lenses import catalog
from lockstitch.model import as_id, codec
from lockstitch.server.api.search import ask
from lockstitch.server.auth import Admin, Caller, Reader, check_form
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.pages.common.render import base_path, is_htmx_request, redirect_to, render_page
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.pages.sql import result
from lockstitch.server.pages.sql.result import QueryError, explain_query_error
from lockstitch.server.pages.sql.schema import RECORD, Schema, examples, filled, schema_of
from lockstitch.server.problems import Problem
from lockstitch.store import QueryResult

router = page_router()

LENSES: Final = (RECORD, *catalog.NAMES)
_LONGEST: Final = 100_000
_LONGEST_ADDRESS: Final = 8_000
"""Maximum length of a query in the address of the page. Servers and proxies refuse longer ones."""
_EXPLAIN: Final = {"sqlite": "EXPLAIN QUERY PLAN ", "postgres": "EXPLAIN "}

Text = Annotated[str, Form(alias="q", max_length=_LONGEST)]
Lens = Annotated[str, Form(max_length=40)]


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """A query with its result or error."""

    lens: str
    query: str
    answer: QueryResult | None = None
    milliseconds: float = 0.0
    complaint: QueryError | None = None


@router.get("/sql", name="sql")
async def sql(
    request: Request,
    caller: Admin,
    lens: Annotated[str, Query(max_length=40)] = RECORD,
    query: Annotated[str, Query(alias="q", max_length=_LONGEST)] = "",
    example: Annotated[int | None, Query(ge=0)] = None,
) -> HTMLResponse:
    """Render the editor. A query in the URL is shown and not run: the user decides."""
    schema = await schema_of(caller, _lens(lens))
    known = examples(lens, schema.dialect)
    chosen = example if example is not None and example < len(known) else None if query else 0
    text = query if chosen is None else await filled(caller, known[chosen].sql)
    return _bench(request, caller, schema, QueryOutcome(lens, text.rstrip("\n")), chosen)


@router.post("/sql", dependencies=[Depends(check_form)])
async def run(
    request: Request,
    caller: Admin,
    query: Text = "",
    lens: Lens = RECORD,
    act: Annotated[str, Form(max_length=10)] = "run",
) -> HTMLResponse:
    schema = await schema_of(caller, _lens(lens))
    query_outcome = await _ask(caller, schema, lens, query, explain=act == "explain")
    if is_htmx_request(request):
        shown = _result(caller, query_outcome)
        response = render_page(request, caller, "sql/result.html", **shown)
        if len(shown["address"]) <= _LONGEST_ADDRESS:
            response.headers["HX-Replace-Url"] = f"{base_path(request)}/sql?{shown['address']}"
        return response
    return _bench(request, caller, schema, query_outcome, None)


@router.post("/sql/download", dependencies=[Depends(check_form)])
async def download(
    caller: Admin, form: Annotated[str, Form(alias="as", max_length=10)], query: Text = "", lens: Lens = RECORD
) -> Response:
    """Download the result. The query runs again, because results are not stored."""
    if form not in result.FORMS:
        raise Problem(422, "Refused", f"The format {form!r} is not valid. Use one of: {', '.join(result.FORMS)}.")
    schema = await schema_of(caller, _lens(lens))
    query_outcome = await _ask(caller, schema, lens, query, explain=False)
    if query_outcome.answer is None:
        assert query_outcome.complaint is not None
        raise Problem(422, "Refused", query_outcome.complaint.message)
    write, media_type = result.FORMS[form]
    ending = "md" if form == "markdown" else form
    headers = {"Content-Disposition": f'attachment; filename="{lens}.{ending}"'}
    return Response(write(query_outcome.answer), media_type=f"{media_type}; charset=utf-8", headers=headers)


@router.get("/go/{ref}", name="go")
async def go(request: Request, caller: Reader, ref: str) -> Response:
    """Redirect to the thread, run or stitch with this id in the caller's project."""
    wanted = as_id(ref)
    if wanted is None:
        raise Problem(404, "NotFound", f"{ref} is not an id.")
    for path in (_thread, _run, _stitch):
        try:
            return redirect_to(request, await path(caller, str(wanted)))
        except NotFound:
            continue
    raise Problem(404, "NotFound", f"Project {caller.project} has no thread, run or stitch {wanted}.")


async def _thread(caller: Caller, ref: str) -> str:
    return f"/threads/{(await caller.store.thread(ref)).id}"


async def _run(caller: Caller, ref: str) -> str:
    return f"/run/{(await caller.store.run(ref)).id}"


async def _stitch(caller: Caller, ref: str) -> str:
    stitch = await caller.store.stitch(ref)
    return f"/threads/{stitch.thread_id}#p{stitch.position}"


async def _ask(caller: Caller, schema: Schema, lens: str, query: str, *, explain: bool) -> QueryOutcome:
    text = codec.check_text(query, "The query").replace("\r\n", "\n")
    add_log_fields(lens=lens)
    if not text.strip():
        return QueryOutcome(lens, text, complaint=QueryError("The query is empty. Write a SELECT."))
    sent = text
    if explain and not text.lstrip().lower().startswith("explain"):
        sent = _EXPLAIN[schema.dialect] + text
    began = time.perf_counter()
    try:
        answer = await ask(caller, sent, None if lens == RECORD else lens)
    except Refused as exc:
        names = {table: [column.name for column in columns] for table, columns in schema.tables.items()}
        return QueryOutcome(lens, text, complaint=explain_query_error(str(exc), text, names))
    return QueryOutcome(lens, text, answer, (time.perf_counter() - began) * 1000)


def _bench(
    request: Request, caller: Caller, schema: Schema, query_outcome: QueryOutcome, chosen: int | None
) -> HTMLResponse:
    return render_page(
        request,
        caller,
        "sql/sql.html",
        status=422 if query_outcome.complaint else 200,
        lenses=[(name, _says(name)) for name in LENSES],
        schema=schema,
        examples=examples(query_outcome.lens, schema.dialect),
        chosen=chosen,
        settings=caller.state.settings,
        **_result(caller, query_outcome),
    )


def _result(caller: Caller, query_outcome: QueryOutcome) -> dict[str, Any]:
    return {
        "asked": query_outcome,
        "shown": None if query_outcome.answer is None else result.table(query_outcome.answer),
        "limit": caller.state.settings.sql_rows,
        "address": urlencode({"lens": query_outcome.lens, "q": query_outcome.query}),
        "mended": urlencode({"lens": query_outcome.lens, "q": query_outcome.complaint.mended})
        if query_outcome.complaint
        else "",
    }


def _says(lens: str) -> str:
    if lens == RECORD:
        return "the record itself"
    tables = catalog.tables(lens)
    return ", ".join(tables) if len(tables) <= 3 else f"{tables[0]} and {len(tables) - 1} more"


def _lens(name: str) -> str:
    return name if name == RECORD else catalog.check(name)
