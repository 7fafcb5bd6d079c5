"""A form from a JSON schema: one field for each simple property, JSON text for the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from lockstitch.errors import LockstitchError, Refused
from lockstitch.records import Json, codec

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
