"""`RulesPlanner`: a provider that plans by rules, without a model or a network.

It calls the tools in a fixed order and answers with a plan. Replies depend on the messages alone, so that an
interrupted session can resume.
"""

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

from lockstitch import Message, Refused
from lockstitch.apps.prioritizer.conclusion import confidences, summary
from lockstitch.apps.prioritizer.dependencies import dependents, detected, merged, normalised, untangled
from lockstitch.apps.prioritizer.models import Task, TaskDependency
from lockstitch.apps.prioritizer.prompt import DEPENDENCIES, PromptFacts, prompted_tasks, read_instructions
from lockstitch.ext import (
    Chunk,
    Download,
    Json,
    ModelRequest,
    Provider,
    ProviderError,
    Response,
    Usage,
    blocks,
    text_of,
)

_READ: Final = 5
"""Number of tasks whose documents are read."""


class _Turn(NamedTuple):
    """A thought with its tool call."""

    thought: str
    tool: str
    input: Json


class RulesPlanner(Provider):
    """Plans by rules with the same tools and steps as a model."""

    name = "rules"
    model = "planner"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Response, None]:
        content = self._content(request)
        for block in content:
            if block["type"] == "text":
                yield Chunk("text", block["text"])
            else:
                yield Chunk("tool_call", data=block)
        asks = any(block["type"] == "tool_use" for block in content)
        yield Response(
            message={"role": "assistant", "content": content},
            stop_reason="tool_use" if asks else "end_turn",
            usage=Usage(),
            response_id=f"rules_{request.turn}_{request.step}",
            model=self.model,
        )

    async def download(self, file_id: str) -> Download:
        raise ProviderError(f"File {file_id} not found.", "request")

    async def close(self) -> None:
        pass

    def _content(self, request: ModelRequest) -> list[Json]:
        if request.purpose == DEPENDENCIES:
            dependencies = [item.model_dump() for item in detected(prompted_tasks(text_of(request.messages[-1])))]
            return [{"type": "text", "text": json.dumps({"dependencies": dependencies}, ensure_ascii=False)}]
        prompt_facts = read_instructions(request.system or "")
        results = list(_results(request.messages))
        turns = _turns(prompt_facts.outcome, prompt_facts.tasks, results)
        if len(results) < len(turns) and request.tool_choice != "none" and prompt_facts.tasks:
            turn = turns[len(results)]
            call = {"type": "tool_use", "id": f"call_{request.turn}_{request.step}_0", "name": turn.tool}
            return [{"type": "text", "text": turn.thought}, {**call, "input": turn.input}]
        return [{"type": "text", "text": json.dumps(_answer(prompt_facts, results), ensure_ascii=False)}]


def _turns(outcome: str, tasks: Sequence[tuple[str, str]], results: Sequence[Json]) -> list[_Turn]:
    """Return the tool calls in order. Later calls use earlier results."""
    ids = [id for id, _ in tasks]
    near = [str(item["task_id"]) for item in _list(results[0].get("tasks"))] if results else []
    first = (near or ids or [""])[0]
    turns = [
        _Turn(
            "Which tasks are similar to the outcome?",
            "semantic-search",
            {"query": outcome or "tasks", "limit": 100, "threshold": 0.0},
        ),
        _Turn(
            f"Which stored dependencies does “{dict(tasks).get(first, first)}” have?",
            "query-task-graph",
            {"task_id": first},
        ),
    ]
    if len(ids) > 1:
        turns.append(_Turn("Which tasks depend on each other?", "detect-dependencies", {"task_ids": ids}))
    turns.append(_Turn("Which tasks are similar to each other?", "cluster-by-similarity", {"task_ids": ids}))
    read = (near or ids)[:_READ]
    turns.append(_Turn("What do their documents contain?", "get-document-context", {"task_ids": read}))
    return turns


def _answer(prompt_facts: PromptFacts, results: Sequence[Json]) -> Json:
    """Return the plan. Tasks with most dependents come first, then tasks with most similarity to the outcome."""
    ids = [id for id, _ in prompt_facts.tasks]
    relevance = {
        str(item["task_id"]): float(item["similarity"]) for result in results for item in _list(result.get("tasks"))
    }
    task_dependencies = [
        dependency
        for result in results
        for value in (result.get("dependencies"), result.get("relationships"))
        for dependency in _dependencies(value)
    ]
    dependencies = untangled(ids, merged([*prompt_facts.known, *task_dependencies], ids)).dependencies
    waiting = dependents(ids, dependencies)
    order = sorted(
        [Task(id=id, title=title) for id, title in prompt_facts.tasks],
        key=lambda task: (-waiting[task.id], -relevance.get(task.id, 0.0)),
    )
    return {
        "ordered_task_ids": [task.id for task in order],
        "dependencies": [],
        "confidence_scores": confidences(ids, dependencies, relevance),
        "synthesis_summary": summary(order, waiting) if order else "",
    }


def _dependencies(value: Any) -> Iterator[TaskDependency]:
    for item in _list(value):
        try:
            yield normalised(item)
        except Refused:
            continue


def _results(messages: Sequence[Message]) -> Iterator[Json]:
    """Yield the results of the tools in order, and an empty object for a failed call."""
    for message in messages:
        for block in blocks(message):
            if block.get("type") == "tool_result":
                yield _parsed_result(block)


def _parsed_result(block: Json) -> Json:
    content = block.get("content")
    if block.get("is_error") or not isinstance(content, str):
        return {}
    try:
        result = json.loads(content)
    except ValueError:
        return {}
    return cast("Json", result) if isinstance(result, dict) else {}


def _list(value: Any) -> list[Json]:
    if not isinstance(value, list):
        return []
    return [cast("Json", item) for item in cast("list[Any]", value) if isinstance(item, dict)]
