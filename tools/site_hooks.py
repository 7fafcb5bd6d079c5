"""Hooks of the documentation site: the navigation from the folders of docs/, and the check of the API reference.

A new page needs no entry: it belongs to the section of its folder. MkDocs reports a page in no section, and a strict
build fails. The build also fails if a public name has no docstring or is not in the API reference.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files

SECTIONS: Final = {
    "Start": "start",
    "How-to": "howto",
    "Reference": "reference",
    "Explanation": "explanation",
    "Decisions": "decisions",
}
"""The sections of the site and their folders."""

SUBSECTIONS: Final = {"api": "Python API", "lenses": "Lenses"}
"""Titles of the folders inside a section."""

FIRST: Final = {
    "start": ("install.md", "tutorial.md"),
    "reference": (
        *("cli.md", "configuration.md", "http.md", "events.md", "errors.md"),
        *("record.md", "log.md", "glossary.md"),
    ),
    "reference/api": (
        *("agents.md", "teams.md", "app.md", "results.md", "store.md", "records.md", "errors.md"),
        *("client.md", "server.md", "testing.md", "providers.md", "ext.md", "integrations.md", "sync.md"),
    ),
}
"""Pages that come first in their folder. The remaining pages are sorted by title."""

SORTED_BY_NAME: Final = ("decisions",)

PUBLIC_MODULES: Final = (
    "lockstitch",
    "lockstitch.ext",
    *(
        f"lockstitch.integrations.{name}"
        for name in ("adk", "agno", "claude_agents", "langgraph", "openai_agents", "pydantic_ai")
    ),
    "lockstitch.providers",
    "lockstitch.server",
    "lockstitch.sync",
    "lockstitch.testing",
)
"""The modules whose `__all__` is the public API."""

NOT_RENDERED: Final = frozenset({"lockstitch.__version__", "lockstitch.sync"})
"""A string, and a module that has its own page."""

API: Final = "reference/api"

_SEPARATOR: Final = "\ue000"

_log = logging.getLogger("mkdocs.hooks.site")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the navigation."""
    config.nav = navigation(Path(config.docs_dir))
    return config


def navigation(docs: Path) -> list[Any]:
    """Return the navigation of a docs folder: the start page, then a section per folder that has pages."""
    sections = [{title: section} for title, folder in SECTIONS.items() if (section := _pages(docs, docs / folder))]
    return [{"Home": "index.md"}, *sections]


def _pages(docs: Path, folder: Path) -> list[Any]:
    """Return the pages of a folder, then its subfolders."""
    name = folder.relative_to(docs).as_posix()
    first = FIRST.get(name, ())

    def order(page: Path) -> tuple[bool, int, str]:
        key = page.name if name in SORTED_BY_NAME else title_of(page).casefold()
        return page.name not in first, first.index(page.name) if page.name in first else 0, key

    pages: list[Any] = [page.relative_to(docs).as_posix() for page in sorted(folder.glob("*.md"), key=order)]
    folders = [child for child in sorted(folder.glob("*")) if child.is_dir()]
    return pages + [
        {SUBSECTIONS.get(child.name, child.name.capitalize()): inner}
        for child in folders
        if (inner := _pages(docs, child))
    ]


def title_of(page: Path) -> str:
    """Return the first heading of a page, or its file name."""
    heading = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1] if heading else page.stem


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Separate `<![`, as in a regular expression. The HTML parser that MkDocs finds anchors with fails there."""
    return markdown.replace("<![", f"<!{_SEPARATOR}[")


def on_page_content(html: str, **_: Any) -> str:
    """Remove the separators of `on_page_markdown`."""
    return html.replace(_SEPARATOR, "")


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> Environment:
    """Report public names without documentation. A warning fails a strict build."""
    pages = [file.page for file in files.documentation_pages() if file.src_uri.startswith(API) and file.page]
    if pages:
        # It has read the sources already, to render the pages.
        plugin: Any = config.plugins["mkdocstrings"]
        handler = plugin.get_handler("python")
        options = handler.get_options({})
        contents = [page.content or "" for page in pages]
        for problem in undocumented(PUBLIC_MODULES, contents, lambda name: handler.collect(name, options)):
            _log.warning(problem)
    return env


def undocumented(modules: Sequence[str], pages: Sequence[str], collect: Callable[[str], Any]) -> Iterator[str]:
    """Yield the problems of an API reference: public names without a docstring, or in none of its pages.

    Args:
        modules: Modules whose `__all__` is public.
        pages: Pages of the reference, as HTML.
        collect: Function that returns the griffe object of a dotted name.
    """
    anchors = {anchor for page in pages for anchor in re.findall(r'<h\d id="([\w.]+)"', page)}
    rendered = {collect(anchor).canonical_path for anchor in anchors if anchor.partition(".")[2]}
    for module in modules:
        for export in sorted(map(str, collect(module).exports or ())):
            name = f"{module}.{export}"
            if name in NOT_RENDERED:
                continue
            value = collect(name)
            if not value.has_docstring:
                yield f"The public name {name} has no docstring"
            if value.canonical_path not in rendered:
                yield f"The public name {name} is not in the API reference"
