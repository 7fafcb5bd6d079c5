"""`Shell`: interactive SQL statements over the core tables or a lens, each ended by `;`."""

import os
import re
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from lockstitch.cli.render import output
from lockstitch.cli.render.output import Output
from lockstitch.errors import LockstitchError, Refused
from lockstitch.lenses import catalog
from lockstitch.model import SIDE_RECORDS, Delivery, Record, Run, Stitch, Thread, Worker, columns
from lockstitch.store import ANSWER, QueryResult
from lockstitch.sync import SyncStore

CORE: Final[tuple[type[Record], ...]] = (Thread, Run, Stitch, Delivery, Worker, *SIDE_RECORDS)

HELP: Final = """\
A statement ends with ; and can span several lines. Only reading is possible.
  .tables          list the tables
  .schema [TABLE]  list the columns of a table, or of all tables
  .lens [NAME]     query a lens; without a name, the core tables
  .help            show this text
  .quit            quit
A backslash instead of the dot also works."""

REMEMBERED: Final = 1000
"""Maximum number of lines in the history file."""


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """How the shell runs queries and prints results."""

    lens: str | None
    limit: int
    seconds: float
    form: str
    force: bool = False


class Shell:
    """An interactive session. Errors are printed and do not end it."""

    def __init__(self, out: Output, store: SyncStore, asking: QueryOptions, ask: Callable[[str], str] = input) -> None:
        self._out = out
        self._store = store
        self._options = asking
        self._ask = ask

    def run(self) -> None:
        """Read statements until .quit or the end of the input. Ctrl-C discards an incomplete statement."""
        self._out.note("Statements end with ; and can only read. .help shows the commands.")
        with _history():
            started = ""
            while True:
                try:
                    line = self._ask(self._prompt(started))
                except KeyboardInterrupt:
                    self._out.line()
                    started = ""
                    continue
                except EOFError:
                    self._out.line()
                    return
                if not started and is_command(line):
                    if line.split()[0][1:] in ("q", "quit", "exit"):
                        return
                    self._report_errors(lambda line=line: self.command(line))
                    continue
                started = f"{started}{line}\n" if started or line.strip() else ""
                if sqlite3.complete_statement(started):
                    statement, started = started.strip(), ""
                    self._report_errors(lambda statement=statement: self._answer(statement))

    def _prompt(self, started: str) -> str:
        return f"{self._options.lens or 'lockstitch'}{'-> ' if started else '=> '}"

    def _report_errors(self, act: Callable[[], None]) -> None:
        try:
            act()
        except LockstitchError as exc:
            self._out.note(str(exc))
        except KeyboardInterrupt:
            self._out.note("Stopped.")

    def _answer(self, statement: str) -> None:
        asking = self._options
        answer = ask(self._store, statement, asking)
        output.show(self._out, answer, asking.form)
        if answer.truncated:
            self._out.note(truncation_note(answer, asking.limit))

    def command(self, line: str) -> None:
        """Execute a command such as `.tables`. Raises `Refused` if it is not known."""
        name, *values = line.split()
        word = name[1:]
        if word == "lens" and len(values) <= 1:
            self._options = replace(self._options, lens=catalog.check(values[0]) if values else None)
        elif name == ".tables" and not values:
            self._print(table_names(self._store, self._options.lens))
        elif name == "\\tables" and not values:
            self._schema(None)
        elif word == "schema" and len(values) <= 1:
            self._schema(values[0].removesuffix(";") if values else None)
        elif word in ("?", "h", "help"):
            self._out.line(HELP)
        else:
            raise Refused(f"{' '.join((name, *values))} is not a command. .help shows the commands.")

    def _print(self, names: list[str]) -> None:
        if self._options.form == "json":
            self._out.json(names)
            return
        for name in names:
            self._out.line(name)

    def _schema(self, table: str | None) -> None:
        tables = dict(_tables(self._store, self._options.lens))
        if table is not None and table not in tables:
            raise Refused(f"Table {table} does not exist. The tables are: {', '.join(tables)}.")
        chosen = tables if table is None else {table: tables[table]}
        if self._options.form == "json":
            self._out.json(chosen)
            return
        for name, names in chosen.items():
            if table is None:
                self._out.line(f"{name}: {', '.join(names)}")
            else:
                for column, kind in names.items():
                    self._out.line(f"{column}  {kind}".rstrip())


def is_command(line: str) -> bool:
    """True if a line is a command of the shell and no statement."""
    return line.strip().startswith((".", "\\"))


_UNKNOWN_TABLE: Final = re.compile(r'no such table: (?:\w+\.)?(\w+)|relation "(?:\w+\.)?(\w+)" does not exist')


def ask(store: SyncStore, statement: str, asking: QueryOptions) -> QueryResult:
    """Run a statement. The error about an unknown table lists the known ones."""
    try:
        return store.sql(statement, limit=asking.limit, seconds=asking.seconds, lens=asking.lens, force=asking.force)
    except Refused as exc:
        unknown = _UNKNOWN_TABLE.search(str(exc))
        if unknown is None:
            raise
        known = ", ".join(table_names(store, asking.lens))
        of_lens = f" of lens {asking.lens}" if asking.lens else ""
        raise Refused(f"Table {unknown[1] or unknown[2]} does not exist. The tables{of_lens} are: {known}.") from exc


def table_names(store: SyncStore, lens: str | None) -> list[str]:
    """Return the names of the core tables, or of the tables of a lens."""
    if lens is None:
        return [kind.table for kind in CORE]
    # Views whose names start with lens_ are helpers of the tables of a lens.
    return [view for view in catalog.views(lens, store.lens_sql(lens, "postgres")) if not view.startswith("lens_")]


def _tables(store: SyncStore, lens: str | None) -> Generator[tuple[str, dict[str, str]]]:
    """Yield the tables with the types of their columns. The columns of a lens have no types."""
    if lens is None:
        for kind in CORE:
            yield kind.table, {name: column.name.lower() for name, column in columns(kind)}
        return
    with store.lens(lens) as connection:
        for view in table_names(store, lens):
            described: Any = connection.execute(f"SELECT * FROM {view} LIMIT 0").description
            yield view, {column[0]: "" for column in described}


def truncation_note(answer: QueryResult, limit: int, advice: str = "") -> str:
    """Return the note for a truncated result. `advice` is added if the row limit was the reason."""
    if len(answer.rows) < limit:
        return f"Only the first {len(answer.rows)} rows; more would be larger than {ANSWER >> 20} MiB."
    return f"Only the first {limit} rows{advice}."


@contextmanager
def _history() -> Generator[None]:
    """Enable line editing and load and save the history. Does nothing without readline."""
    try:
        readline = import_module("readline")
    except ImportError:
        yield
        return
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    file = Path(state) / "lockstitch" / "sql_history"
    readline.set_history_length(REMEMBERED)
    with suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            # Queries can contain names that other users must not read.
            file.touch(mode=0o600)
            readline.write_history_file(file)
