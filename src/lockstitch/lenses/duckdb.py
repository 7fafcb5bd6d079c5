"""`script`: the lenses in the SQL of DuckDB, made from their scripts for PostgreSQL.

So a lens has no third script. DuckDB reads the syntax of PostgreSQL. It has other names for JSON functions, another
precedence of `->`, and no scalar functions in FROM. Functions become macros. Those whose text DuckDB cannot read, or
that are faster with lists, are in `shared/duckdb.sql` and in `duckdb.sql` of a lens.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Final

from lockstitch.lenses import catalog

_FUNCTION: Final = re.compile(
    r"^CREATE OR REPLACE FUNCTION ([\w.]+)\((.*?)\)\s+RETURNS (.*?)\$\$(.*?)\$\$;$", re.MULTILINE | re.DOTALL
)
_INDEX: Final = re.compile(r"^CREATE INDEX .*?;$", re.MULTILINE | re.DOTALL)
_MACRO: Final = re.compile(r"^CREATE MACRO ([\w.]+)\(", re.MULTILINE)
_ALIAS_NAME: Final = re.compile(r"(?<!['\w])([a-z])(?!['\w(])")
_PARAMETER: Final = re.compile(r"(\w+) \w+( DEFAULT (\w+))?$")
_COMMENT: Final = re.compile(r"--[^\n]*")


def _member(found: re.Match[str]) -> str:
    """Return the path of DuckDB for a path such as `{inputs,prompts,0}`."""
    path = "".join(f"[{key}]" if key.isdecimal() else f".{key}" for key in found[2].split(","))
    return f"{found[1].replace('#', '-')} '${path}'"


_PATTERNS: Final[tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]] = (
    (r"\bjsonb_array_elements\((.*?)\) WITH ORDINALITY AS", r"lockstitch.elements(\1) AS"),
    (r"\bjsonb_each\(", "json_each("),
    (r"generate_series\(([^()]*)\) AS index", r"unnest(generate_series(\1)) AS numbers (index)"),
    (r"to_char\(([^']*?) AT TIME ZONE 'UTC', '[^']*SS\.US\"Z\"'\)", r"lockstitch.told_time(\1)"),
    (r"to_char\(([^']*?) AT TIME ZONE 'UTC', '[^']*SS\"Z\"'\)", r"strftime(\1, '%Y-%m-%dT%H:%M:%SZ')"),
    (r" AT TIME ZONE 'UTC'", ""),
    (r' COLLATE "C"', ""),
    (r"::uuid\b", "::VARCHAR"),
    (r"::jsonb?\b", "::JSON"),
    (r"::numeric\b", "::DOUBLE"),
    (r"#>> '\{\}'", "->> '$'"),
    (r"(#>>?) '\{([\w,]+)\}'", _member),
    (r"\bjsonb?_build_object\(", "json_object("),
    (r"\bjsonb_build_array\(", "json_array("),
    (r"\bjsonb_object_agg\(", "json_group_object("),
    (r"\bto_jsonb\(", "to_json("),
    # Sums over the runs of a turn, which only the turns of teams need.
    (
        r"\(SELECT sum\(([^()]*)\) FROM lockstitch\.runs m\s+WHERE m\.thread_id = r\.thread_id AND m\.turn = r\.turn\)",
        r"(SELECT \1 FROM lockstitch.team_turns m WHERE m.thread_id = r.thread_id AND m.turn = r.turn)",
    ),
)
_REWRITES: Final = [(re.compile(pattern, re.DOTALL), replacement) for pattern, replacement in _PATTERNS]

_AGGREGATE: Final = re.compile(r"\bjsonb?_agg(?=\()")
_FILTER: Final = re.compile(r"\s*FILTER \(")
_ARROW: Final = re.compile(r"\s*(->>?)\s*('[^']*'|\d+|[\w.]+(?:::text)?)")
_SCALAR: Final = re.compile(r"(FROM|LATERAL)\s+(lockstitch\.(?:safe_jsonb|message_at))(?=\()")
_ALIAS: Final = re.compile(r"\s+AS (\w+)(?!\w)(\s*\()?")


@cache
def script(name: str) -> str:
    """Return the statements that create the macros and the views of a lens, or of `shared`, in DuckDB."""
    own = catalog.script(name, "duckdb")
    defined = set(_MACRO.findall(own))

    def macro(found: re.Match[str]) -> str:
        function, parameters, returns, body = found.groups()
        if function in defined or "plpgsql" in returns:
            return ""
        table = "TABLE" if returns.startswith("SETOF") else ""
        # A macro is text: an argument `s.position` would mean a table `s` of the macro.
        text = _ALIAS_NAME.sub(r"own_\1", body.strip())
        text = text if table else f"({text})"
        return f"CREATE MACRO {function}({_parameters(parameters)}) AS {table} {text};"

    text = _COMMENT.sub("", catalog.script(name, "postgres"))
    return "\n".join((own, translate(_FUNCTION.sub(macro, _INDEX.sub("", text)))))


def _parameters(text: str) -> str:
    """Return the parameters of a function without their types."""
    found = [_PARAMETER.match(part.strip()) for part in text.split(",")]
    return ", ".join(f"{part[1]} := {part[3]}" if part[2] else part[1] for part in found if part)


def translate(text: str) -> str:
    """Return statements for PostgreSQL in the SQL of DuckDB."""
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return _arrows(_aggregates(_scalars(text)))


def _aggregates(text: str) -> str:
    """Replace `jsonb_agg(…) FILTER (…)`: in DuckDB, a list is built first."""

    def rewrite(text: str, start: int, end: int) -> tuple[str, int]:
        inner = text[end : _close(text, end)] + ")"
        stop = _close(text, end) + 1
        if found := _FILTER.match(text, stop):
            after = _close(text, found.end() - 1) + 1
            inner, stop = inner + text[stop:after], after
        return f"to_json(list{inner})", stop

    return _each(text, _AGGREGATE, rewrite)


def _scalars(text: str) -> str:
    """Replace a scalar function in FROM by a subquery with one column."""

    def rewrite(text: str, start: int, end: int) -> tuple[str, int]:
        found = _SCALAR.match(text, start)
        stop = _close(text, end) + 1
        alias = _ALIAS.match(text, stop)
        assert found is not None
        assert alias is not None
        call = f"{found[1]} (SELECT {found[2]}{text[end:stop]})"
        # In PostgreSQL the alias is also the name of the column.
        return f"{call} AS {alias[1]}{'' if alias[2] else f' ({alias[1]})'}", alias.end(1)

    return _each(text, _SCALAR, rewrite)


def _each(text: str, pattern: re.Pattern[str], rewrite: Callable[[str, int, int], tuple[str, int]]) -> str:
    """Replace every place of a pattern, the last one first, so that inner ones come before outer ones."""
    for found in reversed(list(pattern.finditer(text))):
        new, stop = rewrite(text, found.start(), found.end())
        text = text[: found.start()] + new + text[stop:]
    return text


def _arrows(text: str) -> str:
    """Replace `a -> 'b'` and `a ->> 'b'` by function calls, because DuckDB binds `->` weaker than a comparison."""
    while found := _ARROW.search(text):
        start = _operand(text, found.start())
        function = "json_extract_string" if found[1] == "->>" else "json_extract"
        text = f"{text[:start]}{function}({text[start : found.start()]}, {found[2]}){text[found.end() :]}"
    return text


def _operand(text: str, end: int) -> int:
    """Return the start of the operand that ends here: a name, a call, or a group in parentheses."""
    start = end
    if text[start - 1] == ")":
        depth = 0
        while True:
            start -= 1
            depth += {")": 1, "(": -1}.get(text[start], 0)
            if depth == 0:
                break
    while start and (text[start - 1].isalnum() or text[start - 1] in "_."):
        start -= 1
    return start


def _close(text: str, place: int) -> int:
    """Return the place of the parenthesis that closes the one at `place`."""
    depth = 0
    for end in range(place, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            return end
    raise ValueError(f"The parenthesis at {place} is not closed.")
