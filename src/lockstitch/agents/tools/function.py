"""`tool`: make tools from Python functions. Type hints give the schema, the docstring gives the description."""

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
"""Prefix of field names in the Pydantic model, so that parameters can have names such as `json` or `_x`."""


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
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "once",
    on_doubt: OnDoubt = "tell",
    approval: bool = False,
    frontend: bool = False,
    timeout: float | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool from a function, sync or async. Use it as a decorator, with or without options.

    The type hints of the parameters give the schema. A parameter `ctx` gets the `ToolContext` and is hidden from the
    model. A sync function runs in a thread, so that it does not block the event loop.

    Example:
        ```python
        @tool(effect="safe")
        def weather(city: str) -> str:
            \"\"\"Return the weather of a city.\"\"\"
            return "Sunny"

        helper = Agent("helper", model="anthropic:claude-sonnet-5", tools=[weather])
        ```

    Args:
        function: The function.
        name: Name of the tool. None: the name of the function.
        description: Description for the model. None: the docstring of the function.
        effect: Handling of an interrupted call. `safe`: repeat it. `keyed`: repeat it with the same
            `ctx.key`. `once`: do not repeat it; its outcome is in doubt.
        on_doubt: Handling of a call with an unknown outcome. `tell`: the model gets a message about it. `ask`:
            the thread waits until a person settles the call.
        approval: True if a person must approve each call.
        frontend: True if the frontend executes the calls. The body of the function never runs.
        timeout: Seconds that a call may take. None: the `tool_timeout` of the agent.

    Returns:
        The tool, or a decorator if `function` is missing.

    Raises:
        Refused: If the name or a parameter cannot be described to a model.
    """

    def make(function: Callable[..., Any]) -> Tool:
        tool_name = name or getattr(function, "__name__", "")
        model, schema = _model(function, tool_name)
        schema.pop("title", None)
        return Tool(
            name=tool_name,
            description=description if description is not None else inspect.getdoc(function) or "",
            input_schema=schema,
            call=None if frontend else _call(function, model),
            check=partial(_checked, model),
            effect=effect,
            on_doubt=on_doubt,
            approval=approval,
            timeout=timeout,
        )

    return make if function is None else make(function)


def _model(function: Callable[..., Any], name: str) -> tuple[type[BaseModel], Json]:
    """Return a Pydantic model of the parameters of a function, and its JSON schema."""
    hints = _hints(function, name)
    names: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for parameter in _parameters(function, name):
        if parameter.name == _CONTEXT:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise Refused(f"Tool {name}: parameter {parameter} cannot be passed by name. Use plain parameters.")
        default = ... if parameter.default is parameter.empty else parameter.default
        field = f"{_FIELD}{parameter.name}"
        names[field] = parameter.name
        fields[field] = (hints.get(parameter.name, Any), default)
    try:
        config = ConfigDict(extra="forbid", alias_generator=names.__getitem__)
        model = create_model(f"{name}_input", __config__=config, **fields)
        schema = model.model_json_schema()
    except PydanticUserError as exc:
        text = str(exc).splitlines()[0]
        raise Refused(f"Tool {name} has a parameter that no JSON schema can describe: {text}") from exc
    return model, schema


def _parameters(function: Callable[..., Any], name: str) -> Iterable[inspect.Parameter]:
    try:
        return inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as exc:
        raise Refused(f"Tool {name} cannot be created: {exc}. Wrap it in a function.") from exc


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Return the type hints of a function, of the function of a partial, or of `__call__` of an object."""
    target: Any = function
    while isinstance(target, partial):
        target = cast("partial[Any]", target).func
    if not inspect.isroutine(target) and not inspect.isclass(target):
        target = type(target).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as exc:
        raise Refused(f"Tool {name}: {exc}. Its type hints must be importable where it is defined.") from exc


def _checked(model: type[BaseModel], value: Json) -> Json:
    """Return the arguments for the function. Raises `Refused` with a text from which the model can correct them."""
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
        # Run in a thread: a blocking tool must not delay other tools or the heartbeat of the process.
        result = await run_to_end(partial(function, **arguments))
        return await cast("Any", result) if inspect.isawaitable(result) else result

    return call
