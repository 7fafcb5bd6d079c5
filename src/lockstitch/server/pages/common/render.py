"""`render_page()`: the template environment and the context of every page.

Templates autoescape all stored text. A test checks that no template uses `safe`.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from fastapi import Request
from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response

from lockstitch.model import format_time, new_id
from lockstitch.model.format import age, cost, duration, plural, size
from lockstitch.server.auth import CSRF_COOKIE, Caller, csrf_of
from lockstitch.server.extensions import ServerExtensions
from lockstitch.server.pages.common import content, format
from lockstitch.server.problems import Problem
from lockstitch.server.scripts import imported_scripts
from lockstitch.server.state import server_state

THEME_COOKIE: Final = "lockstitch_theme"
MESSAGE_COOKIE: Final = "lockstitch_said"
"""The message that the next page shows once after a form."""

_THEMES: Final = ("light", "dark")
_HERE: Final = "lockstitch.server"
_FRAME: Final = "frame.js"
"""The script of every page."""
_JOINT: Final = re.compile(r"(?<=[a-z])[A-Z]")
"""Matches the start of a word in the name of an error class."""


def render_page(request: Request, caller: Caller, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """Render a template of a page or of a part of a page."""
    return render(request, template, {"caller": caller, **context}, status)


def problem_page(request: Request, problem: Problem) -> HTMLResponse:
    """Render a problem as a page. The title "NotFound" becomes "Not found"."""
    heading = _JOINT.sub(lambda match: f" {match[0].lower()}", problem.title)
    response = render(request, "problem.html", {"caller": None, "problem": problem, "heading": heading}, problem.status)
    response.headers.update(problem.headers)
    return response


def redirect_to(request: Request, path: str, text: str = "") -> Response:
    """Redirect after a form without JavaScript. The next page shows `text` once."""
    response = RedirectResponse(base_path(request) + path, 303)
    if text:
        response.set_cookie(MESSAGE_COOKIE, quote(text[:500]), max_age=60, samesite="strict", httponly=True)
    return response


def is_htmx_request(request: Request) -> bool:
    """True if htmx sent the request, which then expects a part of a page."""
    return request.headers.get("hx-request") == "true"


def render(request: Request, template: str, context: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    theme = request.cookies.get(THEME_COOKIE, "")
    csrf = csrf_of(request)
    extensions = server_state(request).extensions
    text = "" if is_htmx_request(request) else unquote(request.cookies.get(MESSAGE_COOKIE, ""))
    body = (
        _templates(extensions.templates)
        .get_template(template)
        .render(
            {
                "base": base_path(request),
                "now": server_state(request).store.clock.now(),
                "theme": theme if theme in _THEMES else "",
                "csrf": csrf,
                "new_id": new_id,
                "path": request.url.path.removeprefix(base_path(request)),
                "static": partial(_static, base_path(request), extensions),
                "modules": partial(_modules, extensions),
                "bar": getattr(request.state, "bar", None),
                "toast": text,
                **context,
            }
        )
    )
    response = HTMLResponse(body, status)
    secure = request.url.scheme == "https"
    if request.cookies.get(CSRF_COOKIE) != csrf:
        response.set_cookie(CSRF_COOKIE, csrf, samesite="strict", httponly=True, secure=secure)
    if text:
        response.delete_cookie(MESSAGE_COOKIE)
    return response


def base_path(request: Request) -> str:
    """Return the root path of the server: empty, or the path where an app mounts it."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _static(base: str, extensions: ServerExtensions, name: str) -> str:
    """Return the URL of a static file; `application/name` is a file of an application."""
    first, _, rest = name.partition("/")
    if name.endswith(".js") and "vendor/" not in name:
        return f"{base}/static/{name}?{extensions.scripts_digest}"
    packages = extensions.static
    match = digest(packages[first], rest) if first in packages else digest(_HERE, name)
    return f"{base}/static/{name}?{match}"


def _modules(extensions: ServerExtensions, name: str) -> list[str]:
    """Return the scripts that a script imports, without those that the frame of each page loads."""
    packages = (("", _HERE), *extensions.static.items())
    imported = imported_scripts(packages, name)
    if name == _FRAME:
        return list(imported)
    framed = {_FRAME, *imported_scripts(packages, _FRAME)}
    return [one for one in imported if one not in framed]


@cache
def digest(package: str, name: str) -> str:
    """Return a digest of a static file, so browsers can cache the URL forever."""
    return hashlib.sha256(files(package).joinpath("static", name).read_bytes()).hexdigest()[:12]


@cache
def _templates(extensions: tuple[tuple[str, str], ...]) -> Environment:
    """Return the template environment. Templates of applications have the name of the application as prefix."""
    added: dict[str, BaseLoader] = {name: PackageLoader(package, "templates") for name, package in extensions}
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(_HERE, "templates"), PrefixLoader(added)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # The files of an installed package do not change.
        auto_reload=False,
    )
    filters: dict[str, Callable[..., Any]] = {
        "cost": cost,
        "duration": duration,
        "size": size,
        "age": age,
        "ago": format.ago,
        "span": format.span,
        "money": format.money,
        "dollars": format.dollars,
        "moment": format.moment,
        "stamp": format_time,
        "clock": format.clock,
        "day": format.day,
        "day_and_time": format.day_and_time,
        "count": format.count,
        "capped": format.capped,
        "thousands": format.thousands,
        "short": format.short,
        "json_pieces": content.json_tokens,
        "arguments": content.arguments,
        "one_line": content.one_line,
        "answer_line": content.answer_line,
        "cut": content.cut,
        "tojson_text": content.json_text,
        "message_line": content.message_line,
    }
    cast("dict[str, Any]", environment.filters).update(filters)  # pyright: ignore[reportUnknownMemberType]
    cast("dict[str, Any]", environment.globals)["plural"] = plural  # pyright: ignore[reportUnknownMemberType]
    return environment
