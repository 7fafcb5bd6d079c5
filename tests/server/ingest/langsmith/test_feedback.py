"""Feedback: read, list, change and delete."""

from typing import Any
from uuid import uuid4

import pytest
from langsmith.utils import LangSmithNotFoundError

from lockstitch import Feedback
from lockstitch.model.scores import Score
from lockstitch.store import Store
from lockstitch.store.annotation import find_feedback, give_feedback
from tests.server.ingest.langsmith.conftest import Calling
from tests.server.ingest.langsmith.sample_runs import send

pytestmark = pytest.mark.anyio


async def test_feedback_is_read_as_it_was_created(client: Any, calling: Calling) -> None:
    def work() -> None:
        trace, other = send(client, "shop"), send(client, "shop", minute=1)
        session = client.read_project(project_name="shop").id
        created = client.create_feedback(
            trace.model,
            "correct",
            score=0.5,
            value="partly",
            comment="half",
            correction={"answer": "No."},
            source_info={"by": "ada"},
            feedback_source_type="model",
            trace_id=trace.root,
            session_id=session,
        )
        client.create_feedback(other.root, "helpful", score=True, session_id=session)
        client.flush()
        (read,) = client.list_feedback(run_ids=[trace.model])
        assert (read.id, read.run_id, read.trace_id, read.session_id) == (created.id, trace.model, trace.root, session)
        assert (read.key, read.score, read.value, read.comment) == ("correct", 0.5, "partly", "half")
        assert read.correction == {"answer": "No."}
        assert (read.feedback_source.type, read.feedback_source.metadata) == ("model", {"by": "ada"})
        assert client.read_feedback(created.id) == read
        client.update_feedback(created.id, score=1, correction={"answer": "Yes."})
        changed = client.read_feedback(created.id)
        assert (changed.score, changed.comment, changed.correction) == (1.0, "half", {"answer": "Yes."})
        assert [item.key for item in client.list_feedback()] == ["helpful", "correct"]
        assert [item.key for item in client.list_feedback(feedback_key=["correct"])] == ["correct"]
        assert [item.key for item in client.list_feedback(feedback_source_type=["api"])] == ["helpful"]
        assert list(client.list_feedback(run_ids=[trace.tool])) == []
        stats = client.read_run(trace.model).feedback_stats
        assert (stats["correct"]["n"], stats["correct"]["avg"]) == (1, 1.0)
        client.delete_feedback(created.id)
        with pytest.raises(LangSmithNotFoundError):
            client.read_feedback(created.id)

    await calling(work)


async def test_feedback_before_its_run_is_listed(client: Any, calling: Calling) -> None:
    def work() -> None:
        run_id = uuid4()
        client.create_feedback(run_id, "helpful", score=1, trace_id=run_id)
        client.flush()
        (read,) = client.list_feedback(run_ids=[run_id])
        assert (read.key, read.run_id) == ("helpful", run_id)

    await calling(work)


async def test_feedback_of_lockstitch_is_listed(store: Store, client: Any, calling: Calling) -> None:
    head = await store.create()
    run = store.new_run(head, status="completed", agent="helper")
    await store.append(head, [], new_runs=[run])
    now = store.clock.now()
    await store.feedback.put(
        Feedback(thread_id=head.id, run_id=run.id, name="helpful", score=1, created_at=now, updated_at=now)
    )

    def work() -> None:
        (read,) = client.list_feedback(run_ids=[run.id])
        assert (read.key, read.score, read.run_id) == ("helpful", 1, run.id)
        (listed,) = client.list_runs(run_ids=[run.id])
        assert listed.feedback_stats["helpful"]["n"] == 1
        client.create_feedback(run.id, "late", score=0)
        assert {item.key for item in client.list_feedback(run_ids=[run.id])} == {"helpful", "late"}

    await calling(work)
    # The feedback of the client is on the run, so pages and averages have it, too.
    assert {item.name: item.run_id for item in await find_feedback(store, thread=head)} == dict.fromkeys(
        ("helpful", "late"), run.id
    )
    assert (await store.overview([head]))[0].scores == {"helpful": Score(1.0, 1), "late": Score(0.0, 1)}


async def test_feedback_of_lockstitch_on_an_imported_run_is_listed(store: Store, client: Any, calling: Calling) -> None:
    def prepare() -> Any:
        trace = send(client, "shop")
        # Waits until the trace is stored.
        client.read_run(trace.root)
        return trace

    sent = await calling(prepare)
    await give_feedback(store, "helpful", run=str(sent.root), score=1, comment="Good", user_id="ada")

    def work() -> None:
        (read,) = client.list_feedback(run_ids=[sent.root])
        assert (read.key, read.score, read.comment, read.run_id) == ("helpful", 1, "Good", sent.root)
        assert client.read_run(sent.root).feedback_stats["helpful"]["avg"] == 1

    await calling(work)
