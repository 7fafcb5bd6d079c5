"""Teams: each turn of a leader and each task of a member is a run."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from lockstitch import (
    Agent,
    App,
    Refused,
    Store,
    Team,
    answer,
    approve,
    cancel,
    run_worker,
    submit_results,
    thread_tools,
    tool,
)
from lockstitch.agents.providers.scripted import Scripted
from lockstitch.agents.tools.threads import ask_for_input
from lockstitch.backend import Find, Where
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.model import Message, Run, TeamMember, text_of
from tests.commits import Counting
from tests.engine.books import ANSWERS, MESSAGES, RESEARCHER, RUNS, books, delegate

pytestmark = pytest.mark.anyio

PLAIN: dict[str, Any] = {"title": False, "base_delay": 0.0, "max_retries": 0}


def member(name: str, script: Any, **more: Any) -> Agent:
    return Agent(name, model=Scripted(script), **{**PLAIN, **more})


def team(leader: Any, *members: Agent, **more: Any) -> Team:
    return Team("team", model=Scripted(leader), members=members, **{**PLAIN, **more})


def asks(*calls: Any) -> dict[str, Any]:
    return {"calls": list(calls)}


async def runs_of(store: Store, thread: str = "t") -> list[Run]:
    return await store.runs(thread)


async def check_requests(store: Store, thread: str = "t") -> int:
    """Check that every request can be rebuilt with equal bytes. Return the number of requests."""
    calls = [
        stitch for stitch in await store.stitches(thread) if stitch.type == "llm_call" and stitch.data.get("request")
    ]
    for call in calls:
        await store.request(call.id)
    return len(calls)


async def check_record(store: Store) -> None:
    assert (await store.verify()).problems == []


class Listening:
    """A fake model with fixed replies that stores its messages."""

    def __init__(self, *replies: Any) -> None:
        self.replies = replies
        self.asked: list[list[Message]] = []

    def __call__(self, request: ModelRequest) -> Any:
        self.asked.append(list(request.messages))
        return self.replies[(len(self.asked) - 1) % len(self.replies)]


# The example of the document


@pytest.mark.req("S4-033", "S4-034", "X4-01", "S4-048", "S4-049")
async def test_three_messages_make_seven_runs(store: Store) -> None:
    crew = books()
    results = [await crew.run(message, store=store, thread="books") for message in MESSAGES]
    assert [result.output_text for result in results] == list(ANSWERS)
    runs = await runs_of(store, "books")
    assert [(run.turn, run.role, run.agent) for run in runs] == list(RUNS)
    assert [run.sequence for run in runs] == [1, 2, 3, 4, 5, 6, 7]
    assert len({run.id for run in runs}) == 7
    assert {run.status for run in runs} == {"completed"}
    top = [run for run in runs if run.parent_run_id is None]
    assert [run.id for run in top] == [result.run_id for result in results]
    assert [run.turn for run in top] == [1, 2, 3]
    assert runs[2].parent_run_id == runs[1].id, "a member's run knows who asked for it"
    assert runs[3].parent_run_id == runs[1].id, "a compile run has the first leader run of its turn as parent"
    assert [run.parent_run_id for run in runs[5:]] == [runs[4].id] * 2
    assert [run.stop_reason for run in top] == ["end_turn", "delegated", "delegated"]
    # The leader answers directly, delegates to one member, and then to two members in sequence.
    (searched,) = [stitch for stitch in await store.stitches("books") if stitch.name == "search"]
    assert (searched.type, searched.run_id, searched.status) == ("tool_call", runs[2].id, "ok")
    researcher, writer = runs[5:]
    assert researcher.output_position is not None
    assert writer.first_position > researcher.output_position, "one after the other"
    asked = [stitch for stitch in await store.log(writer.id) if stitch.type == "llm_call"]
    texts = [text_of(message) for message in (await store.request(asked[0].id))["messages"]]
    assert texts == [
        f"Researcher answered:\n\n{RESEARCHER[2][0]}",
        "Write a summary of chapter 5.",
    ]
    # A further run of the leader compiles. Without it, the answer of the last member is the answer of the turn.
    assert [run.output_position for run in (runs[1], runs[4])] == [runs[3].output_position, writer.output_position]
    turns = (await store.history("books")).turns
    assert [turn.final_response for turn in reversed(turns)] == list(ANSWERS)
    assert await check_requests(store, "books") == 8
    head = await store.thread("books")
    assert (head.status, head.total_runs, head.last_turn, head.last_sequence) == ("waiting", 3, 3, 7)
    await check_record(store)


async def test_passed_through_answer_is_stored_once(store: Store) -> None:
    crew = team([[asks(delegate("a", "go"))]], member("a", ["Here."]), answer="pass_through")
    result = await crew.run("Hi", store=store, thread="t")
    leader, worker = await runs_of(store)
    assert leader.output_position == worker.output_position
    assert result.output_text == "Here."
    (answer,) = await store.stitches("t", leader.output_position or 0, leader.output_position)
    assert (answer.type, answer.run_id, answer.lane) == ("llm_call", worker.id, worker.id)


async def test_member_sees_only_its_task(store: Store) -> None:
    first, second = Listening("One."), Listening("Two.")
    crew = team(
        [[asks(delegate("a", "task a"), delegate("b", "task b")), "Done."]], member("a", first), member("b", second)
    )
    await crew.run("Hi", store=store, thread="t")
    assert [text_of(message) for message in first.asked[0]] == ["task a"]
    assert [text_of(message) for message in second.asked[0]] == ["a answered:\n\nOne.", "task b"]
    runs = await runs_of(store)
    assert [text_of(message) for message in await store.messages(runs[2].id)] == ["task b", "Two."], "said, not stored"
    assert await check_requests(store) == 4


async def test_parallel_members_do_not_see_each_other(store: Store) -> None:
    barrier = asyncio.Barrier(2)

    def meeting(text: str) -> Any:
        async def reply(request: ModelRequest) -> str:
            await asyncio.wait_for(barrier.wait(), 60)
            return f"{text} to {text_of(request.messages[-1])}"

        return reply

    crew = team(
        [[asks(delegate("a", "x"), delegate("b", "y")), "Done."]],
        *(member("a", meeting("A")), member("b", meeting("B"))),
        mode="parallel",
    )
    result = await crew.run("Hi", store=store, thread="t")
    assert result.output_text == "Done."
    runs = await runs_of(store)
    assert [run.agent for run in runs] == ["team", "a", "b", "team"], "they start in the order of the calls"
    context = await store.context("t")
    contents = [block["content"] for block in context[2]["content"]]
    assert contents == ["A to x", "B to y"], "and answer in it"
    assert await check_requests(store) == 4
    await check_record(store)


async def test_leader_delegates_again(store: Store) -> None:
    leader = [[asks(delegate("a", "first")), asks(delegate("a", "second")), "Both are done."]]
    crew = team(leader, member("a", [["One.", "Two."]]))
    result = await crew.run("Hi", store=store, thread="t")
    assert result.output_text == "Both are done."
    runs = await runs_of(store)
    assert [run.role for run in runs] == ["team", "agent", "team", "agent", "team"]
    assert [run.parent_run_id == runs[0].id for run in runs] == [False, True, True, False, True]
    assert runs[3].parent_run_id == runs[2].id
    assert [run.stop_reason for run in runs] == ["delegated", "end_turn", "delegated", "end_turn", "end_turn"]
    assert [text_of(message) for message in (await store.messages(runs[3].id))] == ["second", "Two."]
    assert await check_requests(store) == 5


async def test_leader_that_always_delegates_reaches_step_limit(store: Store) -> None:
    def leader(request: ModelRequest) -> Any:
        return "I must stop." if request.tool_choice == "none" else asks(delegate("a", "again"))

    crew = team(leader, member("a", lambda _: "Yes."), max_steps=3)
    result = await crew.run("Hi", store=store, thread="t")
    assert result.output_text == "I must stop."
    runs = await runs_of(store)
    assert sum(run.steps for run in runs if run.role == "team") == 3
    assert len([run for run in runs if run.role == "agent"]) == 3
    assert await check_requests(store) == 7


# Failures


@pytest.mark.req("S4-047")
async def test_leader_answers_after_member_fails(store: Store) -> None:
    listening = Listening(asks(delegate("a", "go")), "It did not work.")
    crew = team(listening, member("a", [{"fail": "request", "message": "No such model."}]))
    result = await crew.run("Hi", store=store, thread="t")
    assert (result.status, result.output_text) == ("completed", "It did not work.")
    _, worker, compiled = await runs_of(store)
    assert (worker.status, worker.error) == ("failed", "No such model.")
    assert compiled.status == "completed"
    (block,) = listening.asked[1][-1]["content"]
    assert block["is_error"]
    assert block["content"] == "a failed: No such model."
    assert (await store.thread("t")).status == "waiting"


async def test_failed_last_member_is_not_passed_through(store: Store) -> None:
    crew = team([[asks(delegate("a", "go")), "Sorry."]], member("a", [{"fail": "request"}]), answer="pass_through")
    assert (await crew.run("Hi", store=store, thread="t")).output_text == "Sorry."


async def test_failed_leader_fails_turn_and_is_retried(store: Store) -> None:
    tries: list[int] = []

    def leader(request: ModelRequest) -> Any:
        tries.append(len(request.messages))
        if len(tries) == 1:
            return asks(delegate("a", "go"))
        return {"fail": "request", "message": "Away."} if len(tries) == 2 else "Here it is."

    crew = team(leader, member("a", ["Found."]))
    result = await crew.run("Hi", store=store, thread="t")
    assert (result.status, result.error) == ("failed", "Away.")
    assert [run.status for run in await runs_of(store)] == ["failed", "completed", "failed"]
    second_result = await crew.retry("t", store=store)
    assert second_result is not None
    assert second_result.output_text == "Here it is."
    assert tries == [1, 3, 3], "what the member said is not asked for again"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (delegate("nobody", "go"), "Your team has no member 'nobody'. Choose from: a."),
        (delegate("a", " "), "The task is empty. Describe the task of the member."),
        ({"name": "delegate", "input": {}}, "Your team has no member ''. Choose from: a."),
    ],
)
async def test_answers_delegation_to_unknown_member(store: Store, call: Any, message: str) -> None:
    listening = Listening(asks(call), "I see.")
    result = await team(listening, member("a", ["Yes."])).run("Hi", store=store, thread="t")
    assert result.output_text == "I see."
    (block,) = listening.asked[1][-1]["content"]
    assert (block["is_error"], block["content"]) == (True, message)
    assert len(await runs_of(store)) == 1


def test_rejects_invalid_team() -> None:
    with pytest.raises(Refused, match="no members"):
        team(["x"])
    with pytest.raises(Refused, match="need different names"):
        team(["x"], member("a", ["x"]), member("a", ["x"]))
    with pytest.raises(Refused, match="need different names"):
        team(["x"], member("team", ["x"]))
    with pytest.raises(Refused, match="Only agents can be members"):
        team(["x"], books())
    with pytest.raises(Refused, match="num_history_runs"):
        team(["x"], member("a", ["x"]), num_history_runs=0)
    own_tool = replace(pay, name="delegate")
    with pytest.raises(Refused, match="two tools are named delegate"):
        team(["x"], member("a", ["x"]), tools=[own_tool])


# Waiting


@tool(effect="once", approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"Paid {amount}."


@tool(effect="safe", name="sum")
def total(of: int) -> int:
    """Add."""
    return of


@tool(frontend=True)
def locate() -> str:
    """Where the user is."""
    raise AssertionError


def call(name: str, id: str | None = None, **arguments: Any) -> dict[str, Any]:
    return asks({"name": name, "input": arguments, **({"id": id} if id else {})})


async def test_waiting_member_makes_thread_wait_after_other_members_finish(store: Store) -> None:
    listening = Listening(call("pay", "p1", amount=5), "Paid it.")
    crew = team(
        [[asks(delegate("payer", "pay"), delegate("other", "look")), "All done."]],
        *(member("payer", listening, tools=[pay]), member("other", ["Looked."])),
        mode="parallel",
    )
    result = await crew.run("Hi", store=store, thread="t")
    assert result.status == "waiting"
    (wait,) = result.waiting_for
    runs = {run.agent: run for run in await runs_of(store)}
    assert (wait["kind"], wait["id"], wait["agent"], wait["run"]) == ("approval", "p1", "payer", str(runs["payer"].id))
    assert (runs["payer"].status, runs["other"].status, runs["team"].status) == ("waiting", "completed", "waiting")
    assert await crew.resume("t", store=store) is not None, "nothing is new"
    before = (await store.thread("t")).position
    await crew.resume("t", store=store)
    assert (await store.thread("t")).position == before, "and nothing is said again"
    await approve(store, "t", "p1")
    went_on = await crew.resume("t", store=store)
    assert went_on is not None
    assert (went_on.status, went_on.output_text, went_on.run_id) == ("completed", "All done.", result.run_id)
    log = await store.log(runs["payer"].id)
    assert {stitch.lane for stitch in log} == {runs["payer"].id}
    assert [stitch.type for stitch in log].count("permission") == 1
    assert await check_requests(store) == 5
    await check_record(store)


@pytest.mark.req("S0-014")
@pytest.mark.parametrize("own", [None, "c_leader"])
async def test_each_member_has_its_own_container(store: Store, own: str | None) -> None:
    containers: dict[str, list[str | None]] = {}

    def answering(name: str, *replies: Any) -> Any:
        def reply(request: ModelRequest) -> Any:
            containers.setdefault(name, []).append(request.container_id)
            return replies[len(containers[name]) - 1]

        return reply

    asking = {**asks(delegate("a", "go"), delegate("b", "go")), **({"container_id": own} if own else {})}
    crew = team(
        answering("leader", asking, "Done.", "Again."),
        *(
            member(name, answering(name, {**call("sum", of=1), "container_id": f"c_{name}"}, "Found."), tools=[total])
            for name in ("a", "b")
        ),
        mode="parallel",
    )
    assert (await crew.run("Hi", store=store, thread="t")).status == "completed"
    await crew.run("And?", store=store, thread="t")
    assert containers == {
        "leader": [None, own, own],
        "a": [None, "c_a"],
        "b": [None, "c_b"],
    }
    assert (await store.thread("t")).state.get("container_id") == own


async def test_frontends_and_people_answer_members(store: Store) -> None:
    crew = team(
        [[asks(delegate("a", "go"), delegate("b", "go")), "Done."]],
        member("a", [call("locate", "l1"), "There."], tools=[locate]),
        member("b", [call("ask_for_input", "q1", question="Sure?"), "Good."], tools=[ask_for_input]),
        mode="parallel",
    )
    events = [event async for event in crew.stream("Hi", store=store, thread="t")]
    (paused,) = [event for event in events if event.type == "paused"]
    assert {item["tool_use_id"] for item in paused.data["pending"]} == {"l1", "q1"}
    assert {wait["kind"] for wait in paused.data["waiting_for"]} == {"frontend_tools", "input"}
    await submit_results(store, "t", [{"tool_use_id": "l1", "content": "Oslo"}])
    result = await crew.resume("t", store=store)
    assert result is not None
    assert [wait["id"] for wait in result.waiting_for] == ["q1"]
    await answer(store, "t", "Yes")
    result = await crew.resume("t", store=store)
    assert result is not None
    assert result.output_text == "Done."


async def test_compiling_leader_can_wait(store: Store) -> None:
    crew = team(
        [[asks(delegate("a", "go")), call("pay", "p1", amount=1), "Paid."]], member("a", ["Found."]), tools=[pay]
    )
    result = await crew.run("Hi", store=store, thread="t")
    assert [wait["id"] for wait in result.waiting_for] == ["p1"]
    await approve(store, "t", "p1")
    result = await crew.resume("t", store=store)
    assert result is not None
    assert (result.status, result.output_text) == ("completed", "Paid.")
    assert await check_requests(store) == 4


async def test_cancels_waiting_team_completely(store: Store) -> None:
    crew = team(
        [[asks(delegate("a", "go"), delegate("b", "go")), "Done."], ["Fine."]],
        member("a", [call("pay", "p1", amount=1), "x"], tools=[pay]),
        member("b", ["Yes."]),
        mode="parallel",
    )
    await crew.run("Hi", store=store, thread="t")
    await cancel(store, "t")
    runs = await runs_of(store)
    assert [(run.agent, run.status) for run in runs] == [("team", "cancelled"), ("a", "cancelled"), ("b", "completed")]
    head = await store.thread("t")
    assert (head.status, [wait["kind"] for wait in head.waiting_for]) == ("waiting", ["input"])
    await check_record(store)
    result = await crew.run("And now?", store=store, thread="t")
    assert result.output_text == "Fine."


async def test_cancels_working_team_completely(store: Store) -> None:
    began = asyncio.Event()

    async def slow(request: ModelRequest) -> str:
        began.set()
        await asyncio.sleep(60)
        return "never"

    crew = team(
        [[asks(delegate("a", "x"), delegate("b", "y")), "Done."]], member("a", slow), member("b", slow), mode="parallel"
    )
    work = asyncio.create_task(crew.run("Hi", store=store, thread="t"))
    await asyncio.wait_for(began.wait(), 60)
    await store.edit("t", cancel_requested=True)
    result = await asyncio.wait_for(work, 60)
    assert result.status == "cancelled"
    assert {run.status for run in await runs_of(store)} == {"cancelled"}
    await check_record(store)


# History


@pytest.mark.req("S4-050", "S4-051", "S4-052")
@pytest.mark.parametrize(
    ("settings", "inputs"),
    [
        ({"add_history_to_context": False}, ["Three?"]),
        ({}, ["One?", "1", "Two?", "2", "Three?"]),
        ({"num_history_runs": 1}, ["Two?", "2", "Three?"]),
        ({"num_history_runs": 5}, ["One?", "1", "Two?", "2", "Three?"]),
    ],
)
async def test_history_options_limit_the_turns_that_leader_sees(store: Store, settings: Any, inputs: list[str]) -> None:
    listening = Listening("1", "2", "3")
    crew = team(listening, member("a", ["x"]), **settings)
    for text in ("One?", "Two?", "Three?"):
        await crew.run(text, store=store, thread="t")
    assert [text_of(message) for message in listening.asked[2]] == inputs
    assert len(await runs_of(store)) == 3, "stored in any case"
    assert await check_requests(store) == 3


@pytest.mark.req("S4-052")
async def test_leader_sees_the_last_five_of_seven_turns(store: Store) -> None:
    listening = Listening(*"12345678")
    crew = team(listening, member("a", ["x"]), num_history_runs=5)
    for number in range(1, 9):
        await crew.run(f"q{number}", store=store, thread="t")
    assert [text_of(message) for message in listening.asked[7]] == [
        *(text for number in range(3, 8) for text in (f"q{number}", str(number))),
        "q8",
    ]
    assert len(await runs_of(store)) == 8, "older ones are stored"


@pytest.mark.req("S4-053", "S4-054", "X4-10")
@pytest.mark.parametrize("settings", [{"num_history_runs": 2}, {}])
async def test_history_counts_completed_turns(store: Store, settings: Any) -> None:
    replies = ("1", asks(delegate("a", "go")), "2", {"fail": "request"}, call("pay", "p1", amount=1), "5")
    listening = Listening(*replies)
    crew = team(listening, member("a", ["Among us."]), tools=[pay], **settings)
    for text in ("One?", "Two?", "Fails?", "Stops?", "Five?"):
        await crew.run(text, store=store, thread="t")
        if text == "Stops?":
            await cancel(store, "t")
    texts = [text_of(message) for message in listening.asked[-1]]
    assert texts == ["One?", "1", "Two?", "", "", "2", "Five?"], "with the calls of turn 2 and their results"
    runs = await runs_of(store)
    statuses = [(run.turn, run.status) for run in runs if run.parent_run_id is None]
    assert statuses == list(enumerate(("completed", "completed", "failed", "cancelled", "completed"), start=1))
    stored = [stitch for stitch in await store.stitches("t") if stitch.type == "input"]
    assert [text_of(stitch.message) for stitch in stored] == ["One?", "Two?", "go", "Fails?", "Stops?", "Five?"]
    last = [text_of(message) for message in await store.messages(runs[-1].id)]
    assert last == ["Five?", "5"], "the history is not stored again"
    assert await check_requests(store) == 6


# Registration, events, cost


@pytest.mark.req("S4-021")
async def test_registers_team_with_members(store: Store) -> None:
    await books().run(MESSAGES[0], store=store, thread="books")
    stored_agents = await store.agents.list(project="default")
    assert {(agent.name, agent.role, agent.version) for agent in stored_agents} == {
        ("NotebookLM", "team", 1),
        ("Researcher", "agent", 1),
        ("Writer", "agent", 1),
    }
    links = await store._backend.find(Find(TeamMember, (Where("team", "=", "NotebookLM"),), order=("place",)))
    assert [(link.version, link.place, link.member, link.member_version) for link in links] == [
        (1, 1, "Researcher", 1),
        (1, 2, "Writer", 1),
    ]


async def test_events_name_the_acting_agent(store: Store) -> None:
    await books().run(MESSAGES[0], store=store, thread="books")
    events = [event async for event in books().stream(MESSAGES[1], store=store, thread="books")]
    acting = [(event.type, event.agent) for event in events if event.type != "text"]
    assert acting == [
        ("started", "NotebookLM"),
        ("tool_call", "NotebookLM"),
        ("member_started", "Researcher"),
        ("tool_call", "Researcher"),
        ("tool_result", "Researcher"),
        ("member_finished", "Researcher"),
        ("tool_result", "NotebookLM"),
        ("finished", "NotebookLM"),
    ]


@pytest.mark.parametrize("number", [1, 2])
async def test_answer_contains_no_text_of_members(store: Store, number: int) -> None:
    for message in MESSAGES[:number]:
        await books().run(message, store=store, thread="books")
    events = [event async for event in books().stream(MESSAGES[number], store=store, thread="books")]
    text_events = [event for event in events if event.type == "text"]
    assert "".join(event.data["text"] for event in text_events if not event.member) == ANSWERS[number]
    assert (
        {event.agent for event in text_events if event.member} == {"Researcher", "Writer"}
        if number == 2
        else {"Researcher"}
    )
    frames = [frame async for frame in books().frames(MESSAGES[number], store=store, thread="other")]
    assert frames, "and so it is in every format"


async def test_members_with_equal_call_ids_have_different_keys(store: Store) -> None:
    keys: list[str] = []

    @tool(effect="keyed")
    async def put(ctx: Any) -> str:
        """Put."""
        keys.append(ctx.key)
        return "ok"

    script = [call("put"), "Done."]
    crew = team(
        [[asks(delegate("a", "x"), delegate("b", "y")), "Done."]],
        *(member("a", script, tools=[put]), member("b", script, tools=[put])),
        tools=[put],
    )
    await crew.run("Hi", store=store, thread="t")
    assert len(set(keys)) == len(keys) == 2


# Commits and workers


@pytest.mark.parametrize(("mode", "members"), [("sequence", 1), ("parallel", 3)])
async def test_turn_needs_no_more_commits_than_its_runs(
    store: Store, mode: Any, members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"m{number}" for number in range(members)]
    crew = team(
        [[asks(*(delegate(name, "go") for name in names)), "Done."]],
        *(member(name, [call("look"), "Yes."], tools=[look]) for name in names),
        mode=mode,
    )
    counting = Counting(store, monkeypatch)
    await crew.run("Hi", store=store, thread="t")
    runs = await runs_of(store)
    assert len(runs) == members + 2
    assert counting.commits <= sum(2 * run.steps + 1 for run in runs)
    assert counting.commits <= 5 + 3 * members, "of each member less than its budget"


@tool(effect="safe")
async def look() -> str:
    """Look."""
    return "Seen."


async def test_workers_execute_team_like_an_agent(store: Store) -> None:
    crew = books()
    app = App([crew])
    crew = app.agent(crew.name)
    result = await crew.run(MESSAGES[0], store=store, thread="books", detach=True)
    assert result.status == "pending"
    for number, message in enumerate(MESSAGES):
        if number:
            await crew.run(message, store=store, thread="books", detach=True)
        await run_worker(app, store=store, until_idle=True)
    assert [(run.turn, run.role, run.agent) for run in await runs_of(store, "books")] == list(RUNS)
    turns = (await store.history("books")).turns
    assert [turn.final_response for turn in reversed(turns)] == list(ANSWERS)


async def test_child_of_member_reports_to_member(store: Store) -> None:
    listening = Listening(
        call("create_thread", goal="dig", agent="digger", wait_for_completion=True), "The hole is dug, it says."
    )
    crew = team([[asks(delegate("a", "go")), "Done."]], member("a", listening, tools=thread_tools()))
    crew = App([crew, member("digger", ["Dug."])]).agent(crew.name)
    result = await crew.run("Hi", store=store, thread="t")
    assert result.output_text == "Done."
    _, worker, _ = await runs_of(store)
    (thread_result,) = [stitch for stitch in await store.stitches("t") if stitch.type == "thread_result"]
    assert (thread_result.run_id, thread_result.lane) == (worker.id, worker.id)
    assert "Dug." in text_of(listening.asked[1][-1])
    assert "Dug." not in str(await store.context("t")), "the leader receives the answer of the member"
    assert await check_requests(store) == 4


async def test_member_without_code_waits_for_it(store: Store) -> None:
    leader = [[asks(delegate("payer", "pay"), delegate("b", "go")), "Done."]]
    payer = member("payer", [call("pay", "p1", amount=5), "Paid."], tools=[pay])
    crew = team(leader, payer, member("b", ["Yes."]))
    await crew.run("Hi", store=store, thread="t")
    await approve(store, "t", "p1")
    less = team(leader, member("b", ["Yes."]))
    result = await less.resume("t", store=store)
    assert result is not None
    (wait,) = result.waiting_for
    assert (wait["kind"], wait["name"]) == ("retry", "payer")
    assert "unknown_member" in wait["reason"]
    result = await crew.resume("t", store=store)
    assert result is not None
    assert result.output_text == "Done."


async def test_members_obey_limits_of_thread(store: Store) -> None:
    crew = team(
        [[asks(delegate("a", "go")), "Done."]], member("a", lambda _: call("look"), tools=[look]), max_stitches=30
    )
    result = await crew.run("Hi", store=store, thread="t")
    _, worker, *_ = await runs_of(store)
    assert (worker.status, result.status) == ("failed", "failed")
    assert "30 stitches" in str(worker.error)
    few = member("a", lambda _: call("look"), tools=[look], max_steps=2)
    result = await team([[asks(delegate("a", "go")), "Done."]], few).run("Hi", store=store, thread="u")
    assert result.output_text == "Done."
    assert [run.stop_reason for run in await runs_of(store, "u")] == ["delegated", "max_steps", "end_turn"]


async def test_trace_shows_members_below_their_calls(store: Store) -> None:
    crew = books()
    results = [await crew.run(message, store=store, thread="books") for message in MESSAGES]

    def drawn(node: Any) -> Any:
        below = [drawn(child) for child in node["children"] if child["kind"] != "event"]
        return (f"{node['kind']} {node['name']}", below) if below else f"{node['kind']} {node['name']}"

    tree = (await store.trace(results[1].run_id)).root.as_json()
    search = ("model scripted", ["tool search"])
    assert drawn(tree) == (
        "run NotebookLM",
        [
            ("model scripted", [("tool delegate", [("run Researcher", [search, "model scripted"])])]),
            ("run NotebookLM", ["model scripted"]),
        ],
    )
