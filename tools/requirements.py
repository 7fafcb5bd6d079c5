"""Count the requirement lines that tests and benchmarks prove.

The count joins the lists in docs/requirements, the results of the last full test run (build/requirements.json,
written by tests/plugin_requirements.py) and the results of the benchmarks (build/bench.json).
"""

import json
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

BACKENDS = frozenset({"files", "sqlite", "postgres"})
NO_BACKEND = "-"
APPLICATIONS = "6"
"""The owner of the lines about plugins. Plugins need tables, and the file backend has none (H26)."""

_LINE = re.compile(r"- (?P<id>S\d-\d{3}) \[(?P<kind>[EIO])\] .*\{(?P<owner>[^{}]*)\}\s*$")
_DECISION = re.compile(r"- (?P<id>X\d-\d{2}) .*→ .*$")
_LOOKS_LIKE_A_LINE = re.compile(r"- [SX]\d")
_BY_BENCH = "[P] proved by `make bench`"


class Proof(TypedDict):
    """The value of one id in build/requirements.json."""

    tests: list[str]
    backends: list[str]


@dataclass(frozen=True)
class Requirement:
    """One testable line: `kind` is E, I, O or X, `owner` the text in braces.

    [X] lines decide contradictions of the documents and have no owner.
    """

    id: str
    kind: str
    owner: str
    by_bench: bool = False

    @property
    def counts(self) -> bool:
        """True if the line is a requirement. [O] lines are optional; they and [X] lines are counted separately."""
        return self.kind in ("E", "I")


@dataclass(frozen=True)
class RequirementList:
    """One file of docs/requirements."""

    name: str
    lines: list[Requirement]


@dataclass(frozen=True)
class Evidence:
    """The results of the last full test run and of the last benchmarks."""

    proofs: dict[str, Proof] = field(default_factory=dict)
    bench: list[dict[str, Any]] = field(default_factory=list)

    def lack(self, line: Requirement) -> str | None:
        """Return the evidence that the line still lacks: None if it is proven, "" if there is no evidence.

        If a test of the line runs per backend, the line needs all backends. Lines of plugins and decisions need the
        backends with SQL.
        """
        if line.by_bench:
            rows = [row for row in self.bench if line.id in _ids_of(row)]
            return None if rows and all(row.get("met") is True for row in rows) else "bench"
        proof = self.proofs.get(line.id)
        if proof is None:
            return ""
        run_on = BACKENDS.intersection(proof["backends"])
        needed = BACKENDS - {"files"} if APPLICATIONS in line.owner or line.kind == "X" else BACKENDS
        if not run_on or run_on >= needed:
            return None
        return ", ".join(f"not {name}" for name in sorted(needed - run_on))


def read_list(path: Path) -> RequirementList:
    """Read one list. A decision (→) below a line can assign it to the benchmarks.

    Raises ValueError for a line that looks like a requirement and cannot be parsed, because a line that is ignored
    would improve the count.
    """
    lines: list[Requirement] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := _LINE.match(text):
            lines.append(Requirement(match["id"], match["kind"], match["owner"]))
        elif match := _DECISION.match(text):
            lines.append(Requirement(match["id"], "X", ""))
        elif _LOOKS_LIKE_A_LINE.match(text):
            raise ValueError(f"{path.name}:{number}: neither '- S0-001 [E] … {{1}}' nor '- X0-01 … → …': {text}")
        elif lines and text.startswith("  →") and _BY_BENCH in text:
            lines[-1] = replace(lines[-1], by_bench=True)
    return RequirementList(path.stem, lines)


def read_lists(folder: Path) -> list[RequirementList]:
    """Read all lists of a folder: the files with a digit as the first character of their names."""
    lists = [read_list(path) for path in sorted(folder.glob("[0-9]*.md"))]
    seen: set[str] = set()
    for line in (line for requirement_list in lists for line in requirement_list.lines):
        if line.id in seen:
            raise ValueError(f"{line.id} occurs twice in {folder.name}")
        seen.add(line.id)
    return lists


def read_evidence(build: Path) -> Evidence:
    """Read the results of the last runs from the build folder. A missing file is no evidence."""
    return Evidence(
        proofs=_read_json(build / "requirements.json", {}),
        bench=_read_json(build / "bench.json", []),
    )


def report(lists: Sequence[RequirementList], evidence: Evidence) -> str:
    """Return the tables as text. The last line is `proven N/M` over the [E] and [I] lines."""
    every = [line for requirement_list in lists for line in requirement_list.lines]
    rows = [
        f"{'list':<20}{'proven':>10}{'decided [X]':>14}{'extra [O]':>12}",
        *(_row(requirement_list.name, requirement_list.lines, evidence) for requirement_list in lists),
        _row("all", every, evidence),
    ]
    for requirement_list in lists:
        lines = requirement_list.lines
        rows += _open_lines(f"{requirement_list.name}, not proven:", (line for line in lines if line.counts), evidence)
    rows += _open_lines("decided [X], not proven:", _of_kind(every, "X"), evidence)
    rows += _open_lines("extra [O], not proven and not counted:", _of_kind(every, "O"), evidence)
    rows += ["", f"proven {_share((line for line in every if line.counts), evidence)}"]
    return "\n".join(rows)


def _row(name: str, lines: list[Requirement], evidence: Evidence) -> str:
    counted = _share((line for line in lines if line.counts), evidence)
    decided, extra = (_share(_of_kind(lines, kind), evidence) for kind in "XO")
    return f"{name:<20}{counted:>10}{decided:>14}{extra:>12}"


def _of_kind(lines: Iterable[Requirement], kind: str) -> Iterator[Requirement]:
    return (line for line in lines if line.kind == kind)


def _share(lines: Iterable[Requirement], evidence: Evidence) -> str:
    lacks = [evidence.lack(line) for line in lines]
    return f"{lacks.count(None)}/{len(lacks)}"


def _open_lines(title: str, lines: Iterable[Requirement], evidence: Evidence) -> list[str]:
    by_owner: defaultdict[str, list[str]] = defaultdict(list)
    for line in lines:
        lack = evidence.lack(line)
        if lack is not None:
            by_owner[line.owner].append(f"{line.id} ({lack})" if lack else line.id)
    if not by_owner:
        return []
    rows = ["", title]
    for owner, ids in sorted(by_owner.items()):
        if owner:
            rows.append(f"  {{{owner}}} {len(ids)}:")
        rows += textwrap.wrap(", ".join(ids), 110, initial_indent="    ", subsequent_indent="    ")
    return rows


def _ids_of(row: dict[str, Any]) -> list[str]:
    named = row.get("req") or []
    return [named] if isinstance(named, str) else named


def _read_json(path: Path, otherwise: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else otherwise


def main(root: Path) -> int:
    """Print the report of a checkout. Unproven lines are not an error."""
    if not (root / "build" / "requirements.json").exists():
        print("build/requirements.json not found. Run `make test` to write it.\n")
    print(report(read_lists(root / "docs" / "requirements"), read_evidence(root / "build")))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[1]))
