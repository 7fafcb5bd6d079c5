"""`Reader`: the items of a stored body, some at a time and within a budget."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from lockstitch.errors import BodyTooExpensive, LockstitchError, Refused, Unreadable
from lockstitch.integrations import langsmith
from lockstitch.integrations.langfuse import read_scores
from lockstitch.integrations.langsmith.reader import read_feedback
from lockstitch.integrations.otel.logs import read_stored
from lockstitch.integrations.spans.budget import Budget, Limits, ReadingStopped
from lockstitch.integrations.spans.share import Share
from lockstitch.integrations.spans.span import Item, TraceSource, size_of
from lockstitch.model.side_records import IngestBody

LANGSMITH: Final = "langsmith"
OTEL: Final = "otel"
SOURCES: Final = (LANGSMITH, OTEL)

SCORES: Final = "/api/public/scores"
"""The path of stored scores of Langfuse clients."""

LOGS: Final = "/v1/logs"
"""The end of the paths of log records."""

_RUN: Final = re.compile(r"/runs/([^/?]+)$")
_FEEDBACK: Final = re.compile(r"/feedback(?:/([^/?]+))?$")
_AT_ONCE: Final = 100
_BYTES_AT_ONCE: Final = 1 << 20
"""Maximum number and size of the items of a body that a process which reads it holds."""
_PROBLEMS: Final = 100
"""Maximum number of listed problems of a body."""
_NO_RUNS: Final = frozenset({"batch", "multipart", "query"})


def source_of(source: str) -> TraceSource:
    """Return the trace source that reads bodies of a source."""
    if source == LANGSMITH:
        return langsmith.LangSmith()
    if source == OTEL:
        from lockstitch.integrations import otel

        return otel.OpenTelemetry()
    raise Refused(f"The source {source} is not supported.")


class Sized(NamedTuple):
    """An item, and its estimated size in bytes."""

    item: Item
    size: int


class Reader:
    """Reads the items of a body and collects its problems."""

    def __init__(self, row: IngestBody, limits: Limits | None = None) -> None:
        self.row = row
        self.budget = Budget(limits or Limits())
        self.problems: list[str] = []
        self.ended = False
        """True if all items were read."""
        self._items = self._opened()

    def read(self, most: int, most_bytes: int) -> list[Sized]:
        """Return the next items: at most this number, and at most one after this size. Fewer at the end of the body.

        Errors become problems of this body. A body that exceeds its budget ends there, with that as its problem.
        Raises `ReadingStopped` if another thread stopped the budget.
        """
        items: list[Sized] = []
        read = 0
        try:
            with self.budget.running():
                while len(items) < most and read < most_bytes:
                    item = next(self._items, None)
                    if item is None:
                        self.ended = True
                        break
                    size = size_of(item)
                    self.budget.item_size(size)
                    items.append(Sized(item, size))
                    read += size
            return items
        except ReadingStopped:
            raise
        except BodyTooExpensive as exc:
            # Insert it first, because it is the reason why the rest was not read.
            self.problems.insert(0, str(exc))
        except LockstitchError as exc:
            self.problems.append(str(exc))
        except RecursionError:
            self.problems.append("The JSON is nested too deeply.")
        except Exception as exc:
            self.problems.append(f"The body cannot be read: {type(exc).__name__}: {exc}")
        self.ended = True
        return items

    def _add_problem(self, exc: LockstitchError) -> None:
        if len(self.problems) < _PROBLEMS:
            self.problems.append(str(exc))

    def _opened(self) -> Iterator[Item]:
        row = self.row
        path = str(row.headers.get("path") or "")
        if row.source == OTEL and path == SCORES:
            yield from read_scores(row.body, self.budget)
        elif row.source == OTEL and path.endswith(LOGS):
            yield from read_stored(row.body, self.budget)
        elif row.source == OTEL:
            from lockstitch.integrations import otel

            yield from otel.read_body(row.body, on_bad=self._add_problem, budget=self.budget)
        elif match := _FEEDBACK.search(path):
            yield from read_feedback(row.body, "the body", match[1], self.budget)
        else:
            match = _RUN.search(path)
            run_id = match[1] if match and match[1] not in _NO_RUNS else None
            headers = {name: str(value) for name, value in row.headers.items()}
            yield from langsmith.read(
                row.body, "the body", headers, run_id=run_id, on_bad=self._add_problem, budget=self.budget
            )


def body_items(
    bodies: Sequence[IngestBody], limits: Limits | None, on_bad: Callable[[LockstitchError], None], share: Share
) -> Iterator[Item]:
    """Yield the items of a share of several bodies."""
    for body in share.of(bodies, lambda body: len(body.body)):
        reader = Reader(body, limits)
        while not reader.ended:
            for item, _ in reader.read(_AT_ONCE, _BYTES_AT_ONCE):
                yield item
        for problem in reader.problems:
            on_bad(Unreadable(problem))
