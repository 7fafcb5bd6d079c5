"""The steps of a session as its log has them: those that are done, and those that are being done."""

from lockstitch.apps.prioritizer.models import MAX_STEPS, ReasoningStep
from lockstitch.apps.prioritizer.pages.shown import Step
from lockstitch.apps.prioritizer.parsing import parsed, thought_of
from lockstitch.records import Run, Stitch, tool_uses
from lockstitch.store import Store


async def read_steps(store: Store, run: Run | None) -> tuple[list[ReasoningStep], list[Step]]:
    """The steps that a run has taken, and those whose tools have not answered yet."""
    if run is None:
        return [], []
    stitches = await store.log(run.id)
    responses = [one for one in stitches if one.type == "llm_call" and one.message is not None and one.lane is None]
    last = responses[-1] if responses else None
    answer = run.output_position
    if answer is None and last is not None and not tool_uses(last.message):
        # What calls nothing is the answer, also in the moment before the run has ended.
        answer = last.position
    steps = parsed(stitches, answer).steps
    return steps, _open(stitches, last, len(steps)) if run.status == "running" and last is not None else []


def _open(stitches: list[Stitch], response: Stitch, taken: int) -> list[Step]:
    """The calls of the last response that have no result yet."""
    answered = {one.call_index for one in stitches if one.type == "tool_call" and one.reply_to == response.position}
    calls = list(enumerate(tool_uses(response.message)))
    waiting = [(index, str(call.get("name", ""))) for index, call in calls if index not in answered]
    return [
        Step(
            number=taken + place,
            thought=(thought_of(response) or "") if index == 0 else "",
            tool=name,
            said="",
            took="",
            status="success",
            open=True,
        )
        for place, (index, name) in enumerate(waiting, start=1)
        if taken + place <= MAX_STEPS
    ]
