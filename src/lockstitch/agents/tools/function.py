"""Tools from Python functions: the schema comes from type hints, the description from the docstring."""

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, cast, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.errors import PydanticUserError

from lockstitch.engine.concurrency import run_to_end
from lockstitch.engine.ports.tool import Call, Effect, OnDoubt, Tool, ToolContext
from lockstitch.errors import Refused
from lockstitch.model import Json

_CONTEXT: Final = "ctx"
_FIELD: Final = "parameter_"
"""Stands before a parameter's name in the model, where `json`, `model_config` or `_x` would mean something else."""


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "once",
    on_doubt: OnDoubt = "tell",
    approval: bool = False,
    frontend: bool = False,
    timeout: float | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, sync or async.

    A parameter named `ctx` gets the ToolContext and is not shown to the model. With `frontend=True` the function's
    body is never run: the browser executes the call, and only the signature counts.
    """
    if function is not None:
        return _tool(function)
    return partial(_tool, **options)


def _tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    frontend: bool = False,
    **options: Any,
) -> Tool:
    chosen = name or getattr(function, "__name__", "")
    model = _model(function, chosen)
    schema = model.model_json_schema()
    schema.pop("title", None)
    return Tool(
        name=chosen,
        description=description if description is not None else inspect.getdoc(function) or "",
        input_schema=schema,
        call=None if frontend else _call(function, model),
        check=partial(_checked, model),
        **options,
    )


def _model(function: Callable[..., Any], name: str) -> type[BaseModel]:
    """The parameters of a function as a model."""
    hints = _hints(function, name)
    names: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for parameter in _parameters(function, name):
        if parameter.name == _CONTEXT:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise Refused(f"Tool {name}: {parameter} cannot be asked for by name; give it plain parameters.")
        default = ... if parameter.default is parameter.empty else parameter.default
        field = f"{_FIELD}{parameter.name}"
        names[field] = parameter.name
        fields[field] = (hints.get(parameter.name, Any), default)
    try:
        config = ConfigDict(extra="forbid", alias_generator=names.__getitem__)
        model = create_model(f"{name}_input", __config__=config, **fields)
        model.model_json_schema()
    except PydanticUserError as exc:
        text = str(exc).splitlines()[0]
        raise Refused(f"Tool {name} has a parameter that no JSON schema can describe: {text}") from exc
    return model


def _parameters(function: Callable[..., Any], name: str) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as exc:
        raise Refused(f"Tool {name} cannot be made: {exc}. Wrap it in a function of your own.") from exc


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """The type hints of a function, or of what stands behind a partial or an object that can be called."""
    behind: Any = function
    while isinstance(behind, partial):
        behind = cast("partial[Any]", behind).func
    if not inspect.isroutine(behind) and not inspect.isclass(behind):
        behind = type(behind).__call__
    try:
        return get_type_hints(behind, include_extras=True)
    except NameError as exc:
        raise Refused(f"Tool {name}: {exc}; its type hints must be importable where it is defined.") from exc


def _checked(model: type[BaseModel], value: Json) -> Json:
    """The arguments for the function; Refused says which of them is wrong, so that the model can mend it."""
    try:
        checked = model.model_validate(value)
    except ValidationError as exc:
        problems = "; ".join(f"{'.'.join(map(str, error['loc'])) or 'input'}: {error['msg']}" for error in exc.errors())
        raise Refused(f"Invalid arguments: {problems}") from exc
    return {field.removeprefix(_FIELD): getattr(checked, field) for field in model.model_fields}


def _call(function: Callable[..., Any], model: type[BaseModel]) -> Call:
    wants_context = _CONTEXT in inspect.signature(function).parameters
    is_async = inspect.iscoroutinefunction(function)

    async def call(context: ToolContext, value: Json) -> Any:
        arguments = _checked(model, value)
        if wants_context:
            arguments[_CONTEXT] = context
        if is_async:
            return await function(**arguments)
        # So that a tool that blocks holds up neither other tools nor the process's beat.
        result = await run_to_end(partial(function, **arguments))
        return await cast("Any", result) if inspect.isawaitable(result) else result

    return call
