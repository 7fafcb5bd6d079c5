"""Parameters, request bodies, exact JSON responses."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from lockstitch.errors import Refused
from lockstitch.model import Record, codec

_LARGEST: Final = 2**53
"""Positions and counts: every reader of JSON has them exactly."""

_EARLIEST: Final = datetime(1900, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)


def _plain(text: str) -> str:
    try:
        return codec.check_text(text, "A text")
    except Refused as exc:
        raise ValueError("it has characters that cannot be stored") from exc


def _sensible(moment: datetime) -> datetime:
    # Compared without a conversion, which overflows at the ends of the calendar.
    if not _EARLIEST + timedelta(days=1) < moment < _LATEST:
        raise ValueError("that is no time for this record")
    return moment.astimezone(UTC)


TextParam = Annotated[str, AfterValidator(_plain)]
"""Text that every store can compare."""

TimeParam = Annotated[AwareDatetime, AfterValidator(_sensible)]
"""A time with its zone."""

ThreadRefParam = Annotated[TextParam, Path(description="A thread's id or key.", max_length=300)]
RunRef = Annotated[
    TextParam, Path(description="A run's id, or the id that another system knows it by.", max_length=300)
]
Id = Annotated[UUID, Path()]
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=_LARGEST)]
Position = Annotated[int, Query(ge=0, le=_LARGEST, description="A position in the thread's log.")]
Since = Annotated[TimeParam | None, Query(description="Only since then: a time with its zone.")]

Name = Annotated[TextParam, Field(min_length=1, max_length=255)]


class Body(BaseModel):
    """What a caller sends; a field that nobody reads is a mistake worth telling."""

    model_config = ConfigDict(extra="forbid")


class ExactJSON(JSONResponse):
    """JSON as the record has it: large integers and the order of keys survive."""

    def render(self, content: Any) -> bytes:
        return codec.dumps(content)


def rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    return [record.as_json() for record in records]
