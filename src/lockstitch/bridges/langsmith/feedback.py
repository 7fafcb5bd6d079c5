"""Feedback as LangSmith's clients send it by itself: one remark, or what is to be said anew about one."""

from collections.abc import Iterator
from io import BytesIO

from lockstitch.bridges.budget import Budget
from lockstitch.bridges.langsmith.documents import Documents
from lockstitch.bridges.langsmith.opening import Source
from lockstitch.bridges.langsmith.pieces import remark
from lockstitch.bridges.langsmith.values import bag, items
from lockstitch.bridges.span import Remark
from lockstitch.errors import Unreadable

_LIMIT = 8 << 20


def read_feedback(
    body: bytes, name: str, feedback_id: str | None = None, budget: Budget | None = None
) -> Iterator[Remark]:
    """Yield the remarks of a body. `feedback_id` is the id in the URL: the body then changes that remark."""
    source = Source(BytesIO(body).read, budget=budget).unpacked()
    documents = Documents(source, name, _LIMIT)
    for _, record in documents.records():
        for said in items(record) or [record]:
            source.budget.item()
            found = bag(said)
            if feedback_id is not None:
                found = {**found, "id": feedback_id, "key": "-", "run_id": feedback_id}
            read = remark(found)
            if read is None:
                raise Unreadable(name, "this is no feedback about a run", where=f"record {documents.number}")
            yield read if feedback_id is None else read._replace(span_id=None, amends=True)
