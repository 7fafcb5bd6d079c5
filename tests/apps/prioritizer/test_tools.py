"""The five tools: input, output and limits."""

import json
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from lockstitch.agents import ToolContext, ToolFailed
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.registry import embedder
from lockstitch.apps.prioritizer import Prioritizer, repository
from lockstitch.apps.prioritizer.agent_tools import CHUNK, OVERLAP, Pace, chunks, tools_of
from lockstitch.apps.prioritizer.models import TOOLS, TaskDependency
from lockstitch.apps.prioritizer.records import Session
from lockstitch.apps.prioritizer.sessions import metadata_of, plan_of, trace_of
from lockstitch.apps.prioritizer.waves import TaskEmbeddings
from lockstitch.engine.ports.provider import ModelRequest, ProviderError
from lockstitch.errors import Refused, StoreUnreachable
from lockstitch.model import FakeClock
from lockstitch.store import Store
from tests.apps.prioritizer.samples import CHECKOUT, needs

pytestmark = pytest.mark.anyio


MANY = "".join(f"- [ ] M{number}: Step {number} of the move\n" for number in range(25))


async def start_session(store: Store, content: str = CHECKOUT, user: str = "ada") -> Session:
    await repository.add_file(store, user, content, "plan.md")
    outcome = await repository.add_outcome(store, user, "Open the checkout")
    return await Prioritizer().start(store, user, outcome.id, replace=True)


async def use(store: Store, session: Session, name: str, **arguments: Any) -> Any:
    """Call a tool like the runtime does, at the start of a session."""
    run = store.new_run(await store.thread(session.thread_id))
    (tool,) = [
        tool for tool in tools_of(TaskEmbeddings(embedder("hashing")), Pace(sleep=_no_sleep)) if tool.name == name
    ]
    thread = await store.thread(session.thread_id)
    context = ToolContext(thread=thread, run_id=run.id, call_id="c", step=1, store=_Logless(store))  # type: ignore[arg-type]
    assert tool.call is not None
    output = await tool.call(context, arguments)
    return json.loads(output.model_dump_json())


class _Logless:
    """A store that returns an empty log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def log(self, run_id: UUID) -> list[Any]:
        return []


async def _no_sleep(seconds: float) -> None: ...


@pytest.mark.req("S1-079")
async def test_search_returns_similar_tasks(office: Store) -> None:
    session = await start_session(office)
    tasks = (await use(office, session, "semantic-search", query="payments that fail"))["tasks"]
    assert tasks[0]["task_id"] == "T5"
    assert [task["similarity"] for task in tasks] == sorted((task["similarity"] for task in tasks), reverse=True)
    assert all(task["similarity"] >= embedder("hashing").threshold for task in tasks), "the threshold of the embedder"
    assert len((await use(office, session, "semantic-search", query="payment", threshold=0.0))["tasks"]) == 6
    assert len((await use(office, session, "semantic-search", query="payment", threshold=0.0, limit=2))["tasks"]) == 2
    assert (await use(office, session, "semantic-search", query="payment", threshold=1.0))["tasks"] == []
    long = await start_session(office, MANY, "bea")
    for limits, count in (({}, 20), ({"limit": 1}, 1), ({"limit": 100}, 25)):
        search = {"query": "Step of the move", "threshold": 0.0, **limits}
        assert len((await use(office, long, "semantic-search", **search))["tasks"]) == count
    for wrong in ({}, {"query": ""}, {"query": "x", "limit": 0}, {"query": "x", "limit": 101}):
        with pytest.raises(Refused, match="Invalid arguments"):
            await use(office, session, "semantic-search", **wrong)
    for wrong in ({"threshold": -0.1}, {"threshold": 1.1}, {"limit": "many"}, {"more": 1}):
        with pytest.raises(Refused, match="Invalid arguments"):
            await use(office, session, "semantic-search", query="x", **wrong)


@pytest.mark.req("S1-080")
async def test_detect_returns_dependencies(office: Store) -> None:
    session = await start_session(office)
    result = await use(office, session, "detect-dependencies", task_ids=["T7", "T1", "T7", "ghost"])
    assert result["unknown_task_ids"] == ["ghost"]
    (dependency,) = result["dependencies"]
    assert (dependency["source_task_id"], dependency["target_task_id"], dependency["detection_method"]) == (
        "T7",
        "T1",
        "rules",
    )
    assert result["detection_method"] == "rules"
    assert 0 < dependency["confidence"] < 1
    assert TaskDependency.model_validate(dependency) == needs(
        "T7", "T1", dependency["confidence"], detection_method="rules"
    )
    whole = await use(office, session, "detect-dependencies", task_ids=["T4", "T1", "T2", "T5", "T7", "T3"])
    assert dependency in whole["dependencies"], "the other tasks do not hide it"
    assert {found["detection_method"] for found in whole["dependencies"]} == {"rules"}
    apart = await use(office, session, "detect-dependencies", task_ids=["T4", "T1"])
    assert (apart["dependencies"], apart["unknown_task_ids"]) == ([], [])
    for wrong in (["T1"], [], "T1", [1, 2]):
        with pytest.raises(Refused, match="Invalid arguments"):
            await use(office, session, "detect-dependencies", task_ids=wrong)
    with pytest.raises(ToolFailed, match="Unknown tasks: ghost"):
        await use(office, session, "detect-dependencies", task_ids=["T1", "ghost"])


WAITS = {"source_task_id": "T4", "target_task_id": "T7", "relationship_type": "blocks", "confidence": 0.7}


def detector(answer: Any) -> Prioritizer:
    """Return a prioritizer whose model calls detect-dependencies, and gives this answer when the tool asks it."""
    call = {"name": "detect-dependencies", "input": {"task_ids": ["T7", "T1", "T4", "ghost"]}}

    def reply(request: ModelRequest) -> Any:
        if request.purpose == "dependencies":
            return answer
        return {"calls": [call]} if request.step == 1 else "no plan"

    return Prioritizer(model=Scripted(reply), base_delay=0.0)


@pytest.mark.req("S1-053", "S1-080")
async def test_model_infers_dependencies(office: Store) -> None:
    await repository.add_file(office, "ada", CHECKOUT, "plan.md")
    outcome = await repository.add_outcome(office, "ada", "Open the checkout")
    unknown = {**WAITS, "source_task_id": "ghost"}
    answer = json.dumps({"dependencies": [WAITS, unknown, {"odd": 1}]})
    session = await detector({"text": answer, "usage": {"input_tokens": 70, "output_tokens": 9}}).prioritize(
        office, "ada", outcome.id
    )
    (step,) = (await trace_of(office, session)).steps
    assert step.tool_output is not None
    assert step.tool_output["dependencies"] == [{**WAITS, "detection_method": "ai_inference"}]
    assert (step.tool_output["detection_method"], step.tool_output["unknown_task_ids"]) == ("ai_inference", ["ghost"])
    plan = plan_of(session)
    assert plan is not None
    methods = {(item.source_task_id, item.target_task_id): item.detection_method for item in plan.dependencies}
    assert methods["T4", "T7"] == "ai_inference"
    calls = [stitch for stitch in await office.stitches(session.thread_id) if stitch.type == "llm_call"]
    (question,) = [stitch for stitch in calls if stitch.data.get("purpose") == "dependencies"]
    assert (question.input_tokens, question.message) == (70, None)
    (run,) = await office.runs(session.thread_id)
    assert run.input_tokens == sum(stitch.input_tokens or 0 for stitch in calls)
    assert run.steps == 2, "the question of a tool is not a step"


@pytest.mark.req("S1-080")
async def test_detect_fails_when_answer_of_the_model_is_not_json(office: Store) -> None:
    await repository.add_file(office, "ada", CHECKOUT, "plan.md")
    outcome = await repository.add_outcome(office, "ada", "Open the checkout")
    session = await detector("I do not know.").prioritize(office, "ada", outcome.id)
    (step,) = (await trace_of(office, session)).steps
    assert step.status == "failed"
    assert "detect-dependencies failed: dependencies were not inferred" in (metadata_of(session).status_note or "")


@pytest.mark.req("S1-081", "S1-084")
async def test_graph_returns_stored_relationships(office: Store) -> None:
    session = await start_session(office)
    await repository.add_relationship(office, "ada", "T2", "T1", "related", 0.4)
    relationships = (await use(office, session, "query-task-graph", task_id="T2"))["relationships"]
    ends = [
        (relationship["source_task_id"], relationship["target_task_id"], relationship["relationship_type"])
        for relationship in relationships
    ]
    assert sorted(ends) == [
        ("T2", "T1", "related"),
        ("T2", "T4", "prerequisite"),
        ("T3", "T2", "prerequisite"),
        ("T5", "T2", "prerequisite"),
    ], "as source and as target"
    assert {relationship["detection_method"] for relationship in relationships} == {"stored_relationship"}
    only = await use(office, session, "query-task-graph", task_id="T2", relationship_type="related")
    assert [relationship["confidence"] for relationship in only["relationships"]] == [0.4]
    with pytest.raises(ToolFailed):
        await use(office, session, "query-task-graph", task_id="ghost")
    with pytest.raises(Refused):
        await use(office, session, "query-task-graph", task_id="T2", relationship_type="follows")


@pytest.mark.req("S1-082")
async def test_cluster_groups_similar_tasks(office: Store) -> None:
    session = await start_session(
        office, "- [ ] a1: Paint the hall\n- [ ] b1: Print posters\n- [ ] c1: Paint the kitchen\n"
    )
    result = await use(office, session, "cluster-by-similarity", task_ids=["a1", "b1", "c1"])
    assert [cluster["task_ids"] for cluster in result["clusters"]] == [["a1", "c1"], ["b1"]]
    apart = await use(office, session, "cluster-by-similarity", task_ids=["a1", "b1", "c1"], threshold=0.99)
    assert len(apart["clusters"]) == 3
    with pytest.raises(Refused):
        await use(office, session, "cluster-by-similarity", task_ids=["a1"], threshold=2)

    class Precise:
        name, threshold = "precise", 0.7

    assert TaskEmbeddings(Precise()).close == 0.75  # type: ignore[arg-type]


@pytest.mark.req("S1-083", "S1-084")
async def test_context_returns_pages_of_documents(office: Store) -> None:
    long = "# Long\n- [ ] L1: Read\n\n" + "".join(f"{number:05d} " for number in range(2_000))
    session = await start_session(office, f"{CHECKOUT}\n{long}")
    first = await use(office, session, "get-document-context", task_ids=["T4", "T1", "L1"])
    assert [document["title"] for document in first["documents"]] == ["Checkout brief", "Long"]
    assert [task["task_id"] for task in first["documents"][0]["tasks"]] == ["T4", "T1", "T2", "T5"]
    body = {"task_ids": ["T4", "L1"]}
    further_pages = range(2, first["pages"] + 1)
    pages = [
        first,
        *[await use(office, session, "get-document-context", **body, page=number) for number in further_pages],
    ]
    texts = [page["documents"][-1]["markdown"] for page in pages]
    assert [len(page["documents"]) for page in pages] == [2, *[1] * (len(pages) - 1)]
    assert all(before[-OVERLAP:] == after[:OVERLAP] for before, after in pairwise(texts))
    assert "".join([texts[0], *(text[OVERLAP:] for text in texts[1:])]) == long.strip("\n")
    assert (await use(office, session, "get-document-context", task_ids=["T4"], page=9))["documents"] == []


def test_chunks_overlap_and_cover_the_text() -> None:
    assert chunks("") == [""]
    assert chunks("x" * CHUNK) == ["x" * CHUNK]
    assert [len(part) for part in chunks("x" * (CHUNK + 1))] == [CHUNK, OVERLAP + 1]


@pytest.mark.req("S1-070", "S1-086")
async def test_runs_at_most_ten_calls_of_the_five_tools(office: Store) -> None:
    agent = Prioritizer().agent
    assert [tool.name for tool in agent.definition.tools] == list(TOOLS)
    assert {tool.effect for tool in agent.definition.tools} == {"safe"}
    assert agent.definition.parallel_tools == 10
    assert agent.definition.max_steps == 10


class Shaky:
    """A slow embedder that fails a number of times."""

    name, threshold = "shaky", 0.2

    def __init__(self, *failures: Exception, clock: FakeClock | None = None, seconds: float = 0.0) -> None:
        self._failures = list(failures)
        self._clock, self._seconds = clock, seconds

    async def embed(self, texts: Any) -> Any:
        if self._clock is not None:
            self._clock.advance(self._seconds)
        if self._failures:
            raise self._failures.pop(0)
        return await embedder("hashing").embed(texts)

    async def close(self) -> None: ...


@pytest.mark.req("S1-086")
@pytest.mark.parametrize(
    ("failures", "status", "waited"),
    [
        ([ProviderError("busy", "overloaded"), StoreUnreachable("away")], "success", [2.0, 2.0]),
        ([ConnectionError("cut")] * 3, "failed", [2.0, 2.0]),
        ([ProviderError("no", "request")], "failed", []),
        ([ValueError("odd")], "failed", []),
    ],
)
async def test_retries_temporary_failures(
    office: Store, failures: list[Exception], status: str, waited: list[float]
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await repository.add_file(office, "ada", CHECKOUT, "plan.md")
    outcome = await repository.add_outcome(office, "ada", "Open the checkout")
    script = [{"calls": [{"name": "semantic-search", "input": {"query": "x", "threshold": 0}}]}, "no plan"]
    app = Prioritizer(model=Scripted(script), embedder=Shaky(*failures), pace=Pace(sleep=sleep))
    session = await app.prioritize(office, "ada", outcome.id)
    (step,) = (await trace_of(office, session)).steps
    assert (session.status, step.status, slept) == ("completed", status, waited)


@pytest.mark.req("S1-086")
async def test_slow_tool_has_a_warning(timed_office: Store, clock: FakeClock) -> None:
    await repository.add_file(timed_office, "ada", CHECKOUT, "plan.md")
    outcome = await repository.add_outcome(timed_office, "ada", "Open the checkout")

    def answer(request: ModelRequest) -> Any:
        call = {"name": "semantic-search", "input": {"query": "x"}}
        return {"calls": [call]} if request.step == 1 else "no plan"

    app = Prioritizer(model=Scripted(answer), embedder=Shaky(clock=clock, seconds=3.0))
    session = await app.prioritize(timed_office, "ada", outcome.id)
    (step,) = (await trace_of(timed_office, session)).steps
    assert step.tool_output is not None
    assert step.tool_output["performance_warning"] == "semantic-search took 6.0 s"
    assert "semantic-search took 6.0 s" in metadata_of(session).warnings
