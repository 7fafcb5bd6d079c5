"""Agents of the SDK for the tests: one tool, and a model that answers the last item."""

from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from lockstitch.integrations.openai_agents import LockstitchSession

QUIET = RunConfig(tracing_disabled=True)


class Answering(Model):
    """`add A B` and `pay A B` call a tool, `fail` raises, and a result becomes the answer."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        last, number = input[-1], len(input)
        output: list[Any] = []
        text = str(last.get("content"))
        if last.get("type") == "function_call_output":
            output.append(_message(f"The sum is {last['output']}.", number))
        elif text == "fail":
            raise RuntimeError("The model is down.")
        elif text.startswith(("add ", "pay ")):
            name, a, b = text.split()
            arguments = f'{{"a": {a}, "b": {b}}}'
            output += [
                _message("Let me see.", number),
                ResponseFunctionToolCall(
                    type="function_call", call_id=f"call-{number}", name=name, arguments=arguments
                ),
            ]
        else:
            output.append(_message(f"You said {text}.", number))
        usage = Usage(requests=1, input_tokens=10 * number, output_tokens=5, total_tokens=10 * number + 5)
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def _message(text: str, number: int) -> ResponseOutputMessage:
    content = [ResponseOutputText(type="output_text", text=text, annotations=[])]
    return ResponseOutputMessage(
        id=f"msg-{number}", type="message", role="assistant", status="completed", content=[*content]
    )


@function_tool
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@function_tool(needs_approval=True)
def pay(a: int, b: int) -> str:
    """Add two numbers if a person approves."""
    return str(a + b)


def agent() -> Agent[Any]:
    return Agent(name="adder", model=Answering(), tools=[add, pay])


async def run(session: Any, input: Any) -> Any:
    """Run the agent and return the result."""
    return await Runner.run(agent(), input, session=session, run_config=QUIET)


def texts(items: Any) -> list[str]:
    """Return the texts of items."""
    found: list[str] = []
    for item in items:
        content = item.get("content", item.get("output", item.get("name")))
        found.append(content if isinstance(content, str) else "".join(part["text"] for part in content))
    return found


async def session_texts(session: LockstitchSession) -> list[str]:
    return texts(await session.get_items())
