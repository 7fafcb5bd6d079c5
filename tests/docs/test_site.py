"""The documentation site: its navigation, its strict checks, and its independence of other hosts."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe
import pytest
import yaml
from playwright.async_api import Page, expect

from tests.docs.pages import DOCS, ROOT
from tools.site_hooks import NOT_RENDERED, PUBLIC_MODULES, SECTIONS, navigation, undocumented

DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)


def pages_of(nav: Any) -> list[str]:
    """Return the pages of a navigation."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in pages_of(part)]


def build(folder: Path, pages: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Build a site of these pages with the settings of the real site."""
    for name, text in pages.items():
        path = folder / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    # Paths in the settings are relative to their file.
    for name in ("src", "tools"):
        (folder / name).symlink_to(ROOT / name)
    settings = {"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": "docs", "site_dir": "site"}
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-f", str(folder / "mkdocs.yml")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_navigation_has_every_page() -> None:
    nav = navigation(DOCS)
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    # For contributors, who read them in the repository.
    pages = {page for page in pages if not page.startswith("requirements/")}
    listed = pages_of(nav)
    assert set(listed) == pages
    assert len(listed) == len(pages)
    titles = [title for part in nav for title in part]
    assert titles == sorted(titles, key=("Home", *SECTIONS).index)


def test_broken_links_and_missing_names_fail_the_build(tmp_path: Path) -> None:
    done = build(
        tmp_path,
        {
            "index.md": "# Start\n\n[missing](howto/missing.md) and [wrong](howto/present.md#wrong)\n",
            "howto/present.md": "# Present\n",
            "elsewhere/page.md": "# In no section\n",
            "reference/api/agents.md": "# Agents\n\n::: lockstitch.ToolFailed\n",
        },
    )
    assert done.returncode == 1, done.stderr
    assert "howto/missing.md" in done.stderr
    assert "does not contain an anchor '#wrong'" in done.stderr
    assert "elsewhere/page.md" in done.stderr
    assert "The public name lockstitch.Agent is not in the API reference" in done.stderr
    assert "The public name lockstitch.ToolFailed is not" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.anyio
async def test_site_works_from_a_folder_without_other_hosts(tmp_path: Path, page: Page) -> None:
    done = build(
        tmp_path,
        {
            "index.md": "# Home\n\n[A guide](howto/guide.md)\n",
            "howto/guide.md": "# Guide\n\nTo greet, say hello.\n\n```python\nprint(1)\n```\n\n`(?<![a-z])`\n",
            **{f"assets/{asset.name}": asset.read_text() for asset in (DOCS / "assets").iterdir()},
        },
    )
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    assert "var __index" in (site / "search" / "search_index.js").read_text()
    guide = (site / "howto" / "guide.html").read_text()
    assert "(?&lt;![a-z])" in guide
    for path in site.rglob("*.html"):
        text = path.read_text()
        loaded = re.findall(r"<(?:script|link|img|source|iframe)\b[^>]*?(?:src|href)=[\"']?([^\"'\s>]+)", text)
        assert loaded
        assert [url for url in loaded if re.match(r"(https?:)?//", url)] == []
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", sheet.read_text()) == []
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    await page.goto((site / "index.html").as_uri())
    await page.locator(".md-search__input").press_sequentially("hello")
    await expect(page.locator(".md-search-result__item")).to_contain_text("Guide")
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []


def test_pages_show_no_image_of_another_host() -> None:
    for path in DOCS.rglob("*.md"):
        assert re.findall(r"!\[[^\]]*\]\(https?:|<(?:img|script|link)[^>]*https?:", path.read_text()) == [], path


def resolve(name: str) -> Any:
    """Return the object of a dotted name."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError:
        return getattr(resolve(module), attribute)


def test_api_reference_has_every_public_name() -> None:
    text = "\n".join(path.read_text() for path in (DOCS / "reference" / "api").glob("*.md"))
    names = DIRECTIVE.findall(text)
    assert len(names) == len(set(names))
    public = [f"{module}.{name}" for module in PUBLIC_MODULES for name in import_module(module).__all__]
    missing = {name for name in public if name not in NOT_RENDERED and name not in names}
    # The integrations are not imported, because their frameworks may not be installed. They have one name each.
    documented = {id(resolve(name)) for name in names if not name.startswith("lockstitch.integrations.")}
    assert [name for name in missing if id(resolve(name)) not in documented] == []


SAMPLE = '''
"""A package."""
__all__ = ["bare", "good", "hidden"]
def good():
    """Do it."""
def bare(): ...
def hidden():
    """Do it."""
'''


def test_reports_names_without_documentation(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(SAMPLE)
    modules = griffe.ModulesCollection()
    griffe.load("sample", search_paths=[tmp_path], modules_collection=modules)
    pages = ['<h2 id="sample.good">', '<h3 id="sample.bare">', '<h2 id="section">']
    assert list(undocumented(["sample"], pages, modules.__getitem__)) == [
        "The public name sample.bare has no docstring",
        "The public name sample.hidden is not in the API reference",
    ]


@pytest.mark.parametrize("page", ["start/install.md", "howto/guide.md", "decisions/0001-x.md"])
def test_new_page_needs_no_entry(page: str, tmp_path: Path) -> None:
    (tmp_path / page).parent.mkdir()
    (tmp_path / page).write_text("# New\n")
    assert pages_of(navigation(tmp_path)) == ["index.md", page]
