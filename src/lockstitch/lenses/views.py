"""`View`: a view of a lens in DuckDB that can leave out what a statement does not read.

DuckDB computes a subquery in a column of a view, and joins the tables of the view, even if no statement selects
anything of them. So the sum of the tokens of all model calls would join each call with its runs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Final

_VIEW: Final = re.compile(r"CREATE VIEW (\w+) AS\n")
_BRANCH: Final = re.compile(r"\s*(?:UNION ALL\s+)?SELECT (?!DISTINCT)")
_UNION: Final = re.compile(r"\nUNION ALL\s")
_COMMA: Final = re.compile(",")
_CLAUSE: Final = re.compile(
    r"(?<!DISTINCT)\sFROM |\s(?:LEFT |CROSS )?JOIN |\s(?:WHERE|GROUP BY|HAVING|ORDER BY|LIMIT|WINDOW) "
)
_READING: Final = ("FROM", "LEFT", "CROSS", "JOIN", "WHERE")
_JOIN: Final = re.compile(r"\s+(LEFT )?JOIN lockstitch\.(\w+) (\w+) ON (.*)", re.DOTALL)
_NESTED: Final = r"'[^']*'|[()]"
_NAME: Final = re.compile(r'(\w+)"?\s*$')
_WORD: Final = re.compile(r"\w+")
_STAR: Final = re.compile(r"\w\.\*|SELECT \*")

_KEYS: Final[Mapping[str, tuple[frozenset[str], ...]]] = {
    "threads": (frozenset({"id"}),),
    "runs": (frozenset({"id"}),),
    "stitches": (frozenset({"id"}), frozenset({"thread_id", "position"})),
    "agents": (frozenset({"project", "name"}),),
    "agent_versions": (frozenset({"project", "name", "version"}),),
}
"""The unique columns of tables. An outer join with one row at most adds nothing but its columns."""


@dataclass(frozen=True)
class _Select:
    """One SELECT of a view."""

    start: str
    columns: list[str]
    clauses: list[str]
    """FROM, each join, and WHERE."""


@dataclass(frozen=True)
class View:
    """A view of a lens."""

    name: str
    text: str
    """The statement that creates it."""

    @classmethod
    def parse(cls, statement: str) -> "View | None":
        """Return the view that a statement creates. None if it creates no view."""
        statement = statement.strip()
        found = _VIEW.match(statement)
        return None if found is None else cls(found[1], statement)

    @property
    def has_star(self) -> bool:
        """True if the view reads all columns of a table or of another view."""
        return _STAR.search(self.text) is not None

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns. Empty if the view has a form in which no column can be left out."""
        names = [_NAME.search(column) for column in self._selects[0].columns] if self._selects else []
        return [name[1] for name in names if name is not None]

    def reduced(self, names: Set[str], kinds: Mapping[str, str]) -> tuple[str, set[str]]:
        """Return the statement for readers that name only these columns, and the names that the view reads itself.

        The other columns are NULL, of the type in `kinds`. A table of which no column is read is not joined.
        """
        if not self.columns:
            return self.text, set(_WORD.findall(self.text))
        text, read = self.text[: self.text.index("\n")], set[str]()
        for select in self._selects:
            clauses = list(select.clauses)
            kept = [column for name, column in zip(self.columns, select.columns, strict=True) if name in names]
            for place in reversed(range(len(clauses))):
                if _is_useless(clauses[place], (*kept, *clauses[:place], *clauses[place + 1 :])):
                    del clauses[place]
            read.update(word for part in (*kept, *clauses) for word in _WORD.findall(part))
            columns = [
                column if name in names else f' CAST(NULL AS {kinds[name]}) AS "{name}"'
                for name, column in zip(self.columns, select.columns, strict=True)
            ]
            text += f"{select.start}{','.join(columns)}{''.join(clauses)}"
        return text, read

    @cached_property
    def _selects(self) -> list[_Select]:
        """The parts of the view. Empty if one of them has a form in which no column can be left out."""
        body = self.text[self.text.index("\n") :]
        selects: list[_Select] = []
        for part in _split(body, _UNION):
            start = _BRANCH.match(part)
            listed, *clauses = _split(part[start.end() :], _CLAUSE) if start else [""]
            if start is None or not clauses or any(clause.split()[0] not in _READING for clause in clauses):
                return []
            columns = [column.removeprefix(",") for column in _split(listed, _COMMA)]
            selects.append(_Select(start[0], columns, clauses))
        return selects


def _is_useless(clause: str, others: Sequence[str]) -> bool:
    """True if a join neither adds nor removes rows, and no other part of the SELECT reads its table."""
    found = _JOIN.match(clause)
    if found is None:
        return False
    left, table, alias, condition = found.groups()
    if any(alias in _WORD.findall(other) for other in others):
        return False
    if left is None:
        # Every row in a lake has the row of its thread.
        return table == "threads" and re.fullmatch(rf"{alias}\.id = \w+\.thread_id\s*", condition) is not None
    compared = set(re.findall(rf"(?<!\w){alias}\.(\w+) = ", condition))
    return " OR " not in condition and any(key <= compared for key in _KEYS.get(table, ()))


def _split(text: str, separator: re.Pattern[str]) -> Iterator[str]:
    """Yield the parts of a text. Each one but the first starts with a separator that is not in parentheses."""
    start = depth = 0
    for found in re.finditer(f"{_NESTED}|{separator.pattern}", text):
        if found[0] in ("(", ")"):
            depth += 1 if found[0] == "(" else -1
        elif depth == 0 and not found[0].startswith("'"):
            yield text[start : found.start()]
            start = found.start()
    yield text[start:]
