"""`feedback_of`: scores of Langfuse as feedback on spans and traces."""

import re
from collections.abc import Iterator
from typing import Any, Final

from lockstitch.errors import Refused
from lockstitch.integrations.langsmith.runs import time_text
from lockstitch.integrations.otel.values import as_json, as_number, as_text
from lockstitch.integrations.spans.batch import redact
from lockstitch.integrations.spans.budget import Budget
from lockstitch.integrations.spans.span import SpanFeedback
from lockstitch.integrations.spans.values import name, storable
from lockstitch.model import Json, codec

_WORD: Final = re.compile(r"_([a-z])")


def camel_case(row: Json) -> Json:
    """Return a row with the names of the API. Exports to a bucket have names in snake case."""
    return {_WORD.sub(lambda match: match[1].upper(), key): value for key, value in row.items()}


def feedback_of(score: Json) -> SpanFeedback:
    """Return a score as feedback. Raises `Refused` if it has no name, no value, or belongs to no trace."""
    fields = camel_case(as_json(storable(score)))
    key, trace_id = name(fields.get("name")), name(fields.get("traceId"))
    if key is None:
        raise Refused("A score has no name.")
    if trace_id is None:
        raise Refused(f"Score {key} has no traceId. Scores of sessions and dataset runs are not supported.")
    value, text = fields.get("value"), as_text(fields.get("stringValue"))
    if isinstance(value, str) and as_number(value) is None:
        value, text = None, value
    number = float(value) if isinstance(value, bool) else as_number(value)
    if fields.get("dataType") in ("CATEGORICAL", "TEXT", "CORRECTION") and text is not None:
        # The number of a category is derived from its configuration.
        number = None
    if number is None and text is None:
        raise Refused(f"Score {key} has no value.")
    about: Json = {} if number is not None else {"value": text}
    if metadata := fields.get("metadata"):
        about["metadata"] = redact(metadata)
    observation_id = name(fields.get("observationId"))
    return SpanFeedback(
        id=name(fields.get("id")) or codec.digest(fields),
        span_id=f"{trace_id}:{observation_id}" if observation_id else None,
        trace_id=trace_id,
        key=key,
        score=float(number) if number is not None and abs(number) < 1e300 else None,
        value=about or None,
        comment=as_text(fields.get("comment")),
        at=time_text(fields.get("timestamp") or fields.get("createdAt")),
    )


def read_scores(body: bytes, budget: Budget) -> Iterator[SpanFeedback]:
    """Yield the scores of a stored body, which is a list of scores that `feedback_of` accepts."""
    scores: Any = codec.loads(body)
    for score in scores:
        budget.item()
        yield feedback_of(score)
