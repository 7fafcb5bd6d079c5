"""Answers in JSON, written by our own codec: content is exact."""

from collections.abc import Iterable
from typing import Any

from starlette.responses import JSONResponse

from lockstitch.records import Record, codec


class Exact(JSONResponse):
    """JSON as the record has it: large integers and the order of keys survive."""

    def render(self, content: Any) -> bytes:
        return codec.dumps(content)


def rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    return [record.as_json() for record in records]
