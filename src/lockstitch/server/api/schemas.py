"""Types of parameters and request bodies, and `ExactJSON` responses."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import Header, Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from lockstitch.errors import Refused
from lockstitch.model import Record, codec
from lockstitch.model.delivery import MESSAGE_ID_CHARS

_LARGEST: Final = 2**53
"""Upper bound of positions and counts. All JSON parsers read it exactly."""

_EARLIEST: Final = datetime(1900, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)


def _plain(text: str) -> str:
    try:
        return codec.check_text(text, "A text")
    except Refused as exc:
        raise ValueError("the text has characters that cannot be stored") from exc


def _sensible(moment: datetime) -> datetime:
    # Compare before the conversion, which overflows at the limits of the calendar.
    if not _EARLIEST + timedelta(days=1) < moment < _LATEST:
        raise ValueError("the time is out of range")
    return moment.astimezone(UTC)


TextParam = Annotated[str, AfterValidator(_plain)]
"""A text without characters that cannot be stored."""

TimeParam = Annotated[AwareDatetime, AfterValidator(_sensible)]
"""A time with a time zone."""

ThreadRefParam = Annotated[TextParam, Path(description="A thread's id or key.", max_length=300)]
"""A parameter of a path: the id or the key of a thread."""
RunRef = Annotated[TextParam, Path(description="A run's id, or its id in the source system.", max_length=300)]
Id = Annotated[UUID, Path()]
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[int, Query(ge=0, le=_LARGEST)]
Position = Annotated[int, Query(ge=0, le=_LARGEST, description="A position in the thread's log.")]
Since = Annotated[TimeParam | None, Query(description="Only after this time (with time zone).")]

Name = Annotated[TextParam, Field(min_length=1, max_length=255)]
MessageId = Annotated[TextParam, Field(min_length=1, max_length=MESSAGE_ID_CHARS)]
"""An id that the client gives a message, unique per thread."""
IdempotencyKey = Annotated[
    MessageId | None, Header(description="The id of the message, as an alternative to message_id.")
]
"""The header `Idempotency-Key`: the id of a message."""


class Body(BaseModel):
    """Base class of request bodies. Unknown fields are an error."""

    model_config = ConfigDict(extra="forbid")


class ExactJSON(JSONResponse):
    """A JSON response that keeps large integers and the order of keys."""

    def render(self, content: Any) -> bytes:
        return codec.dumps(content)


def rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    return [record.as_json() for record in records]
