"""Form fields from JSON schemas, and the operations of forms."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, TypeVar, cast
from uuid import UUID

from fastapi import Form, Request
from starlette.responses import Response

from lockstitch.errors import Conflict, LockstitchError, Refused, ThreadEnded
from lockstitch.model import Json, Thread, codec
from lockstitch.model.message import user
from lockstitch.server.auth import Caller
from lockstitch.server.pages.common.render import is_htmx_request, redirect_to
from lockstitch.store.conversations import thread_id_of_message

FormId = Annotated[str, Form(max_length=100)]
"""The hidden field of a form that identifies one message."""

_SIMPLE: Final = {"string": "text", "integer": "whole", "number": "number", "boolean": "yes"}
_KIND_NAMES: Final = {"whole": "an integer", "number": "a number", "json": "valid JSON"}


@dataclass(frozen=True, slots=True)
class Field:
    """A form field: text, integer, number, checkbox, choice or JSON."""

    name: str
    kind: str
    label: str
    value: str
    choices: list[str]
    required: bool
    help: str = ""

    @property
    def wide(self) -> bool:
        return self.kind == "json" or len(self.value) > 40


def fields_of(schema: Json, values: Any) -> list[Field]:
    """Return the fields of an input schema, filled with the input from the model."""
    properties: Any = schema.get("properties")
    if not isinstance(properties, dict):
        return []
    required: Any = schema.get("required") or []
    known: Json = cast("Json", values) if isinstance(values, dict) else {}
    fields: list[Field] = []
    for name, item in cast("Json", properties).items():
        about: Json = cast("Json", item) if isinstance(item, dict) else {}
        choices: Any = about.get("enum")
        kind = _SIMPLE.get(str(about.get("type")), "json")
        value: Any = known.get(name, about.get("default"))
        fields.append(
            Field(
                name=name,
                kind="choice" if isinstance(choices, list) else kind,
                label=str(about.get("title") or name.replace("_", " ").capitalize()),
                value=_shown(value, kind),
                choices=[str(choice) for choice in cast("list[Any]", choices)] if isinstance(choices, list) else [],
                required=name in required and kind != "yes",
                help=str(about.get("description") or ""),
            )
        )
    return fields


def filled(fields: list[Field], prefix: str, form: Mapping[str, Any]) -> Json:
    """Return the submitted values as JSON. Raises `Refused` with the name of an invalid field."""
    value: Json = {}
    for field in fields:
        text = str(form.get(f"{prefix}{field.name}", "")).strip()
        if field.kind == "yes":
            value[field.name] = bool(text)
        elif text or field.required or field.kind == "text":
            value[field.name] = _read(field, text)
    return value


def _read(field: Field, text: str) -> Any:
    try:
        match field.kind:
            case "whole":
                return int(text)
            case "number":
                return float(text)
            case "json":
                return codec.loads(text) if text else None
            case _:
                return text
    except (ValueError, LockstitchError) as exc:
        raise Refused(f"{field.label}: {text[:80]!r} is not {_KIND_NAMES[field.kind]}.") from exc


def _shown(value: Any, kind: str) -> str:
    if value is None:
        return ""
    if kind == "json" or not isinstance(value, str):
        return codec.dumps(value).decode()
    return value


T = TypeVar("T")


def changed(record: T, **fields: object) -> T:
    return replace(record, **fields)  # type: ignore[type-var]


def agents_of(caller: Caller) -> list[str]:
    """Return the names of the agents of the loaded app."""
    return sorted(caller.state.app.agents) if caller.state.app else []


def done(request: Request, path: str, text: str = "") -> Response:
    """Redirect after an action: with a header for htmx, else with a 303 response."""
    response = redirect_to(request, path, text)
    if is_htmx_request(request):
        response.status_code = 204
        response.headers["HX-Redirect"] = response.headers["location"]
        del response.headers["location"]
    return response


def message_id_of(form_id: str, message: str) -> str | None:
    """Return the id of a message from a form, or None if the form has no id.

    A form that is sent twice sends one message. A form that is sent again with another text sends another message.
    """
    return f"{form_id}:{codec.digest(message)[:16]}" if form_id else None


async def begin(caller: Caller, agent: str, message: str, *, key: str | None, kind: str, form_id: str) -> UUID:
    """Start a chat or goal thread with a message and return its id."""
    name = caller.app.agent(agent).name
    message_id = message_id_of(form_id, message)
    if kind != "goal":
        return (await caller.store.enqueue(name, user(message), thread=key, message_id=message_id)).thread.id
    if message_id is None or key is not None:
        return (await caller.store.start(name, message, key=key)).id
    thread_id = thread_id_of_message(caller.store.project, name, None, message_id)
    try:
        return (await caller.store.start(name, message, id=thread_id)).id
    except Conflict:
        # The form was sent before.
        return (await caller.store.thread(thread_id)).id


async def say(caller: Caller, head: Thread, message: str, form_id: str) -> None:
    """Send a message to a thread. It starts a run or is queued until the current run finishes."""
    if head.kind == "trace":
        raise Refused("This thread is an imported trace. It cannot receive messages.")
    if head.ended:
        raise ThreadEnded(
            f"Thread {head.id} is {head.status} and accepts no messages. Fork it to continue.", thread_id=head.id
        )
    name = caller.app.agent(head.agent).name
    await caller.store.enqueue(name, user(message), thread=head, message_id=message_id_of(form_id, message))


async def retry(caller: Caller, head: Thread) -> None:
    """Retry a failed or cancelled run."""
    await caller.app.agent(head.agent).retry(head, store=caller.store, detach=True)


async def resume(caller: Caller, head: Thread) -> None:
    """Resume an interrupted thread, or a thread that waits for a timer or a retry."""
    # 404 if no agent of this app executes the thread.
    caller.app.agent(head.agent)
    await caller.store.wake(head)
