"""The protocol of Langfuse clients: spans over OTLP, scores, and the routes that check the connection."""

import asyncio
from typing import Any, Final, NoReturn

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from lockstitch.errors import Refused
from lockstitch.integrations.body_reader import OTEL, SCORES
from lockstitch.integrations.langfuse import feedback_of
from lockstitch.integrations.otel.values import as_json, as_list, as_text, loads
from lockstitch.integrations.spans.values import storable
from lockstitch.model import Json, codec
from lockstitch.server.api import responses
from lockstitch.server.auth import Caller, Ingester
from lockstitch.server.ingest.accept import accept, body_of
from lockstitch.server.ingest.otlp import EXPORTED, answer
from lockstitch.server.problems import Problem
from lockstitch.server.routing import LazyRouter
from lockstitch.version import VERSION

router = LazyRouter(prefix="/api/public", tags=["langfuse"])

_SCORE: Final = "score-create"
_LARGEST: Final = 4 << 20
"""Maximum bytes of a request with scores. The clients send at most 1 MB."""
_SCORES_TAKEN: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "One score is stored.", "model": responses.ScoresTaken},
    207: {"description": "Some scores were rejected.", "model": responses.ScoresRejected},
}
_METHODS: Final = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@router.post("/otel/v1/traces", responses=EXPORTED, response_class=JSONResponse)
async def traces(request: Request, caller: Ingester) -> Response:
    """Accept the spans of a Langfuse client."""
    return answer(request, await accept(request, caller, OTEL))


@router.post("/scores", status_code=202, response_model=responses.ScoresTaken, responses=_SCORES_TAKEN)
async def scores(request: Request, caller: Ingester) -> JSONResponse:
    """Accept a list of scores, or one score. They become feedback.

    A list is answered with 202, or with 207 and the errors if some scores were rejected. One score is answered with its
    id.
    """
    document = await _document(request, caller)
    if isinstance(document, dict):
        score = as_json(document)
        score.setdefault("id", codec.digest(score))
        feedback_of(score)
        await _store(caller, [score])
        return JSONResponse({"id": score["id"]})
    accepted, errors = await asyncio.to_thread(_sorted, as_list(document))
    await _store(caller, accepted)
    if not errors:
        return JSONResponse({"message": "Accepted"}, 202)
    messages = [{"message": message} for message in errors.values()]
    return JSONResponse({"accepted": len(accepted), "rejected": len(errors), "errors": messages}, 207)


@router.post("/ingestion", status_code=207, response_model=responses.EventsTaken)
async def events(request: Request, caller: Ingester) -> JSONResponse:
    """Accept the scores of a batch of events. Each event is answered separately."""
    document = as_json(await _document(request, caller))
    batch = [as_json(event) for event in as_list(document.get("batch"))]
    known = [event for event in batch if event.get("type") == _SCORE]
    bodies = [as_json(event.get("body")) for event in known]
    accepted, rejected = await asyncio.to_thread(_sorted, bodies)
    await _store(caller, accepted)
    successes: list[Json] = []
    errors: list[Json] = []
    for place, event in enumerate(known):
        if (message := rejected.get(place)) is None:
            successes.append({"id": _id(event), "status": 201})
        else:
            errors.append({"id": _id(event), "status": 400, "message": message})
    errors += [
        {"id": _id(event), "status": 501, "message": f"Events of type {event.get('type')} are not supported. {_HINT}"}
        for event in batch
        if event.get("type") != _SCORE
    ]
    return JSONResponse({"successes": successes, "errors": errors}, 207)


@router.get("/health", response_model=responses.LangfuseHealth)
async def health() -> JSONResponse:
    """Return the version and the status of this server."""
    return JSONResponse({"version": VERSION, "status": "OK"})


@router.get("/projects", response_model=responses.LangfuseProjects)
async def projects(caller: Ingester) -> JSONResponse:
    """Return the project of the caller. `auth_check()` of the SDK needs it."""
    project: Json = {"id": caller.project, "name": caller.project, "metadata": {}}
    return JSONResponse({"data": [{**project, "organization": {"id": "lockstitch", "name": "Lockstitch"}}]})


_HINT: Final = "This server accepts spans (POST /api/public/otel/v1/traces) and scores of Langfuse clients."


async def unserved(request: Request) -> NoReturn:
    """Raise a problem 501 for an unsupported route of Langfuse."""
    raise Problem(501, "Not supported", f"{request.method} {request.url.path} is not supported. {_HINT}")


def unsupported_router() -> APIRouter:
    unsupported = LazyRouter(include_in_schema=False)
    unsupported.add_route("/api/public/{path:path}", unserved, methods=_METHODS)
    return unsupported


async def _document(request: Request, caller: Caller) -> Any:
    body = await body_of(request, caller)
    if len(body) > _LARGEST:
        raise Problem(413, "Too large", f"A request with scores has at most {_LARGEST:,} bytes.")
    try:
        return await asyncio.to_thread(lambda: storable(loads(body)))
    except ValueError as exc:
        raise Problem(400, "Not JSON", f"Nothing was stored: {exc}") from exc


def _sorted(scores: list[Any]) -> tuple[list[Json], dict[int, str]]:
    """Return the valid scores, and the errors of the invalid scores by their place."""
    accepted: list[Json] = []
    errors: dict[int, str] = {}
    for place, score in enumerate(map(as_json, scores)):
        try:
            feedback_of(score)
        except Refused as exc:
            errors[place] = str(exc)
        else:
            accepted.append(score)
    return accepted, errors


async def _store(caller: Caller, scores: list[Json]) -> None:
    if scores:
        await caller.state.intake.put(caller.project, OTEL, {"path": SCORES}, codec.dumps(scores))


def _id(event: Json) -> str:
    return as_text(event.get("id")) or ""
