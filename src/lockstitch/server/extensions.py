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
from lockstitch.server.scripts import scripts_digest


@dataclass(frozen=True, slots=True)
class NavLink:
    """A link of the navigation bar: its name, its path, and its shortcut key after `g`."""

    name: str
    """Text of the link."""
    path: str
    """Path of the page."""
    key: str
    """Shortcut key after `g`."""
    scope: str = "read"
    """The scope that a caller needs to see the link."""


SECTIONS: Final = (
    NavLink("Threads", "/", "t"),
    NavLink("Stats", "/stats", "s"),
    NavLink("Agents", "/agents", "a"),
    NavLink("Evals", "/evals", "e"),
    NavLink("SQL", "/sql", "q", scope="admin"),
    NavLink("Schedules", "/schedules", "c"),
    NavLink("Workers", "/workers", "w"),
)
"""The links of every server, in order."""


def with_others(added: Iterable[NavLink]) -> tuple[NavLink, ...]:
    """Return the links of a server. Links of applications come before Workers."""
    return (*SECTIONS[:-1], *added, SECTIONS[-1])


_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
_HERE: Final = "lockstitch.server"


@dataclass(frozen=True, slots=True)
class ServerExtension:
    """The extension of an application: API routes, pages, links, templates and files."""

    api: Sequence[APIRouter] = ()
    """API routes. Their paths start with /api/."""
    pages: Sequence[APIRouter] = ()
    """Routes of pages with the navigation bar."""
    sections: Sequence[NavLink] = ()
    """Links of the navigation bar."""
    package: str | None = None
    """A package with a folder `templates` (NAME/file.html in routes; templates can extend base.html), a folder `static`
    (NAME/file.js in templates, served below /static/NAME/), or both. NAME is the name of the application."""


@runtime_checkable
class HasServerExtension(Protocol):
    """An application with a server extension.

    `server_extension` names a module and its `ServerExtension` as "module:NAME". So a worker imports no web framework.
    """

    @property
    def server_extension(self) -> str | ServerExtension:
        """The extension, or its place as "module:NAME"."""
        ...


@dataclass(frozen=True)
class ServerExtensions:
    """The extensions of one server, by the name of their application."""

    by_name: dict[str, ServerExtension]

    @cached_property
    def sections(self) -> tuple[NavLink, ...]:
        return with_others(section for extension in self.by_name.values() for section in extension.sections)

    @cached_property
    def templates(self) -> tuple[tuple[str, str], ...]:
        """Pairs of application name and package, for packages with templates."""
        return self._with("templates")

    @cached_property
    def static(self) -> dict[str, str]:
        """Packages with static files, by application name."""
        return dict(self._with("static"))

    @cached_property
    def scripts_digest(self) -> str:
        """The digest in the URLs of all scripts of the server and of its applications."""
        return scripts_digest((_HERE, *self.static.values()))

    def _with(self, folder: str) -> tuple[tuple[str, str], ...]:
        packages = ((name, extension.package) for name, extension in self.by_name.items())
        return tuple((name, package) for name, package in packages if package and _has(package, folder))


def server_extensions_of(app: App | None) -> ServerExtensions:
    """Return the extensions of an app. Raises `Refused` if they conflict with each other or with the server."""
    server_extensions: dict[str, ServerExtension] = {}
    for name, application in (app.plugins if app is not None else {}).items():
        if isinstance(application, HasServerExtension):
            extension = _loaded(name, application.server_extension)
            _check(name, extension)
            server_extensions[name] = extension
    extensions = ServerExtensions(server_extensions)
    keys = [section.key for section in extensions.sections]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise Refused(f"Two sections have the shortcut key g {twice[0]}. Choose another key.")
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
        raise Refused(f"The application name {name!r} is not valid or is used by the server. Choose another name.")
    known = {section.name for section in SECTIONS}
    if any(section.name in known for section in extension.sections):
        raise Refused(
            f"The application {name} adds a section named as one of: {', '.join(sorted(known))}. Choose another name."
        )
    for router in extension.api:
        for route in router.routes:
            if isinstance(route, APIRoute) and not route.path.startswith("/api/"):
                raise Refused(f"API route {route.path} of the application {name} does not start with /api/.")


def _has(package: str, folder: str) -> bool:
    return files(package).joinpath(*folder.split("/")).is_dir()
