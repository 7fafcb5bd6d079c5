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
class Section:
    """A part of the pages: what it is called, where it begins, and the key that follows `g` to go there."""

    name: str
    path: str
    key: str
    scope: str = "read"
    """What a token must allow for the link to be shown."""


SECTIONS: Final = (
    Section("Threads", "/", "t"),
    Section("Stats", "/stats", "s"),
    Section("SQL", "/sql", "q", scope="admin"),
    Section("Workers", "/workers", "w"),
)
"""Those of every server, in the order in which they are shown."""


def with_others(added: Iterable[Section]) -> tuple[Section, ...]:
    """Those of one server: what its applications add stands before the workers."""
    return (*SECTIONS[:-1], *added, SECTIONS[-1])


_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
_HERE: Final = "lockstitch.server"


@dataclass(frozen=True, slots=True)
class Annex:
    """What one application adds: routes for programs, pages, links to them, templates and files."""

    api: Sequence[APIRouter] = ()
    """Routes that answer with JSON. Their paths begin with /api/."""
    pages: Sequence[APIRouter] = ()
    """Routes that answer with pages, which show the bar."""
    sections: Sequence[Section] = ()
    """Links in the bar, each with the key that follows `g`."""
    package: str | None = None
    """A package with a folder `templates` (named NAME/file.html in routes, and free to extend base.html), a folder
    `static` (named NAME/file.js in templates and served below /static/NAME/), or both. NAME is the application's."""


@runtime_checkable
class Serves(Protocol):
    """An application that adds something to a server.

    `annex` names a module and its `Annex` as "module:NAME". So a worker, which shows nothing, imports no web framework.
    """

    @property
    def annex(self) -> str | Annex: ...


@dataclass(frozen=True)
class Annexes:
    """The annexes of one server, by the name of their application."""

    by_name: dict[str, Annex]

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        return with_others(section for annex in self.by_name.values() for section in annex.sections)

    @cached_property
    def templates(self) -> tuple[tuple[str, str], ...]:
        """Names with their packages, of those that bring templates."""
        return self._with("templates")

    @cached_property
    def static(self) -> dict[str, str]:
        """Names with their packages, of those that bring files."""
        return dict(self._with("static"))

    def _with(self, folder: str) -> tuple[tuple[str, str], ...]:
        packages = ((name, annex.package) for name, annex in self.by_name.items())
        return tuple((name, package) for name, package in packages if package and _has(package, folder))


def annexes_of(app: App | None) -> Annexes:
    """What the applications of an app add. Refused says what of it cannot stand beside what is there."""
    found: dict[str, Annex] = {}
    for name, application in (app.applications if app is not None else {}).items():
        if isinstance(application, Serves):
            annex = _loaded(name, application.annex)
            _check(name, annex)
            found[name] = annex
    annexes = Annexes(found)
    keys = [section.key for section in annexes.sections]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise Refused(f"Two sections of this server have the key g {twice[0]}.")
    return annexes


def _loaded(name: str, annex: str | Annex) -> Annex:
    if isinstance(annex, Annex):
        return annex
    module, _, attribute = annex.partition(":")
    if not module or not attribute:
        raise Refused(f"The application {name} names {annex!r} as its annex. Use module:NAME.")
    try:
        loaded = getattr(import_module(module), attribute, None)
    except ImportError as exc:
        raise Refused(f"The module {module} of the application {name} cannot be imported: {exc}.") from exc
    if not isinstance(loaded, Annex):
        raise Refused(f"The application {name} names {annex}, which is not an Annex.")
    return loaded


def _check(name: str, annex: Annex) -> None:
    if not _NAME.fullmatch(name) or _has(_HERE, f"templates/{name}") or _has(_HERE, f"static/{name}"):
        raise Refused(f"An application that is served cannot be named {name!r}: its files could not be told apart.")
    known = {section.name for section in SECTIONS}
    if any(section.name in known for section in annex.sections):
        raise Refused(f"The application {name} adds a section that is there: {', '.join(sorted(known))}.")
    for router in annex.api:
        for route in router.routes:
            if isinstance(route, APIRoute) and not route.path.startswith("/api/"):
                raise Refused(f"Routes for programs are below /api/; {route.path} of the application {name} is not.")


def _has(package: str, folder: str) -> bool:
    return files(package).joinpath(*folder.split("/")).is_dir()
