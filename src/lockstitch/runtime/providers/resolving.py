"""From the name of a model to the provider that has it: "anthropic:claude-…", "openai:gpt-…", "scripted:file.yaml".

SDKs are imported here, when they are asked for, and nowhere else.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

from lockstitch.runtime.provider import Provider, ProviderError

_HERE: Final = "lockstitch.runtime.providers"


class _Place(NamedTuple):
    """Where a provider is, and the SDK and extra it needs."""

    module: str
    class_name: str
    sdk: str


_ANTHROPIC: Final = _Place("anthropic", "AnthropicProvider", "anthropic")
_CHAT: Final = _Place("openai_chat", "OpenAIChatProvider", "openai")
_RESPONSES: Final = _Place("openai_responses", "OpenAIResponsesProvider", "openai")


def provider_for(model: str, *, base_url: str | None = None, api_key: str | None = None) -> tuple[Provider, str]:
    """The provider of a model and the model's name there. What is not given comes from the environment.

    ProviderError of kind setup, before any network: an unknown prefix, a missing SDK, a missing key, no such script.
    """
    prefix, colon, name = model.partition(":")
    if not colon or not name or prefix not in _MAKERS:
        raise ProviderError(
            f"{model!r} names no model: write {', '.join(f'{known}:…' for known in _MAKERS)}, as in "
            "anthropic:claude-sonnet-5.",
            "setup",
        )
    return _MAKERS[prefix](name, base_url, api_key), name


def _anthropic(_name: str, base_url: str | None, api_key: str | None) -> Provider:
    return _load(_ANTHROPIC)(base_url=base_url, api_key=api_key)


def _openai_chat(_name: str, base_url: str | None, api_key: str | None) -> Provider:
    return _load(_CHAT)(base_url=base_url, api_key=api_key)


def _openai_responses(_name: str, base_url: str | None, api_key: str | None) -> Provider:
    return _load(_RESPONSES)(base_url=base_url, api_key=api_key)


def _openai(name: str, base_url: str | None, api_key: str | None) -> Provider:
    """Other servers speak Chat Completions; OpenAI itself speaks Responses better."""
    _load(_CHAT)
    from lockstitch.runtime.providers.openai_client import base_url_of, is_custom

    make = _openai_chat if is_custom(base_url_of(base_url)) else _openai_responses
    return make(name, base_url, api_key)


def _scripted(name: str, _base_url: str | None, _api_key: str | None) -> Provider:
    from lockstitch.runtime.providers.scripted import Scripted

    return Scripted.from_file(name)


def _load(place: _Place) -> Callable[..., Any]:
    try:
        module = import_module(f"{_HERE}.{place.module}")
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] == "lockstitch":
            raise
        raise ProviderError(
            f"The SDK of {place.sdk} is not installed: pip install 'lockstitch[{place.sdk}]'.", "setup"
        ) from exc
    return getattr(module, place.class_name)


_MAKERS: Final[dict[str, Callable[[str, str | None, str | None], Provider]]] = {
    "anthropic": _anthropic,
    "openai": _openai,
    "openai-chat": _openai_chat,
    "openai-responses": _openai_responses,
    "scripted": _scripted,
}
