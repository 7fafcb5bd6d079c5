"""`ServerExtension`: routes, pages, files and links of applications."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.resources import files
from typing import Final, Protocol, runtime_checkable

from fastapi import APIRouter
from fastapi.routing import APIRoute

from lockstitch.agents import App
from lockstitch.errors import Refused


@dataclass(frozen=True, slots=True)
class NavLink:
    """A part of the pages: what it is called, where it begins, and the key that follows `g` to go there."""

    name: str
    path: str
    key: str
    scope: str = "read"
    """What a token must allow for the link to be shown."""


SECTIONS: Final = (
    NavLink("Threads", "/", "t"),
    NavLink("Stats", "/stats", "s"),
    NavLink("SQL", "/sql", "q", scope="admin"),
    NavLink("Workers", "/workers", "w"),
)
"""Those of every server, in the order in which they are shown."""


def with_others(added: Iterable[NavLink]) -> tuple[NavLink, ...]:
    """Those of one server: what its applications add stands before the workers."""
    return (*SECTIONS[:-1], *added, SECTIONS[-1])


_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
_HERE: Final = "lockstitch.server"


@dataclass(frozen=True, slots=True)
class ServerExtension:
    """What one application adds: routes for programs, pages, links to them, templates and files."""

    api: Sequence[APIRouter] = ()
    """Routes that answer with JSON. Their paths begin with /api/."""
    pages: Sequence[APIRouter] = ()
    """Routes that answer with pages, which show the bar."""
    sections: Sequence[NavLink] = ()
    """Links in the bar, each with the key that follows `g`."""
    package: str | None = None
    """A package with a folder `templates` (named NAME/file.html in routes, and free to extend base.html), a folder
    `static` (named NAME/file.js in templates and served below /static/NAME/), or both. NAME is the application's."""


@runtime_checkable
class HasServerExtension(Protocol):
    """An application that adds something to a server.

    `server_extension` names a module and its `ServerExtension` as "module:NAME". So a worker imports no web framework.
    """

    @property
    def server_extension(self) -> str | ServerExtension: ...


@dataclass(frozen=True)
class ServerExtensions:
    """The extensions of one server, by the name of their application."""

    by_name: dict[str, ServerExtension]

    @cached_property
    def sections(self) -> tuple[NavLink, ...]:
        return with_others(section for extension in self.by_name.values() for section in extension.sections)

    @cached_property
    def templates(self) -> tuple[tuple[str, str], ...]:
        """Names with their packages, of those that bring templates."""
        return self._with("templates")

    @cached_property
    def static(self) -> dict[str, str]:
        """Names with their packages, of those that bring files."""
        return dict(self._with("static"))

    def _with(self, folder: str) -> tuple[tuple[str, str], ...]:
        packages = ((name, extension.package) for name, extension in self.by_name.items())
        return tuple((name, package) for name, package in packages if package and _has(package, folder))


def server_extensions_of(app: App | None) -> ServerExtensions:
    """What the applications of an app add. Refused says what of it cannot stand beside what is there."""
    found: dict[str, ServerExtension] = {}
    for name, application in (app.plugins if app is not None else {}).items():
        if isinstance(application, HasServerExtension):
            extension = _loaded(name, application.server_extension)
            _check(name, extension)
            found[name] = extension
    extensions = ServerExtensions(found)
    keys = [section.key for section in extensions.sections]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise Refused(f"Two sections of this server have the key g {twice[0]}.")
    return extensions


def _loaded(name: str, extension: str | ServerExtension) -> ServerExtension:
    if isinstance(extension, ServerExtension):
        return extension
    module, _, attribute = extension.partition(":")
    if not module or not attribute:
        raise Refused(f"The application {name} names {extension!r} as its server extension. Use module:NAME.")
    try:
        loaded = getattr(import_module(module), attribute, None)
    except ImportError as exc:
        raise Refused(f"The module {module} of the application {name} cannot be imported: {exc}.") from exc
    if not isinstance(loaded, ServerExtension):
        raise Refused(f"The application {name} names {extension}, which is not a ServerExtension.")
    return loaded


def _check(name: str, extension: ServerExtension) -> None:
    if not _NAME.fullmatch(name) or _has(_HERE, f"templates/{name}") or _has(_HERE, f"static/{name}"):
        raise Refused(f"An application that is served cannot be named {name!r}: its files could not be told apart.")
    known = {section.name for section in SECTIONS}
    if any(section.name in known for section in extension.sections):
        raise Refused(f"The application {name} adds a section that is there: {', '.join(sorted(known))}.")
    for router in extension.api:
        for route in router.routes:
            if isinstance(route, APIRoute) and not route.path.startswith("/api/"):
                raise Refused(f"Routes for programs are below /api/; {route.path} of the application {name} is not.")


def _has(package: str, folder: str) -> bool:
    return files(package).joinpath(*folder.split("/")).is_dir()
