"""Forms from JSON schemas; operations behind forms."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from fastapi import Request
from starlette.responses import Response

from lockstitch.errors import LockstitchError, Refused, ThreadEnded
from lockstitch.model import Json, Thread, codec
from lockstitch.model.message import user
from lockstitch.server.auth import Caller
from lockstitch.server.pages.common.render import base_path, is_htmx_request, redirect_to

_SIMPLE: Final = {"string": "text", "integer": "whole", "number": "number", "boolean": "yes"}


@dataclass(frozen=True, slots=True)
class Field:
    """One field: a text, a whole number, a number, yes or no, a choice, or JSON."""

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


def fields_of(schema: Json, given: Any) -> list[Field]:
    """The fields for what a tool takes, filled in with what the model gave."""
    properties: Any = schema.get("properties")
    if not isinstance(properties, dict):
        return []
    required: Any = schema.get("required") or []
    known: Json = cast("Json", given) if isinstance(given, dict) else {}
    found: list[Field] = []
    for name, one in cast("Json", properties).items():
        about: Json = cast("Json", one) if isinstance(one, dict) else {}
        choices: Any = about.get("enum")
        kind = _SIMPLE.get(str(about.get("type")), "json")
        value: Any = known.get(name, about.get("default"))
        found.append(
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
    return found


def filled(fields: list[Field], prefix: str, form: Mapping[str, Any]) -> Json:
    """What somebody has filled in, as the JSON that the schema speaks of. Refused says which field is wrong."""
    told: Json = {}
    for one in fields:
        text = str(form.get(f"{prefix}{one.name}", "")).strip()
        if one.kind == "yes":
            told[one.name] = bool(text)
        elif text or one.required or one.kind == "text":
            told[one.name] = _read(one, text)
    return told


def _read(one: Field, text: str) -> Any:
    try:
        match one.kind:
            case "whole":
                return int(text)
            case "number":
                return float(text)
            case "json":
                return codec.loads(text) if text else None
            case _:
                return text
    except (ValueError, LockstitchError) as exc:
        raise Refused(f"{one.label}: {text[:80]!r} is no {one.kind}.") from exc


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
    """The agents whose code this server has."""
    return sorted(caller.state.app.agents) if caller.state.app else []


def done(request: Request, path: str, said: str = "") -> Response:
    """After an act: look there. htmx is told to go, everybody else is sent."""
    if is_htmx_request(request):
        return Response(status_code=204, headers={"HX-Redirect": base_path(request) + path})
    return redirect_to(request, path, said)


async def begin(caller: Caller, agent: str, message: str, *, key: str | None, kind: str) -> UUID:
    """Give an agent something to do in a thread of its own."""
    name = caller.app.agent(agent).name
    if kind == "goal":
        return (await caller.store.start(name, message, key=key)).id
    return (await caller.store.enqueue(name, user(message), thread=key)).thread.id


async def say(caller: Caller, head: Thread, message: str) -> None:
    """Say something to a thread: it begins a run, or waits in line behind the open one."""
    if head.kind == "trace":
        raise Refused("This is a mirror of what happened in another system; nobody there reads this.")
    if head.ended:
        raise ThreadEnded(f"Thread {head.id} is {head.status} and takes no more; fork it to go on.", thread_id=head.id)
    await caller.store.enqueue(caller.app.agent(head.agent).name, user(message), thread=head)


async def retry(caller: Caller, head: Thread) -> None:
    """Try a failed or cancelled run again."""
    await caller.app.agent(head.agent).retry(head, store=caller.store, detach=True)


async def resume(caller: Caller, head: Thread) -> None:
    """Have a thread that was cut off, or that waits for time or for code, be looked at now."""
    # 404 if no agent of this app executes the thread.
    caller.app.agent(head.agent)
    await caller.store.wake(head)
