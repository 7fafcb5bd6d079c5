"""Feedback as LangSmith's clients send it by itself: one remark, or what is to be said anew about one."""

from collections.abc import Iterator
from io import BytesIO

from lockstitch.bridges.langsmith.documents import Documents
from lockstitch.bridges.langsmith.opening import Source
from lockstitch.bridges.langsmith.pieces import remark
from lockstitch.bridges.langsmith.values import bag, items
from lockstitch.bridges.span import Remark
from lockstitch.errors import Unreadable

_LIMIT = 8 << 20


def read_feedback(body: bytes, name: str, feedback_id: str | None = None) -> Iterator[Remark]:
    """The remarks of a body. `feedback_id` is what the URL names: the body then changes that one."""
    source = Source(BytesIO(body).read).unpacked()
    documents = Documents(source, name, _LIMIT)
    for _, record in documents.records():
        for said in items(record) or [record]:
            found = bag(said)
            if feedback_id is not None:
                found = {**found, "id": feedback_id, "key": "-", "run_id": feedback_id}
            read = remark(found)
            if read is None:
                raise Unreadable(name, "this is no feedback about a run", where=f"record {documents.number}")
            yield read if feedback_id is None else read._replace(span_id=None, amends=True)
