"""The search for forbidden words: which text is read, budgets, and the list of places."""

from pathlib import Path

import pytest

from tools.check_prose import PATTERNS, Pattern, find, main, texts

ANEW = {"anew": Pattern(r"\banew\b", 1, "again")}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a small repository: one page with one match, one module with two, one requirement list."""
    for folder in ("docs/requirements", "src"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "README.md").write_text("Start anew.\n")
    (tmp_path / "docs" / "requirements" / "0-list.md").write_text("- S0-001 [E] It begins anew. {1}\n")
    (tmp_path / "src" / "module.py").write_text(
        '"""Text.\n\nAnew, in a docstring."""\nanew = 1  # anew, in a comment\n'
    )
    return tmp_path


def test_reads_docstrings_comments_and_strings_of_python(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""Doc."""\nname = "text"  # comment\n')
    assert list(texts(path)) == [(1, '"""Doc."""'), (2, '"text"'), (2, "# comment")]


def test_finds_places_outside_excluded_folders(checkout: Path) -> None:
    places = [(place.path, place.line) for place in find(checkout, ANEW)["anew"]]
    assert places == [("README.md", 1), ("src/module.py", 3), ("src/module.py", 4)]


@pytest.mark.parametrize(("budget", "code"), [(3, 0), (2, 1)])
def test_exit_code_compares_count_with_budget(
    checkout: Path, budget: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    patterns = {"anew": ANEW["anew"]._replace(budget=budget)}
    assert main([], checkout, patterns) == code
    assert ("above the budget" in capsys.readouterr().out) is (code == 1)


def test_list_prints_places_of_pattern(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "anew"], checkout, ANEW) == 0
    assert capsys.readouterr().out.splitlines() == [
        "README.md:1: Start anew.",
        'src/module.py:3: Anew, in a docstring."""',
        "src/module.py:4: # anew, in a comment",
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Whoever holds it.", "whoever"),
        ('"""Whether it is open."""', "Whether docstring"),
        ("What was begun is stored.", "headless What"),
        ("Remove all of them; how many.", "how many docstring"),
        ("The thread is given back.", "give back"),
    ],
)
def test_patterns_match_forbidden_phrases(tmp_path: Path, text: str, name: str) -> None:
    (tmp_path / "page.md").write_text(text)
    assert len(find(tmp_path, PATTERNS)[name]) == 1
