"""The install page lists the extras of the package."""

import re
import tomllib

from tests.docs.pages import DOCS, ROOT

EXTRA = re.compile(r"^\| `([\w-]+)` \|", re.MULTILINE)
FOR_DEVELOPMENT = {"dev"}


def test_lists_every_extra() -> None:
    page = (DOCS / "start/install.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(EXTRA.findall(page)) == project["optional-dependencies"].keys() - FOR_DEVELOPMENT
    assert project["requires-python"] == ">=3.11"
    assert "Python 3.11 or newer" in page
