"""An agent for the tests: a scripted model, a tool, and a tool that needs an approval."""

from typing import Any

from pydantic_ai import Agent, Conversation, DeferredToolRequests
from pydantic_ai.conversation_store import ConversationStore
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

SUM = ["add 2 3", "Let me see.", "5", "The result is 5."]


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer the last request: `add A B` and `pay A` call a tool, a result becomes the answer."""
    request = messages[-1]
    assert isinstance(request, ModelRequest)
    usage = RequestUsage(input_tokens=10 * len(messages), output_tokens=5)
    last = request.parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse([TextPart(f"The result is {last.model_response_str()}.")], usage=usage)
    text = str(getattr(last, "content", ""))
    name, *values = text.split()
    if name in ("add", "pay"):
        call = ToolCallPart(name, {"values": [int(value) for value in values]}, f"call-{len(messages)}")
        return ModelResponse([TextPart("Let me see."), call], usage=usage)
    return ModelResponse([TextPart(f"You said {text}.")], usage=usage)


def add(values: list[int]) -> int:
    """Add numbers."""
    return sum(values)


def pay(values: list[int]) -> str:
    """Pay an amount."""
    return f"paid {values[0]}"


def agent() -> Agent[None, Any]:
    made: Agent[None, Any] = Agent(FunctionModel(model, model_name="tiny"), output_type=[str, DeferredToolRequests])
    made.tool_plain(add)
    made.tool_plain(requires_approval=True)(pay)
    return made


async def turn(store: ConversationStore, text: str, conversation_id: str = "1", scope: str | None = None) -> Any:
    """Load a conversation, run the agent and save it. Return the result of the run."""
    conversation = await store.load(conversation_id, scope=scope) or Conversation(conversation_id=conversation_id)
    result = await agent().run(text, conversation=conversation)
    await store.save(result, scope=scope)
    return result


def texts(conversation: Conversation | None) -> list[str]:
    """Return the texts of the messages of a conversation."""
    assert conversation is not None
    found: list[str] = []
    for message in conversation.messages:
        if isinstance(message, ModelResponse):
            found.append(message.text or "")
        else:
            found += [
                part.model_response_str() if isinstance(part, ToolReturnPart) else str(getattr(part, "content", ""))
                for part in message.parts
            ]
    return found
