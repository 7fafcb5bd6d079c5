"""The operations of an OpenAPI document, with sample values."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Json = dict[str, Any]

METHODS = ("get", "put", "post", "patch", "delete")


class Operation(NamedTuple):
    method: str
    path: str
    parameters: list[Json]
    body: Json | None

    def __str__(self) -> str:
        return f"{self.method.upper()} {self.path}"


def operations(schema: Json) -> Iterator[Operation]:
    for path, item in schema["paths"].items():
        for method in METHODS:
            if method in item:
                content = item[method].get("requestBody", {}).get("content", {})
                body = content.get("application/json", {}).get("schema")
                yield Operation(method, path, item[method].get("parameters", []), body)


def sample(schema: Json, root: Json, known_value: Callable[[str], Any], name: str = "") -> Any:
    """Return a value for a schema: a known value of the field, or the simplest valid value."""
    if (value := known_value(name)) is not None:
        return value
    if "$ref" in schema:
        return sample(root["components"]["schemas"][schema["$ref"].rpartition("/")[2]], root, known_value, name)
    for kind in ("anyOf", "oneOf", "allOf"):
        if kind in schema:
            return sample(schema[kind][0], root, known_value, name)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            chosen = [
                field for field in fields if field in schema.get("required", ()) or known_value(field) is not None
            ]
            return {field: sample(fields[field], root, known_value, field) for field in chosen}
        case "array":
            return [sample(schema.get("items", {}), root, known_value, name)]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case _:
            return "x"
