"""Authentication: each request gets a `Caller` with a project and scopes, or is rejected.

The token selects the project. On a local server without tokens the request names the project. Routes declare the scope
in their signature: `Reader`, `Writer`, `Ingester`, `Admin`, and `FormWriter` for forms of pages. They get a store of
the caller's project. Routes have no other access to a store.
"""

import base64
import binascii
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
    """The caller of a request, with the store of their project."""

    state: ServerState
    """State of the server."""
    store: Store
    """Store of the caller's project."""
    actor: str
    """Name of the token, for the audit log."""
    scopes: frozenset[str]
    """Scopes of the token."""

    @property
    def project(self) -> str:
        """Project of the caller."""
        return self.store.project

    @property
    def app(self) -> App:
        """The loaded app. Raises a problem 409 if no app is loaded."""
        if self.state.app is None:
            raise Problem(409, "No app loaded", "Start the server with --app module:name.")
        return self.state.app

    def may(self, scope: str) -> bool:
        """Return True if the caller has a scope."""
        return scope in self.scopes or "admin" in self.scopes

    def require(self, scope: str) -> None:
        """Raise a problem 403 if the caller lacks a scope."""
        if not self.may(scope):
            raise Problem(403, "Forbidden", f"The token has {_listed(self)}. This operation needs {scope}.")


async def caller_of(connection: HTTPConnection) -> Caller:
    """Return the caller of a request. Raises a problem 401 if a valid token is required and missing."""
    state = server_state(connection)
    secret = _secret(connection)
    token = await state.store.tokens.find(secret) if secret else None
    if token is not None:
        return Caller(state, state.store.in_project(token.project), token.name, frozenset(token.scopes))
    if state.settings.tokens_needed:
        value = "The token is unknown, revoked or expired." if secret else "A token is required."
        raise Problem(401, "Unauthorized", f"{value} Create one with `lockstitch token create`.", headers=_REALM)
    # Clients may send a key that is not a token of this server. No token is required here.
    return Caller(state, state.store.in_project(_project(connection, state)), "local", frozenset(SCOPES))


def need(scope: str) -> Any:
    """Return a dependency that requires a scope."""

    async def caller(request: Request) -> Caller:
        result = await caller_of(request)
        result.require(scope)
        return result

    caller.scope_needed = scope  # type: ignore[attr-defined]
    return Depends(caller)


async def _act(request: Request) -> Caller:
    """Return the caller of a form. Requires the scope write and a valid CSRF token."""
    caller = await caller_of(request)
    caller.require("write")
    await check_form(request)
    return caller


async def check_form(request: Request) -> None:
    """Raise a problem 403 if the CSRF token of a form does not match the cookie."""
    stored = request.cookies.get(CSRF_COOKIE, "")
    x_csrf_token = request.headers.get("x-csrf-token", "") or str((await request.form()).get("csrf", ""))
    if not stored or not hmac.compare_digest(stored.encode(), x_csrf_token.encode()):
        raise Problem(403, "Cross-site request", "The form has expired or came from another site. Reload the page.")


def plugin_of(kind: type[Any]) -> Any:
    """Return a dependency for the application of a type: `application: Annotated[Planner, plugin_of(Planner)]`."""

    async def application(request: Request) -> Any:
        app = server_state(request).app
        assert app is not None, "Only the routes of an app use its applications."
        return app.plugin(kind)

    return Depends(application)


def csrf_of(request: Request) -> str:
    """Return the CSRF token of this browser, or a new one."""
    return request.cookies.get(CSRF_COOKIE) or secrets.token_urlsafe(24)


Reader = Annotated[Caller, need("read")]
"""The caller of a route. It needs a token with the scope `read`, if the server requires tokens."""
Writer = Annotated[Caller, need("write")]
"""The caller of a route that changes threads. It needs the scope `write`."""
Ingester = Annotated[Caller, need("ingest")]
Admin = Annotated[Caller, need("admin")]
"""The caller of a route for administrators. It needs the scope `admin`."""
FormWriter = Annotated[Caller, Depends(_act)]
"""The caller of a form on a page. It needs the scope `write`, and the form must come from this server."""


def _secret(connection: HTTPConnection) -> str:
    scheme, _, value = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip()
    named = connection.headers.get("x-api-key", "") or connection.cookies.get(TOKEN_COOKIE, "")
    # Last: a proxy may have its own basic authentication.
    return named or (_password(value) if scheme.lower() == "basic" else "")


def _password(credentials: str) -> str:
    """Return the password of basic authentication. Clients of Langfuse send their secret key as the password."""
    try:
        return base64.b64decode(credentials.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def _project(connection: HTTPConnection, state: ServerState) -> str:
    named = connection.headers.get(PROJECT_HEADER) or connection.cookies.get(PROJECT_COOKIE)
    if not named:
        return state.store.project
    if len(named) > 255:
        raise Problem(422, "Refused", "A project name has at most 255 characters.")
    return codec.check_text(named, "The project")


def _listed(caller: Caller) -> str:
    return ", ".join(sorted(caller.scopes)) or "no scope"
