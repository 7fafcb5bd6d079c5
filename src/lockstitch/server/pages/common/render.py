"""The frame of every page: templates, and what each page may rely on.

Stored text enters by autoescape alone; there is no `safe` in any template, and a test looks that it stays so.
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

from lockstitch.model import format_time
from lockstitch.model.format import age, cost, duration, plural, size
from lockstitch.server.auth import CSRF_COOKIE, Caller, csrf_of
from lockstitch.server.pages.common import content, format
from lockstitch.server.problems import Problem
from lockstitch.server.state import server_state

THEME_COOKIE: Final = "lockstitch_theme"
SAID_COOKIE: Final = "lockstitch_said"
"""What the page after a form says: it is shown once."""

_THEMES: Final = ("light", "dark")
_HERE: Final = "lockstitch.server"
_JOINT: Final = re.compile(r"(?<=[a-z])[A-Z]")
"""Where another word begins in the name of an error."""


def render_page(request: Request, caller: Caller, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """A whole page, or a part of one: whatever the template is."""
    return render(request, template, {"caller": caller, **context}, status)


def problem_page(request: Request, problem: Problem) -> HTMLResponse:
    """What went wrong, for a person: "NotFound" is for programs."""
    heading = _JOINT.sub(lambda found: f" {found[0].lower()}", problem.title)
    response = render(request, "problem.html", {"caller": None, "problem": problem, "heading": heading}, problem.status)
    response.headers.update(problem.headers)
    return response


def redirect_to(request: Request, path: str, said: str = "") -> Response:
    """The answer to a form that was sent without script: look there; and what was done is said there, once."""
    response = RedirectResponse(base_path(request) + path, 303)
    if said:
        response.set_cookie(SAID_COOKIE, quote(said[:500]), max_age=60, samesite="strict", httponly=True)
    return response


def is_htmx_request(request: Request) -> bool:
    """Whether htmx asks, and so for a part of a page."""
    return request.headers.get("hx-request") == "true"


def render(request: Request, template: str, context: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    theme = request.cookies.get(THEME_COOKIE, "")
    csrf = csrf_of(request)
    extensions = server_state(request).extensions
    said = "" if is_htmx_request(request) else unquote(request.cookies.get(SAID_COOKIE, ""))
    body = (
        _templates(extensions.templates)
        .get_template(template)
        .render(
            {
                "base": base_path(request),
                "now": server_state(request).store.clock.now(),
                "theme": theme if theme in _THEMES else "",
                "csrf": csrf,
                "path": request.url.path.removeprefix(base_path(request)),
                "static": partial(_static, base_path(request), extensions.static),
                "bar": getattr(request.state, "bar", None),
                "said": said,
                **context,
            }
        )
    )
    response = HTMLResponse(body, status)
    secure = request.url.scheme == "https"
    if request.cookies.get(CSRF_COOKIE) != csrf:
        response.set_cookie(CSRF_COOKIE, csrf, samesite="strict", httponly=True, secure=secure)
    if said:
        response.delete_cookie(SAID_COOKIE)
    return response


def base_path(request: Request) -> str:
    """What stands before every path of ours: empty, or where somebody's app has put us."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _static(base: str, extensions: Mapping[str, str], name: str) -> str:
    """Where a file is: one of ours, or `application/name` of what an application brings."""
    first, _, rest = name.partition("/")
    found = digest(extensions[first], rest) if first in extensions else digest(_HERE, name)
    return f"{base}/static/{name}?{found}"


@cache
def digest(package: str, name: str) -> str:
    """Changes with the file, so that browsers may keep it for as long as they like."""
    return hashlib.sha256(files(package).joinpath("static", name).read_bytes()).hexdigest()[:12]


@cache
def _templates(extensions: tuple[tuple[str, str], ...]) -> Environment:
    """Ours by their names; those of applications with the application's name before them."""
    added: dict[str, BaseLoader] = {name: PackageLoader(package, "templates") for name, package in extensions}
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(_HERE, "templates"), PrefixLoader(added)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
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
        "thousands": format.thousands,
        "short": format.short,
        "json_pieces": content.json_pieces,
        "arguments": content.arguments,
        "one_line": content.one_line,
        "cut": content.cut,
        "tojson_text": content.json_text,
        "message_line": content.message_line,
    }
    cast("dict[str, Any]", environment.filters).update(filters)  # pyright: ignore[reportUnknownMemberType]
    cast("dict[str, Any]", environment.globals)["plural"] = plural  # pyright: ignore[reportUnknownMemberType]
    return environment
