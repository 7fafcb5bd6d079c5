"""The annotation queue: finished runs with their questions and answers."""

from typing import Annotated

from fastapi import Query

from lockstitch.server.api import responses
from lockstitch.server.api.schemas import ExactJSON, TextParam
from lockstitch.server.api.threads import ThreadFilters
from lockstitch.server.auth import Reader
from lockstitch.server.routing import LazyRouter
from lockstitch.store.annotation import runs_to_annotate

router = LazyRouter(prefix="/api/annotate", tags=["feedback"], default_response_class=ExactJSON)

Text = Annotated[TextParam | None, Query(max_length=255)]


@router.get("", response_model=responses.RunsToAnnotate)
async def queue(
    caller: Reader,
    filters: ThreadFilters,
    without_feedback_of: Text = None,
    name: Annotated[Text, Query(description="Only feedback with this name counts.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[Text, Query(description="`next` of the previous page.")] = None,
) -> ExactJSON:
    """List finished runs of the threads that meet the filters, each with its inputs and outputs.

    With `without_feedback_of`, runs that this user has rated are left out. Pass `next` as `after` for the next page.
    """
    page = await runs_to_annotate(
        caller.store, without_feedback_of=without_feedback_of, name=name, limit=limit, after=after, **filters
    )
    return ExactJSON(await page.as_json(caller.store))
