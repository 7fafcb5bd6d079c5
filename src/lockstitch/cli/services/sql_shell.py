"""`Shell`: interactive SQL statements over the core tables or a lens, each ended by `;`."""

import os
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
  \\lens NAME   query a lens; without a name, the core tables
  \\tables      list the tables with their columns
  \\q           quit"""

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
        """Read statements until \\q or the end of the input. Ctrl-C discards an incomplete statement."""
        self._out.note("Statements end with ; and can only read. \\? shows the commands.")
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
                if not started and line.strip().startswith("\\"):
                    if line.split()[0] in ("\\q", "\\quit"):
                        return
                    self._report_errors(lambda line=line: self._command(*line.split()))
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
        answer = self._store.sql(
            statement, limit=asking.limit, seconds=asking.seconds, lens=asking.lens, force=asking.force
        )
        output.show(self._out, answer, asking.form)
        if answer.truncated:
            self._out.note(truncation_note(answer, asking.limit))

    def _command(self, name: str, *values: str) -> None:
        if name == "\\lens" and len(values) <= 1:
            self._options = replace(self._options, lens=catalog.check(values[0]) if values else None)
        elif name == "\\tables" and not values:
            for table, names in self._tables():
                self._out.line(f"{table}: {', '.join(names)}")
        elif name in ("\\?", "\\help"):
            self._out.line(HELP)
        else:
            raise Refused(f"{' '.join((name, *values))} is not a command. \\? shows the commands.")

    def _tables(self) -> Generator[tuple[str, list[str]]]:
        if self._options.lens is None:
            for kind in CORE:
                yield kind.table, [name for name, _ in columns(kind)]
            return
        with self._store.lens(self._options.lens) as connection:
            parts = self._store.lens_sql(self._options.lens, "postgres")
            for view in catalog.views(self._options.lens, parts):
                if view.startswith("lens_"):
                    continue  # helper views that the tables of a lens use
                described: Any = connection.execute(f"SELECT * FROM {view} LIMIT 0").description
                yield view, [column[0] for column in described]


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
