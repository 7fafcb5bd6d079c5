"""Static files and templates: no unsafe content, and unchanged vendored libraries."""

import hashlib
import re
from pathlib import Path

import pytest

import lockstitch.server
from lockstitch.server.scripts import scripts_digest, with_digests

HERE = Path(lockstitch.server.__file__).parent
APPS = HERE.parent / "apps"
TEMPLATES = sorted([*HERE.rglob("templates/**/*.html"), *APPS.rglob("templates/**/*.html")])
FILES = [*HERE.rglob("static/**/*.js"), *APPS.rglob("static/**/*.js")]
MODULES = sorted(path for path in FILES if "vendor" not in path.parts)

PUBLISHED = {
    "htmx.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    "uplot.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}

FORBIDDEN = {
    "text that is not escaped": r"\|\s*safe\b|autoescape\s+false|Markup\(",
    "a style, which the policy forbids": r"\sstyle\s*=",
    "a handler, which the policy forbids": r"\son[a-z]+\s*=|\shx-on",
    "a script in the page": r"<script(?![^>]*\ssrc=)[^>]*>|javascript:",
    "a link that knows no prefix": r"""(?:href|action|src|hx-get|hx-post)=["']/(?!/)""",
}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_has_unsafe_content(path: Path) -> None:
    text = path.read_text("utf-8")
    assert {name for name, pattern in FORBIDDEN.items() if re.search(pattern, text)} == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_script_creates_html_from_text(path: Path) -> None:
    text = path.read_text("utf-8")
    wrong = r"\.(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function|cssText|[\"']style[\"']"
    assert [line for line in text.splitlines() if re.search(wrong, line)] == []


def test_imports_of_scripts_have_the_digest_of_all_scripts() -> None:
    digest = scripts_digest(("lockstitch.server", "lockstitch.apps.notebooks"))
    assert digest != scripts_digest(("lockstitch.server",))
    for path in MODULES:
        imported = re.findall(
            r'^(?:import|\}) .*"(\.[^"]+)"', with_digests(path.read_text("utf-8"), digest), re.MULTILINE
        )
        assert all(name.endswith(f".js?{digest}") for name in imported), path
    assert with_digests('import "./menus.js";', "1f") == 'import "./menus.js?1f";'


@pytest.mark.parametrize("name", PUBLISHED)
def test_vendored_libraries_are_unchanged(name: str) -> None:
    content = (HERE / "static" / "vendor" / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == PUBLISHED[name]
    assert (HERE / "static" / "vendor" / f"{name.partition('.')[0]}.LICENSE").read_text().strip()
