"""`panel_of()`: the details of a row of the waterfall, in tabs."""

from dataclasses import dataclass, field
from typing import Any, Final, cast

from lockstitch.errors import LockstitchError, NotFound
from lockstitch.model import Json, Run, Stitch, Thread, call_key, tool_uses
from lockstitch.model.message import blocks
from lockstitch.model.statistics import TOOL_ERRORS
from lockstitch.server.pages.run import parts as asked
from lockstitch.server.pages.run import parts as spent
from lockstitch.server.pages.run.parts import Part, data, facts, message_parts, note, place, text
from lockstitch.store import Store, Where
from lockstitch.store.reports.traces import error_summary

_GOOD: Final = ("ok", "end_turn", "tool_use", "stop", "success", "completed", "settled")


@dataclass(frozen=True, slots=True)
class Tab:
    id: str
    name: str
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class Panel:
    """The details of a row."""

    look: str
    name: str
    about: str
    status: str
    good: bool | None
    tabs: list[Tab] = field(default_factory=list[Tab])


def broken(why: str) -> Panel:
    """Return a panel with an error."""
    return Panel(
        "fail", "Not readable", "", "", None, [Tab("what", "Details", [note("The details cannot be shown.", why)])]
    )


async def panel_of(store: Store, run: Run, at: str) -> Panel:
    text_location = await place(store, run, at)
    if text_location.stitch is None:
        return await _of_run(store, text_location.run or run)
    stitch = text_location.stitch
    head = await store.thread(stitch.thread_id)
    owner = await store.run(stitch.run_id) if stitch.run_id else run
    if text_location.call is not None and stitch.type == "llm_call":
        return await _of_open_call(store, head, owner, stitch, text_location.call)
    if stitch.type == "llm_call":
        return await _of_model(store, owner, stitch)
    if stitch.type == "tool_call":
        # Rows of other threads have the id of their thread in their name.
        prefix = "" if stitch.thread_id == run.thread_id else f"{stitch.thread_id}."
        return await _of_tool(store, head, owner, stitch, prefix)
    if stitch.type == "thread_spawned" and stitch.child_id is not None:
        return await _of_child(store, stitch)
    return _of_other(stitch)


async def _of_model(store: Store, run: Run, stitch: Stitch) -> Panel:
    mirrored = run.source != "native"
    request = asked.imported_request(run, stitch) if mirrored else await asked.request(store, stitch)
    response = [*_wrong(stitch), *message_parts(stitch.message, "/message")]
    if stitch.message is None and stitch.data.get("text"):
        response.append(text("", stitch.data["text"], "/data/text", says=True))
    if mirrored and not response:
        response = _data_part(stitch, "outputs")
    first: Any = stitch.data.get("first_token_ms")
    duration_ms = stitch.duration_ms
    speed = stitch.output_tokens / (duration_ms / 1000) if stitch.output_tokens and duration_ms else None
    response.append({"kind": "ending", "reason": stitch.status, "first": first, "speed": speed})
    return Panel(
        "model",
        stitch.name or run.model or "model",
        _about(stitch),
        stitch.status or "",
        stitch.status not in TOOL_ERRORS,
        [
            Tab("request", "Request", request),
            Tab("response", "Response", response),
            Tab("tokens", "Tokens & cost", spent.by_call(run, stitch)),
            _raw(stitch),
        ],
    )


async def _of_tool(store: Store, head: Thread, run: Run, stitch: Stitch, prefix: str) -> Panel:
    asking = await store.stitches(head.id, stitch.reply_to, stitch.reply_to) if stitch.reply_to else []
    response = asking[0] if asking else None
    use, pointer = _use(response, stitch.call_index)
    value = use.get("input") if use else stitch.data.get("inputs")
    where = f"{prefix}{stitch.reply_to}" if use else None
    result = [*_wrong(stitch), *message_parts(stitch.message, "/message")]
    if not stitch.message and "outputs" in stitch.data:
        result += _data_part(stitch, "outputs")
    return Panel(
        "fail" if stitch.status in TOOL_ERRORS else "tool",
        stitch.name or "tool",
        _about(stitch),
        stitch.status or "",
        stitch.status in _GOOD if stitch.status else None,
        [
            Tab("input", "Input", [data("", value, pointer if use else "/data/inputs", at=where)]),
            Tab("result", "Result", result or [note("Empty result.", failed=False)]),
            Tab("call", "Call", [facts(await _call_facts(store, head, run, stitch, response, stitch.call_index))]),
            _raw(stitch),
        ],
    )


async def _of_open_call(store: Store, head: Thread, run: Run, asking: Stitch, index: int) -> Panel:
    uses = tool_uses(asking.message)
    if index >= len(uses):
        raise NotFound("Call not found in this response.")
    use = uses[index]
    key, name = call_key(asking.id, index), str(use.get("name"))
    wait = next((wait for wait in head.waits if wait.key == key), None)
    says = wait.kind.replace("_", " ") if wait else "open"
    _, pointer = _use(asking, index)
    what = "Needs you." if wait else "No result yet."
    link: Part = {"kind": "link", "text": "Open thread to reply", "path": f"/threads/{head.id}"}
    result = [note(what, f"Waiting for: {says}." if wait else "", failed=False), *([link] if wait else [])]
    return Panel(
        "wait" if wait else "tool",
        name,
        _about(asking),
        says,
        None,
        [
            Tab("input", "Input", [data("", use.get("input"), pointer)]),
            Tab("result", "Result", result),
            Tab("call", "Call", [facts(await _call_facts(store, head, run, None, asking, index))]),
            Tab("raw", "Raw", [data("", use, pointer.rpartition("/")[0])]),
        ],
    )


async def _of_child(store: Store, stitch: Stitch) -> Panel:
    try:
        child = await store.thread(stitch.child_id or "")
    except NotFound:
        return Panel("child", "Thread", _about(stitch), "deleted", None, [_raw(stitch)])
    overview = (await store.overview([child]))[0]
    known = [
        ("Thread", child.title or child.goal or child.key or str(child.id)),
        ("Agent", f"{child.agent} v{child.version}" if child.version else child.agent),
        ("Status", child.status),
        ("Runs", overview.runs),
        ("Input", f"{overview.usage['input_tokens']:,} tokens"),
        ("Output", f"{overview.usage['output_tokens']:,} tokens"),
    ]
    link: Part = {"kind": "link", "text": "Open thread", "path": f"/threads/{child.id}"}
    goal = [text("Goal", child.goal, "")] if child.goal else []
    result = [data("Result", child.result, "")] if child.result else []
    return Panel(
        "child",
        child.title or child.agent or "thread",
        _about(stitch),
        child.status,
        {"completed": True, "failed": False}.get(child.status),
        [Tab("child", "Child", [facts(known), *goal, *result, link]), _raw(stitch)],
    )


async def _of_run(store: Store, run: Run) -> Panel:
    head = await store.thread(run.thread_id)
    wanted = [position for position in (run.input_position, run.output_position) if position]
    stitches = {
        stitch.position: stitch for position in wanted for stitch in await store.stitches(head.id, position, position)
    }
    question, answer = stitches.get(run.input_position or 0), stitches.get(run.output_position or 0)
    parts = message_parts(question.message, "/message", at=str(question.position)) if question else []
    if run.is_trace:
        parts = [text("", run.imported_input, "/state/said", says=True)] if run.imported_input else []
    got = message_parts(answer.message, "/message", at=str(answer.position)) if answer else []
    if not got and run.imported_answer:
        got = [text("", run.imported_answer, "/state/answer", says=True)]
    if run.output:
        got.append(data("Output", run.output, "/output"))
    if run.error:
        got.insert(0, note(run.error.splitlines()[0][:300], "", failed=True))
    nothing = note("Not recorded.", failed=False)
    return Panel(
        "run",
        f"Run {run.sequence}",
        " ".join(part for part in (run.agent, run.stop_reason) if part),
        run.status,
        {"completed": True, "failed": False}.get(run.status),
        [
            Tab("input", "Input", parts or [nothing]),
            Tab("output", "Output", got or [nothing]),
            Tab("tokens", "Tokens & cost", spent.by_run(run)),
            Tab("raw", "Raw", [data("", run.as_json(), "")]),
        ],
    )


def _of_other(stitch: Stitch) -> Panel:
    span = stitch.type == "span" or stitch.parent_id is not None
    if span:
        metadata = {key: value for key, value in stitch.data.items() if key not in ("inputs", "outputs")}
        tabs = [
            Tab("inputs", "Inputs", _data_part(stitch, "inputs") or [note("Not recorded.", failed=False)]),
            Tab(
                "outputs", "Outputs", [*_wrong(stitch), *_data_part(stitch, "outputs")] or [note("None.", failed=False)]
            ),
            Tab("metadata", "Metadata", [data("", metadata, "/data")]),
            _raw(stitch),
        ]
    else:
        says = [*_wrong(stitch), *message_parts(stitch.message, "/message")]
        known = [(name.replace("_", " "), value) for name, value in stitch.data.items() if _plain(value)]
        large_values = [data(name, value, f"/data/{name}") for name, value in stitch.data.items() if not _plain(value)]
        what = [*says, *([facts(known)] if known else []), *large_values]
        tabs = [Tab("what", "Details", what or [note("No details.", failed=False)]), _raw(stitch)]
    wrong = stitch.status in TOOL_ERRORS or stitch.type.endswith(("error", "failed", "retry"))
    name = stitch.name or stitch.type.replace("_", " ")
    return Panel(
        "fail" if wrong else "plain", name, _about(stitch), stitch.status or "", False if wrong else None, tabs
    )


async def _call_facts(
    store: Store, head: Thread, run: Run, stitch: Stitch | None, response: Stitch | None, index: int | None
) -> list[tuple[str, Any]]:
    """Return the effect of a call, its idempotency key and the number of attempts.

    `stitch` is its result, `response` and `index` say which call it is.
    """
    uses = tool_uses(response.message) if response is not None else []
    use = uses[index] if index is not None and index < len(uses) else {}
    known: list[tuple[str, Any]] = [("Call", stitch.call_id if stitch is not None else use.get("id"))]
    if run.source == "native" and response is not None and index is not None:
        # Other responses of the run may have used the same call id, so count only the stitches after this response.
        where = [
            Where("run_id", "=", run.id),
            Where("type", "=", "tool_started"),
            Where("call_index", "=", index),
            Where("position", ">", response.position),
        ]
        if stitch is not None:
            where.append(Where("position", "<", stitch.position))
        started = await store.count_stitches(run.thread_id, *where)
        name = stitch.name if stitch is not None else str(use.get("name"))
        known += [
            ("Effect", await _effect(store, head, run, name)),
            ("Idempotency key", call_key(response.id, index)),
            ("Attempts", max(started, 1 if stitch is not None else 0)),
        ]
    if stitch is not None:
        known += [("Status", stitch.status), ("Duration", f"{stitch.duration_ms:,} ms" if stitch.duration_ms else None)]
    return [(key, value) for key, value in known if value is not None]


async def _effect(store: Store, head: Thread, run: Run, name: str | None) -> str | None:
    if not run.agent or not run.version:
        return None
    try:
        version = await store.agents.version(head.project, run.agent, run.version)
    except LockstitchError:
        return None
    tools: Any = version.definition.get("tools")
    for tool in cast("list[Any]", tools if isinstance(tools, list) else []):
        if isinstance(tool, dict) and cast("Json", tool).get("name") == name:
            return str(cast("Json", tool).get("effect"))
    return None


def _use(asking: Stitch | None, index: int | None) -> tuple[Json | None, str]:
    """Return the call at `index` of a response, and the pointer to its input."""
    if asking is None or asking.message is None or index is None:
        return None, ""
    places = [number for number, block in enumerate(blocks(asking.message)) if block.get("type") == "tool_use"]
    if index >= len(places):
        return None, ""
    return blocks(asking.message)[places[index]], f"/message/content/{places[index]}/input"


def _data_part(stitch: Stitch, name: str) -> list[Part]:
    value: Any = stitch.data.get(name)
    return [data("", value, f"/data/{name}")] if value else []


def _wrong(stitch: Stitch) -> list[Part]:
    text = error_summary(stitch)
    return [note(text, "", failed=True)] if text else []


def _raw(stitch: Stitch) -> Tab:
    return Tab("raw", "Raw", [data("", stitch.as_json(), "")])


def _about(stitch: Stitch) -> str:
    step = f"step {stitch.step_number} · " if stitch.step_number else ""
    return f"{step}position {stitch.position:,}"


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool) and len(str(value)) <= 200
