"""What a merged piece of OpenTelemetry says: which model answered what, which tool was called, what it counted."""

from typing import Any, Literal

from lockstitch.bridges.otel.answering import Answer, answer_of, together
from lockstitch.bridges.otel.dialect import Facts, merged
from lockstitch.bridges.otel.dialects import DIALECTS
from lockstitch.bridges.otel.providers import provider_name
from lockstitch.bridges.otel.usage import raw_counts
from lockstitch.bridges.otel.values import arguments, as_json, as_list, as_text
from lockstitch.bridges.otel.wording import Said, messages, told
from lockstitch.bridges.span import Call, Generation, Meaning, Piece, Result, Tokens
from lockstitch.records import Json

_MODEL_CALLS = frozenset({"llm", "chat_model", "chat", "text_completion", "generate_content", "completion"})
_TOOLS = frozenset({"tool", "execute_tool"})


class OpenTelemetry:
    """OpenTelemetry's side of the bridge."""

    source = "otel"
    root_names_trace = False

    def meaning(self, piece: Piece) -> Meaning:
        """What a merged piece says; never raises, whatever stands in it."""
        extra = as_json(piece.get("extra"))
        attributes = as_json(extra.get("attributes"))
        kind = (as_text(piece.get("kind")) or "").lower()
        inputs, outputs = as_json(piece.get("inputs")), as_json(piece.get("outputs"))
        asked, answer = _asked(inputs), answer_of(outputs)
        if kind not in _MODEL_CALLS and kind not in _TOOLS:
            return _plain(asked, answer, role="span")
        facts = merged([dialect.facts(attributes, piece) for dialect in DIALECTS])
        if kind in _TOOLS:
            return _tool_call(piece, facts, answer)
        return _model_call(piece, facts, asked, answer)


def _model_call(piece: Piece, facts: Facts, asked: list[Said], answer: Answer) -> Meaning:
    first = answer.said[0] if answer.said else None
    about: Json = first.about if first else {}
    model = facts.model or answer.model or as_text(about.get("model_name")) or facts.asked_model
    provider = facts.provider or provider_name(about.get("model_provider"))
    response_id = facts.response_id or answer.id or as_text(about.get("id"))
    tokens = _tokens(facts, answer, about)
    parameters = dict(facts.parameters)
    if facts.asked_model:
        parameters.setdefault("model", facts.asked_model)
    generations = _generations(piece, facts, answer, response_id)
    has_content = any(said.blocks for said in answer.said) or any(said.blocks or said.results for said in asked)
    plain = _plain(asked, answer, role="llm")
    present = {
        "model": model,
        "provider": provider,
        "tokens": tokens,
        "content": has_content or None,
        "start": piece.get("start"),
        "end": piece.get("end"),
    }
    return Meaning(
        role="llm",
        model=model,
        provider=provider,
        response_id=response_id,
        has_content=has_content,
        parameters=parameters,
        generations=generations,
        tokens=tokens,
        cost=facts.cost if facts.cost is not None and facts.cost >= 0 else None,
        results=plain.results,
        said=plain.said,
        answer=plain.answer,
        missing=[name for name, value in present.items() if value is None],
    )


def _tokens(facts: Facts, answer: Answer, about: Json) -> Tokens | None:
    """The attributes' counts; where they lack the cache, the response in the outputs may have it."""
    own = raw_counts(answer.usage) or raw_counts(as_json(about.get("usage_metadata")))
    if own is None:
        own = raw_counts(as_json(about.get("token_usage")))
    said = facts.tokens
    if said is None or own is None:
        return said or own
    if said.cache_read or said.cache_write or own.input != said.input:
        return said
    return said._replace(cache_read=own.cache_read, cache_write=own.cache_write)


def _generations(piece: Piece, facts: Facts, answer: Answer, response_id: str | None) -> list[Generation]:
    failed = bool(piece.get("error"))
    reasons = facts.finish_reasons
    made = [
        Generation(
            message={"role": "assistant", "content": said.blocks},
            text=said.text,
            id=said.id or (response_id if place == 0 else None),
            finish_reason=reasons[place] if place < len(reasons) else said.finish_reason,
            failed=failed,
        )
        for place, said in enumerate([together(answer.said)] if answer.in_items and answer.said else answer.said)
    ]
    if not made and (failed or reasons or response_id or facts.tokens or piece.get("end")):
        # It answered, or failed to; nobody told what.
        reason = reasons[0] if reasons else None
        made = [Generation({"role": "assistant", "content": []}, "", response_id, reason, failed)]
    return made


def _tool_call(piece: Piece, facts: Facts, answer: Answer) -> Meaning:
    shape = as_json(as_json(piece.get("extra")).get("shape"))
    inputs, outputs = as_json(piece.get("inputs")), as_json(piece.get("outputs"))
    known = answer.results[0] if answer.results else None
    name = facts.tool_name or (known.name if known else None) or _bare_name(piece)
    call_id = facts.call_id or (known.call_id if known else None) or as_text(inputs.get("tool_call_id"))
    args: Any = inputs
    if shape.get("inputs") in ("plain", "parts"):
        args = arguments(inputs.get("arguments", inputs.get("input")))
    if inputs.get("type") == "tool_call" and "args" in inputs:
        call_id, args = call_id or as_text(inputs.get("id")), inputs["args"]
    if args is None or args == {}:
        args = as_json(facts.args)
    failed = True if piece.get("error") else known.failed if known else None
    if failed is None and "end" in piece:
        failed = False
    content: Any = None
    if known:
        content = known.content
    elif outputs.keys() == {"output"}:
        content = told(outputs["output"])
    elif outputs:
        content = told(outputs.get("result", outputs) if shape.get("outputs") == "parts" else outputs)
    elif piece.get("error"):
        content = str(piece.get("error"))
    result = Result(call_id, name, content, failed) if content is not None else None
    present = {"call_id": call_id, "result": result, "start": piece.get("start"), "end": piece.get("end")}
    return Meaning(
        role="tool",
        has_content=bool(inputs or outputs),
        call=Call(call_id, name, args),
        result=result,
        missing=[field for field, value in present.items() if value is None],
    )


def _plain(asked: list[Said], answer: Answer, *, role: Literal["llm", "span"]) -> Meaning:
    results: list[Result] = []
    known: set[str | None] = set()
    for said in asked:
        known |= {block.get("id") for block in said.blocks if block.get("type") == "tool_use"}
        results += [result._replace(asked=result.call_id in known) for result in said.results]
    told = {result.call_id for result in results if result.call_id}
    results += [result for result in answer.results if result.call_id not in told]
    return Meaning(
        role=role,
        has_content=bool(asked or answer.said),
        results=results,
        said=_last_words(asked, "user") or (_last_words(answer.dialogue, "user") if not asked else None),
        answer=_last_words(answer.said, "assistant"),
    )


def _asked(inputs: Json) -> list[Said]:
    """The messages that went in, wherever they stand with their words; a bare text is what a user said."""
    wordless: list[Said] = []
    for bag in (inputs, as_json(inputs.get("input"))):
        for key in ("messages", "input", "prompt", "prompts", "question", "query"):
            value = bag.get(key)
            found = messages(value) or [_user(prompt) for prompt in map(as_json, as_list(value)) if "text" in prompt]
            if not found and (text := as_text(value)):
                found = [_user({"text": text})]
            if any(said.blocks or said.results for said in found):
                return found
            wordless = wordless or found
    return wordless


def _user(prompt: Json) -> Said:
    return Said("user", [{"type": "text", "text": str(prompt["text"])}], [])


def _last_words(said: list[Said], role: str) -> str | None:
    return next((one.text for one in reversed(said) if one.role == role and one.text), None)


def _bare_name(piece: Piece) -> str:
    name = as_text(piece.get("name")) or "tool"
    return name.removeprefix("execute_tool ").removeprefix("running tool: ").removesuffix(".tool") or "tool"
