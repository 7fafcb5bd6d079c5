"""Search the repository for words that the text rules of CONTRIBUTING.md forbid.

    python -m tools.check_prose                  compare the counts with the budgets; exit 1 above a budget
    python -m tools.check_prose --list PATTERN   print the places of one pattern

It reads Markdown files completely. Of Python files it reads docstrings, comments and string literals, of templates,
scripts and SQL everything. It skips generated files, because their text comes from other files. A budget may only fall.
Lower it when a count has fallen. Names of records and columns, such as `waiting_for`, are not matched, because patterns
match whole words of prose.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = ("src", "tests", "docs", "examples", "benchmarks", "tools")
SUFFIXES: Final = frozenset({".md", ".py", ".html", ".js", ".sql"})
EXCLUDED: Final = (
    "docs/requirements",
    "tools/check_prose.py",
    "tests/tools/test_check_prose.py",
    "vendor",
)
"""Requirement lines quote their documents. The checker and its test contain the patterns."""


class Pattern(NamedTuple):
    """A forbidden pattern: a regular expression, the highest allowed count, and what to write instead."""

    regex: str
    budget: int
    instead: str


PATTERNS: Final = {
    "whoever": Pattern(r"\bwho(?:so)?ever\b", 0, "the caller, the worker that …"),
    "whatever": Pattern(r"\bwhatever\b", 1, "every, any"),
    "sentence with Who": Pattern(r"(?:^|[.!?\"#] +|\"\"\")(?:Who|Whose)\b(?! [^.\n]*\?)", 1, "name the actor"),
    "nobody": Pattern(r"\bnobody(?:'s)?\b", 58, "no worker, no caller"),
    "somebody": Pattern(r"\b(?:some|any|every)body(?:'s)?\b|\bsomeone\b", 9, "another worker, a person, every caller"),
    "anew": Pattern(r"\banew\b", 0, "again, new"),
    "of its own": Pattern(r"\bof (?:its|their|our|your|one's) own\b", 2, "its own X, a separate X"),
    "is told": Pattern(r"\b(?:is|are|was|were|be|been) told\b", 0, "receives, gets, is notified"),
    "tells of": Pattern(r"\b(?:tells?|told|telling) of\b", 0, "describes, reports, contains"),
    "headless What": Pattern(r"(?:^|[.:;] +|\"\"\"|# )What\b(?![^.\n]*\?)", 0, "the noun"),
    "as it is": Pattern(r"\bas (?:it|they) (?:is|are|was|were|stands?|came|come)\b(?! \w)", 3, "unchanged, current"),
    "go on": Pattern(r"\b(?:go|goes|going|went|gone) on\b", 5, "continue, resume"),
    "give back": Pattern(r"\b(?:give|gives|giving|gave|given) back\b|\bgives? \w+ back\b", 0, "release, return"),
    "let go": Pattern(r"\blets? go\b", 0, "release, close"),
    "stand": Pattern(r"\b(?:stands?|stood|standing)\b", 4, "is, is stored, appears"),
    "lies in": Pattern(r"\b(?:lies|lie|lay) (?:in|beside|side)\b", 0, "is in"),
    "no more": Pattern(r"\b(?:no|any) more\b(?! than)", 8, "no longer"),
    "meanwhile": Pattern(r"\bmeanwhile\b", 0, "since then, concurrently"),
    "under way": Pattern(r"\b(?:on (?:its|their|the)|under) way\b", 3, "in progress, in flight"),
    "be had": Pattern(r"\bbe had\b", 0, "be claimed, be read"),
    "wish": Pattern(r"\bwish(?:es|ed)?\b", 2, "request"),
    "letter": Pattern(r"\bletters?\b", 46, "delivery"),
    "desk or house": Pattern(
        r"\b(?:desks?|houses?|shelf|shelves|annex|parcels?|witness(?:es)?|deeds?)\b",
        125,
        "see docs/reference/glossary.md",
    ),
    "beat": Pattern(r"\bbeats?\b|\bbeaten\b|\bpulse\b", 19, "heartbeat"),
    "hangs off": Pattern(r"\bhangs? (?:off|below|on)\b", 0, "belongs to, depends on"),
    "Whether docstring": Pattern(r"\"\"\"Whether\b", 0, "True if …"),
    "how many docstring": Pattern(r"[;:,] how many\b", 0, "Return the number of …"),
    "thing": Pattern(r"\bthings?\b", 21, "the noun"),
    "so many": Pattern(r"\bso (?:many|long)\b", 0, "at most N, for N seconds"),
    "others": Pattern(r"\bothers\b|\banother's\b", 20, "other workers, another worker's"),
    "beside": Pattern(r"\bbeside\b", 14, "next to, with, relative to"),
    "side by side": Pattern(r"\bside by side\b", 3, "in parallel"),
    "drive": Pattern(r"\b(?:drives?|driven|drove|driving)\b", 5, "execute"),
    "begin": Pattern(r"(?-i:\b[Bb](?:egins?|egan|egun|eginning)\b)", 37, "start"),
    "kept": Pattern(r"\bkept\b(?! \|)", 30, "stored"),
    "bridge": Pattern(r"\bbridges?\b", 0, "integration"),
}


_TEXT: Final = re.compile(
    r"""
    \#[^\n]*
    | [A-Za-z]{0,2}
      (?: "{3} (?: [^\\] | \\. )*? "{3} | '{3} (?: [^\\] | \\. )*? '{3} | "(?: [^"\\\n] | \\. )*"
        | '(?: [^'\\\n] | \\. )*' )
    """,
    re.DOTALL | re.VERBOSE,
)
"""A comment or a string of Python. The module `tokenize` would take ten times as long."""


class Place(NamedTuple):
    """One match: file, line number and the text of the line."""

    path: str
    line: int
    text: str


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the text of a file that people read, as (line number, text of one line)."""
    source = path.read_text(encoding="utf-8", errors="replace")
    if source.startswith("# Generated by ") or "\n<!-- Generated by " in source[:200]:
        return
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    number = counted = 0
    for match in _TEXT.finditer(source):
        number += source.count("\n", counted, match.start())
        counted = match.start()
        yield from enumerate(match[0].splitlines(), number + 1)


def files(root: Path) -> Iterator[Path]:
    """Yield the files that are checked, sorted by path."""
    candidates = [*root.glob("*.md"), *(path for folder in FOLDERS for path in (root / folder).rglob("*"))]
    for path in sorted(candidates):
        name = path.relative_to(root).as_posix()
        if path.suffix in SUFFIXES and path.is_file() and not any(excluded in name for excluded in EXCLUDED):
            yield path


def find(root: Path, patterns: dict[str, Pattern]) -> dict[str, list[Place]]:
    """Return the places of every pattern."""
    compiled = {name: re.compile(pattern.regex, re.IGNORECASE | re.MULTILINE) for name, pattern in patterns.items()}
    places: dict[str, list[Place]] = {name: [] for name in patterns}
    for path in files(root):
        lines = list(texts(path))
        text = "\n".join(line for _, line in lines)
        for name, regex in compiled.items():
            for match in regex.finditer(text):
                number, line = lines[text.count("\n", 0, match.end())]
                places[name].append(Place(path.relative_to(root).as_posix(), number, line.strip()))
    return places


def report(places: dict[str, list[Place]], patterns: dict[str, Pattern]) -> tuple[str, bool]:
    """Return the table of counts, and True if every count is within its budget."""
    rows = [f"{'pattern':<22}{'count':>7}{'budget':>8}  write instead"]
    within = True
    for name, pattern in patterns.items():
        count = len(places[name])
        above = count > pattern.budget
        within = within and not above
        rows.append(
            f"{name:<22}{count:>7}{pattern.budget:>8}  {pattern.instead}{'  ← above the budget' if above else ''}"
        )
    return "\n".join(rows), within


def main(arguments: list[str] | None = None, root: Path = ROOT, patterns: dict[str, Pattern] = PATTERNS) -> int:
    """Print the table, or the places of one pattern. Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--list", metavar="PATTERN", choices=sorted(patterns), help="print the places of one pattern")
    options = parser.parse_args(arguments)
    if options.list:
        for place in find(root, {options.list: patterns[options.list]})[options.list]:
            print(f"{place.path}:{place.line}: {place.text}")
        return 0
    table, within = report(find(root, patterns), patterns)
    print(table)
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
