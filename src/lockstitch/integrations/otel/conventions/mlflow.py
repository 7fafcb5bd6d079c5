"""`MLflow`: the attributes of MLflow's tracing, in which every value is JSON text."""

from lockstitch.integrations.otel.conventions.convention import Content, Facts, Shape, Side
from lockstitch.integrations.otel.usage import counted
from lockstitch.integrations.otel.values import (
    as_count,
    as_json,
    as_number,
    as_text,
    decoded,
    first,
    parsed,
    provider_name,
)
from lockstitch.integrations.spans.span import SpanData
from lockstitch.model import Json

_TAG = "mlflow.traceTag."
_SIDES: tuple[tuple[str, Side, str], ...] = (
    ("mlflow.spanInputs", "inputs", "input"),
    ("mlflow.spanOutputs", "outputs", "output"),
)
_PARAMETERS = ("temperature", "max_tokens", "max_completion_tokens", "top_p", "top_k", "stop", "seed", "stream")


class MLflow:
    def has_content(self, shape: Shape) -> bool:
        return "mlflow" in shape.heads or shape.scope.startswith("mlflow")

    def take(self, content: Content) -> None:
        attributes = content.attributes
        for name, side, key in _SIDES:
            if name in attributes:
                content.put(side, key, decoded(attributes.pop(name)), name)
        for name, value in attributes.items():
            # Quoted text only. Objects and numbers have the same meaning as text.
            if isinstance(value, str) and value[:1] == '"':
                attributes[name] = decoded(value)
        requested = as_json(content.inputs.get("input"))
        if "tools" in requested:
            # The same tools in a common form.
            attributes.pop("mlflow.chat.tools", None)
        if not requested:
            content.move("mlflow.chat.messages", "inputs", "messages")
        content.move("mlflow.chat.tools", "inputs", "tools")
        kind = (as_text(attributes.get("mlflow.spanType")) or "").lower()
        content.is_named("" if kind == "unknown" else kind)
        for name in [name for name in attributes if name.startswith(_TAG)]:
            content.tags.append(f"{name[len(_TAG) :]}:{attributes.pop(name)}")
        session = first(attributes, "mlflow.trace.session", "session.id")
        content.belongs(
            thread_id=session, session_id=session, user_id=first(attributes, "mlflow.trace.user", "user.id")
        )

    def has_facts(self, shape: Shape) -> bool:
        return "mlflow.spanType" in shape.attributes

    def facts(self, attributes: Json, span: SpanData) -> Facts:
        usage = as_json(parsed(attributes.get("mlflow.chat.tokenUsage")))
        requested = as_json(span.get("inputs"))
        cost = as_json(parsed(attributes.get("mlflow.llm.cost")))
        return Facts(
            model=as_text(attributes.get("mlflow.llm.model")),
            requested_model=as_text(first({**requested, **attributes}, "model", "model_name")),
            provider=provider_name(attributes.get("mlflow.llm.provider")),
            tokens=counted(
                usage.get("input_tokens"),
                usage.get("output_tokens"),
                cache_read=usage.get("cache_read_input_tokens"),
                cache_write=usage.get("cache_creation_input_tokens"),
                total=usage.get("total_tokens"),
            ),
            total_tokens=as_count(usage.get("total_tokens")),
            cost=as_number(cost.get("total_cost")),
            parameters={name: requested[name] for name in _PARAMETERS if requested.get(name) is not None},
        )
