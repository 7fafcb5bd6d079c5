"""Who may: every request becomes a caller with a project and scopes, or is turned away.

The project comes from the token. Without tokens, which is for one person on their own machine, whoever asks names it.
Routes say what they need in their signature (`Reader`, `Writer`, `Ingester`, `Admin`, and `Actor` for forms of pages),
and get the store as it is seen from the caller's project: there is no other way to a store in a route.
"""

import hmac
import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from lockstitch.agents import App
from lockstitch.model import codec
from lockstitch.server.problems import Problem
from lockstitch.server.state import ServerState, server_state
from lockstitch.store import Store
from lockstitch.store.tables import SCOPES

TOKEN_COOKIE: Final = "lockstitch_token"
PROJECT_COOKIE: Final = "lockstitch_project"
CSRF_COOKIE: Final = "lockstitch_csrf"
PROJECT_HEADER: Final = "lockstitch-project"

_REALM: Final = {"WWW-Authenticate": 'Bearer realm="lockstitch"'}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and the store as they may see it."""

    state: ServerState
    store: Store
    actor: str
    scopes: frozenset[str]

    @property
    def project(self) -> str:
        return self.store.project

    @property
    def app(self) -> App:
        """The code of the agents, for what cannot be done without."""
        if self.state.app is None:
            raise Problem(409, "No agents here", "This server was started without code of agents: name it with --app.")
        return self.state.app

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes


async def caller_of(connection: HTTPConnection) -> Caller:
    """The caller of a request. Problem 401 when they must show a token and show none that is good."""
    house = server_state(connection)
    secret = _secret(connection)
    token = await house.store.tokens.find(secret) if secret else None
    if token is not None:
        return Caller(house, house.store.in_project(token.project), token.name, frozenset(token.scopes))
    if house.settings.tokens_needed:
        said = "This token opens nothing: it is unknown, revoked or expired." if secret else "A token is needed."
        raise Problem(401, "Not let in", f"{said} `lockstitch token create` makes one.", headers=_REALM)
    # Whatever key a client sends by habit is no token of ours, and none is needed.
    return Caller(house, house.store.in_project(_project(connection, house)), "local", frozenset(SCOPES))


def need(scope: str) -> Any:
    """A dependency that lets in callers with this scope."""

    async def caller(request: Request) -> Caller:
        found = await caller_of(request)
        if not found.may(scope):
            raise Problem(403, "Not allowed", f"This token has {_listed(found)}; this needs {scope}.")
        return found

    caller.scope_needed = scope  # type: ignore[attr-defined]
    return Depends(caller)


async def _act(request: Request) -> Caller:
    """Whoever sends a form of a page: with the scope, and with the proof that the form came from here."""
    found = await caller_of(request)
    if not found.may("write"):
        raise Problem(403, "Not allowed", f"This token has {_listed(found)}; this needs write.")
    await check_form(request)
    return found


async def check_form(request: Request) -> None:
    """Refuse a form that was not made by one of our pages for this browser."""
    kept = request.cookies.get(CSRF_COOKIE, "")
    given = request.headers.get("x-csrf-token", "") or str((await request.form()).get("csrf", ""))
    if not kept or not hmac.compare_digest(kept.encode(), given.encode()):
        raise Problem(403, "Not from here", "This form was not made by this server's pages. Load the page again.")


def plugin_of(kind: type[Any]) -> Any:
    """A dependency that gives the application of this kind: `application: Annotated[Planner, the(Planner)]`."""

    async def application(request: Request) -> Any:
        app = server_state(request).app
        assert app is not None, "Only an app's own routes ask for its applications."
        return app.plugin(kind)

    return Depends(application)


def csrf_of(request: Request) -> str:
    """The value that forms of this browser carry; made with its first page."""
    return request.cookies.get(CSRF_COOKIE) or secrets.token_urlsafe(24)


Reader = Annotated[Caller, need("read")]
Writer = Annotated[Caller, need("write")]
Ingester = Annotated[Caller, need("ingest")]
Admin = Annotated[Caller, need("admin")]
FormWriter = Annotated[Caller, Depends(_act)]


def _secret(connection: HTTPConnection) -> str:
    scheme, _, given = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and given.strip():
        return given.strip()
    return connection.headers.get("x-api-key", "") or connection.cookies.get(TOKEN_COOKIE, "")


def _project(connection: HTTPConnection, house: ServerState) -> str:
    named = connection.headers.get(PROJECT_HEADER) or connection.cookies.get(PROJECT_COOKIE)
    if not named:
        return house.store.project
    if len(named) > 255:
        raise Problem(422, "Refused", "A project's name has at most 255 characters.")
    return codec.check_text(named, "The project")


def _listed(caller: Caller) -> str:
    return ", ".join(sorted(caller.scopes)) or "no scope"
