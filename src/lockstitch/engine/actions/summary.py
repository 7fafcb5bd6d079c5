"""Let the model summarise: a conversation after each turn, and the result of a child thread for its parent."""

from typing import Any, Final, cast

from lockstitch.engine.actions.model import side_model_call
from lockstitch.engine.decision.action import Summarize
from lockstitch.engine.session.run_context import RunContext
from lockstitch.errors import Refused
from lockstitch.model import Json, answer_of, codec, format_time, text_of
from lockstitch.model.codec import storable_text

CONCISE: Final = 500
"""Maximum number of characters of a result that is its own summary."""
_SHOWN: Final = 20_000
"""Maximum number of characters of a conversation or result in a prompt."""
_LONGEST: Final = 4_000
"""Maximum number of characters of a summary."""
_TOPICS: Final = 10
"""Maximum number of topics of a conversation."""

_RESULT: Final = """\
Summarise the result of this task for the agent that requested it. Keep facts, names, numbers and open problems. \
Use at most {limit} characters. Answer only with the summary.

Task: {goal}

Result:
{text}"""
_SESSION: Final = """\
Write a summary of this conversation that includes its latest turn. Answer with one JSON object and nothing else:
{{"summary": at most eight sentences, "topics": [at most {topics} short topics]}}

Summary before the latest turn: {before}

{talk}"""


async def summarize(context: RunContext, action: Summarize) -> None:
    """Let the model write a summary. If the call fails, there is no new summary, and the run continues.

    The answer of the run is committed first, so that a crash during the call does not lose it. The summary is written
    in the last commit of the run.
    """
    session = context.session
    text = await _answer_text(context, action.position)
    is_result = action.purpose == "result_summary"
    if is_result and len(text) <= CONCISE:
        _remember(context, action, None)
        return
    if session.must_commit:
        await session.commit()
    prompt = _result_prompt(context, text) if is_result else _session_prompt(context, text)
    call = side_model_call(context, action.purpose, prompt, max_tokens=1024)
    answer = storable_text((await context.run_optional(call, purpose=action.purpose) or "").strip())
    _remember(context, action, answer if is_result else None)
    if answer and not is_result:
        value: Json = {**_parsed(answer), "updated_at": format_time(session.clock.now())}
        session.record(must_commit=False, state={**session.head.state, "summary": value})


def _remember(context: RunContext, action: Summarize, text: str | None) -> None:
    """Store in the run that this answer needs no further summary. A later answer of the run needs another one."""
    value: Json = {"position": action.position, **({"text": text[:_LONGEST]} if text else {})}
    session = context.session
    session.change_run(state={**session.open_run.state, action.purpose: value})


async def _answer_text(context: RunContext, position: int) -> str:
    """Return the answer of the run, which it or a nested run gave."""
    session = context.session
    response = session.snapshot.response
    if response is not None and response.position == position:
        return answer_of(response.message)
    return await session.store.execution.answer_text_at(session.head, position) or ""


def _result_prompt(context: RunContext, text: str) -> str:
    return _RESULT.format(limit=CONCISE, goal=context.session.head.goal or "", text=text[:_SHOWN])


def _session_prompt(context: RunContext, answer: str) -> str:
    """Return the prompt with the latest turn, and the conversation before it if there is no summary of it yet."""
    session = context.session
    state: Json = session.head.state.get("summary") or {}
    before = str(state.get("summary") or "")
    if before:
        inputs = [stitch for stitch in session.stitches if stitch.type == "input"]
        talk = [f"User: {text_of(inputs[-1].message)}" if inputs else ""]
    else:
        names = {"user": "User", "assistant": "Answer"}
        talk = [
            f"{names.get(message['role'], message['role'])}: {text}"
            for message in session.messages
            if (text := text_of(message))
        ]
    if not talk or not talk[-1].endswith(answer):
        talk.append(f"Answer: {answer}")
    return _SESSION.format(topics=_TOPICS, before=before or "none", talk="\n\n".join(filter(None, talk))[-_SHOWN:])


def _parsed(answer: str) -> Json:
    """Return summary and topics. An answer that is not JSON is the summary."""
    value: Any = None
    start, end = answer.find("{"), answer.rfind("}")
    if 0 <= start < end:
        try:
            value = codec.loads(answer[start : end + 1])
        except (ValueError, Refused):
            value = None
    about = cast("Json", value) if isinstance(value, dict) else {}
    summary = about.get("summary")
    if not isinstance(summary, str) or not summary.strip():
        return {"summary": answer[:_LONGEST], "topics": []}
    topics: Any = about.get("topics")
    names = [str(topic)[:100] for topic in cast("list[Any]", topics)] if isinstance(topics, list) else []
    return {"summary": summary.strip()[:_LONGEST], "topics": names[:_TOPICS]}
