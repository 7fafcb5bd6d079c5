"""The five tools of the agent, with limits on steps and time.

A session has at most ten steps. The number of a call comes from the log, so that it is the same after a crash.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import Field

from lockstitch import Stitch, StoreUnreachable, Tool, ToolContext, ToolFailed, tool
from lockstitch.apps.prioritizer.dependencies import detected
from lockstitch.apps.prioritizer.models import (
    MAX_STEPS,
    DetectionMethod,
    Model,
    RelationshipType,
    Share,
    Task,
    TaskDependency,
    TaskId,
)
from lockstitch.apps.prioritizer.prompt import DEPENDENCIES, Rejected, dependency_prompt, read_dependencies
from lockstitch.apps.prioritizer.repository import TaskBase, base_of
from lockstitch.apps.prioritizer.waves import TaskEmbeddings, clusters
from lockstitch.ext import Json, ProviderError, run_blocking, tool_uses

_log: Final = logging.getLogger("lockstitch.prioritizer")

OUT_OF_STEPS: Final = (
    f"All {MAX_STEPS} steps of this session are used, so this call was not executed. Answer with the plan now, as JSON."
)


class Output(Model):
    """Base class of tool results."""

    performance_warning: str | None = None
    """Set if the call was slow."""


@dataclass(frozen=True)
class Pace:
    """Retries and time limits of tool calls, in seconds."""

    retries: int = 2
    delay: float = 2.0
    slow: float = 5.0
    hard_timeout: float = 300.0
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep


def with_limits(tool: Tool, pace: Pace) -> Tool:
    """Return the tool with limits on steps, retries and time."""
    inner = tool.call
    assert inner is not None

    async def call(context: ToolContext, value: Json) -> Any:
        log = await context.store.log(context.run_id)
        if place(log, context.response_id, context.call_index) >= MAX_STEPS:
            raise ToolFailed(OUT_OF_STEPS)
        clock = context.store.clock
        began = clock.now()
        if log and log[0].at is not None and (began - log[0].at).total_seconds() > pace.hard_timeout:
            context.complete(timed_out(pace.hard_timeout), status="failed")
            return Output(performance_warning=timed_out(pace.hard_timeout))
        output = await _with_retries(lambda: inner(context, value), tool.name, pace)
        took = (clock.now() - began).total_seconds()
        if took <= pace.slow or not isinstance(output, Output):
            return output
        text = f"{tool.name} took {took:.1f} s"
        _log.warning("%s in session %s", text, context.thread.id)
        return output.model_copy(update={"performance_warning": text})

    return replace(tool, call=call)


async def _with_retries(call: Callable[[], Awaitable[Any]], name: str, pace: Pace) -> Any:
    """Call a tool. Repeat the call after a temporary failure."""
    for attempt in range(pace.retries):
        try:
            return await call()
        except Exception as exc:
            if not is_temporary(exc):
                raise
            _log.info("%s failed, will retry (%d): %s", name, attempt + 1, exc)
        await pace.sleep(pace.delay)
    return await call()


def timed_out(seconds: float) -> str:
    return f"The session did not finish within {seconds:g} s."


def is_temporary(exc: Exception) -> bool:
    """True if the failure is temporary."""
    if isinstance(exc, ProviderError):
        return exc.retryable
    return isinstance(exc, StoreUnreachable | ConnectionError | TimeoutError)


def place(log: Sequence[Stitch], response_id: UUID | None, call_index: int) -> int:
    """Return the number of steps before a call: earlier calls, and responses without a call.

    The response and the index name the call, since a later response may use the same call id.
    """
    before = 0
    for stitch in log:
        if stitch.type != "llm_call" or stitch.message is None or stitch.lane is not None:
            continue
        if stitch.id == response_id:
            return before + call_index
        before += len(tool_uses(stitch.message)) or 1
    return before


CHUNK: Final = 4_000
"""Number of characters of a document on one page."""
OVERLAP: Final = 200
"""Number of characters that a page repeats from the previous page."""

_ANSWER_TOKENS: Final = 8_192
"""Maximum number of tokens of the model's answer with dependencies."""

Ids = Annotated[list[TaskId], Field(min_length=1, max_length=2_000)]


class SimilarTask(Model):
    task_id: TaskId
    title: str
    similarity: float
    document_id: UUID


class Search(Output):
    tasks: list[SimilarTask]


class Dependencies(Output):
    dependencies: list[TaskDependency]
    detection_method: DetectionMethod
    """`ai_inference` if the model inferred them, or `rules`."""
    unknown_task_ids: list[str] = []


class Graph(Output):
    task_id: TaskId
    relationships: list[TaskDependency]


class Cluster(Model):
    cluster_id: int
    task_ids: list[TaskId]


class Clusters(Output):
    clusters: list[Cluster]
    threshold: float
    unknown_task_ids: list[str] = []


class TaskLine(Model):
    task_id: TaskId
    title: str


class DocumentPage(Model):
    document_id: UUID
    title: str
    markdown: str
    tasks: list[TaskLine]


class Context(Output):
    documents: list[DocumentPage]
    page: int
    pages: int
    unknown_task_ids: list[str] = []


def tools_of(task_embeddings: TaskEmbeddings, pace: Pace, *, has_model: bool = False) -> list[Tool]:
    """Return the five tools with limits. With a model, it infers dependencies. Otherwise rules do."""

    @tool(name="semantic-search", effect="safe")
    async def search(
        ctx: ToolContext,
        query: Annotated[str, Field(min_length=1, max_length=4_000)],
        limit: Annotated[int, Field(ge=1, le=100)] = 20,
        threshold: Share | None = None,
    ) -> Search:
        """Find the tasks that are most similar to a text, best first. The threshold has a default."""
        base = await base_of(ctx.store, ctx.thread)
        least = task_embeddings.threshold if threshold is None else threshold
        near = await task_embeddings.relevance(query, await task_embeddings.of_tasks(list(base.tasks.values())))
        ranked = sorted(((value, id) for id, value in near.items() if value >= least), key=lambda item: -item[0])
        return Search(
            tasks=[
                SimilarTask(
                    task_id=id,
                    title=base.tasks[id].title,
                    similarity=round(value, 4),
                    document_id=base.document_of[id].id,
                )
                for value, id in ranked[:limit]
            ]
        )

    @tool(name="detect-dependencies", effect="safe")
    async def detect(
        ctx: ToolContext, task_ids: Annotated[list[TaskId], Field(min_length=2, max_length=2_000)]
    ) -> Dependencies:
        """Infer dependencies between two or more tasks from their texts. The source waits for the target."""
        tasks, unknown = _known(await base_of(ctx.store, ctx.thread), task_ids, 2)
        if has_model:
            dependencies = await _inferred(ctx, tasks)
        else:
            # Thousands of tasks would block the event loop.
            dependencies = await run_blocking(lambda: detected(tasks))
        method: DetectionMethod = "ai_inference" if has_model else "rules"
        return Dependencies(dependencies=dependencies, detection_method=method, unknown_task_ids=unknown)

    @tool(name="query-task-graph", effect="safe")
    async def query(ctx: ToolContext, task_id: TaskId, relationship_type: RelationshipType | None = None) -> Graph:
        """Return the stored relationships of a task, of one type or all. The source waits for the target."""
        base = await base_of(ctx.store, ctx.thread)
        _known(base, [task_id], 1)
        return Graph(
            task_id=task_id,
            relationships=[
                dependency
                for dependency in base.dependencies
                if task_id in (dependency.source_task_id, dependency.target_task_id)
                and relationship_type in (None, dependency.relationship_type)
            ],
        )

    @tool(name="cluster-by-similarity", effect="safe")
    async def cluster(ctx: ToolContext, task_ids: Ids, threshold: Share | None = None) -> Clusters:
        """Group similar tasks. The threshold has a default."""
        tasks, unknown = _known(await base_of(ctx.store, ctx.thread), task_ids, 1)
        least = task_embeddings.close if threshold is None else threshold
        vectors = await task_embeddings.of_tasks(tasks)
        groups = await run_blocking(lambda: clusters([vectors[task.id] for task in tasks], least))
        return Clusters(
            clusters=[
                Cluster(cluster_id=number, task_ids=[tasks[index].id for index in group])
                for number, group in enumerate(groups, start=1)
            ],
            threshold=least,
            unknown_task_ids=unknown,
        )

    @tool(name="get-document-context", effect="safe")
    async def context(ctx: ToolContext, task_ids: Ids, page: Annotated[int, Field(ge=1)] = 1) -> Context:
        """Return the documents that contain tasks, with all their tasks. One call returns one page of each document."""
        base = await base_of(ctx.store, ctx.thread)
        tasks, unknown = _known(base, task_ids, 1)
        documents = {base.document_of[task.id].id: base.document_of[task.id] for task in tasks}
        pages = {id: chunks(document.markdown) for id, document in documents.items()}
        return Context(
            documents=[
                DocumentPage(
                    document_id=id,
                    title=document.title,
                    markdown=pages[id][page - 1],
                    tasks=[TaskLine(task_id=task.id, title=task.title) for task in document.tasks],
                )
                for id, document in documents.items()
                if page <= len(pages[id])
            ],
            page=page,
            pages=max(map(len, pages.values())),
            unknown_task_ids=unknown,
        )

    return [with_limits(tool, pace) for tool in (search, detect, query, cluster, context)]


async def _inferred(ctx: ToolContext, tasks: Sequence[Task]) -> list[TaskDependency]:
    """Return the dependencies that the model of the session infers. Raises `ToolFailed` if its answer is not JSON."""
    answer = await ctx.ask_model(dependency_prompt(tasks), purpose=DEPENDENCIES, max_tokens=_ANSWER_TOKENS)
    try:
        return read_dependencies(answer, [task.id for task in tasks])
    except Rejected as exc:
        raise ToolFailed(f"Dependencies were not inferred. {exc}") from exc


def chunks(text: str) -> list[str]:
    """Split a text into pages. Each page starts with the end of the previous page."""
    starts = range(0, max(1, len(text) - OVERLAP), CHUNK - OVERLAP)
    return [text[start : start + CHUNK] for start in starts]


def _known(base: TaskBase, ids: Sequence[str], least: int) -> tuple[list[Task], list[str]]:
    """Return the tasks with these ids and the unknown ids. Raises `ToolFailed` for fewer than `least` tasks."""
    distinct = list(dict.fromkeys(ids))
    tasks = [base.tasks[id] for id in distinct if id in base.tasks]
    unknown = [id for id in distinct if id not in base.tasks]
    if len(tasks) < least:
        named = f" Unknown tasks: {', '.join(unknown[:5])}." if unknown else ""
        raise ToolFailed(f"Pass at least {least} of the session's tasks.{named}")
    return tasks, unknown
