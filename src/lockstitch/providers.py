"""Classes of providers, for agents that need a specific server or key: `Agent("helper", model=OpenAIChatProvider(…))`.

A class is loaded when it is first used, because each needs the SDK of its extra.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstitch.agents.providers.anthropic import AnthropicProvider
    from lockstitch.agents.providers.openai_chat import OpenAIChatProvider
    from lockstitch.agents.providers.openai_responses import OpenAIResponsesProvider

__all__ = ["AnthropicProvider", "OpenAIChatProvider", "OpenAIResponsesProvider"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lockstitch.agents.registry import provider_class

    value = globals()[name] = provider_class(name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
