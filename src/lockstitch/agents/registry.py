"""Providers, compactors, memory stores, formatters, embedders and file stores by name.

Only this module imports the modules that need an SDK, at the first use of their name.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple, cast
from urllib.parse import parse_qs, unquote, urlsplit

from lockstitch.agents.compactors.strategies import (
    SlidingWindowCompactor,
    SummarizingCompactor,
    ToolResultRemovalCompactor,
)
from lockstitch.agents.embedders import Embedder, HashingEmbedder
from lockstitch.agents.file_stores import LocalFileStore
from lockstitch.agents.formatters.ag_ui import AGUIFormatter
from lockstitch.agents.formatters.ai_sdk import AISDKFormatter
from lockstitch.agents.formatters.formats import JsonFormatter, RawFormatter, XmlFormatter
from lockstitch.agents.formatters.formatter import FormatterMaker
from lockstitch.agents.memories import RecordMemoryStore
from lockstitch.engine.ports.compactor import Compactor, NoCompactor
from lockstitch.engine.ports.file_store import FileStore, NoFileStore
from lockstitch.engine.ports.memory import MemoryStore, NoMemoryStore
from lockstitch.engine.ports.provider import Provider, ProviderError
from lockstitch.errors import Refused

_PACKAGE: Final = "lockstitch.agents.providers"


class _ProviderModule(NamedTuple):
    """Module and class of a provider, and the SDK that it needs, which is also the name of the extra."""

    module: str
    class_name: str
    sdk: str


_ANTHROPIC: Final = _ProviderModule("anthropic", "AnthropicProvider", "anthropic")
_CHAT: Final = _ProviderModule("openai_chat", "OpenAIChatProvider", "openai")
_RESPONSES: Final = _ProviderModule("openai_responses", "OpenAIResponsesProvider", "openai")
_CLASSES: Final = {module.class_name: module for module in (_ANTHROPIC, _CHAT, _RESPONSES)}


def provider_class(name: str) -> type[Provider]:
    """Return the class of a provider, such as `OpenAIChatProvider`.

    Raises:
        KeyError: If the name is unknown.
        ProviderError: Of kind `setup`, if the SDK is missing.
    """
    return cast("type[Provider]", _load(_CLASSES[name]))


def resolve_provider(model: str, *, base_url: str | None = None, api_key: str | None = None) -> tuple[Provider, str]:
    """Return the provider of a model, and the name of the model there. This makes no request.

    Args:
        model: Prefix of the provider and name of the model, such as `anthropic:claude-sonnet-5`.
        base_url: Address of the API. None: from the environment.
        api_key: Key of the API. None: from the environment.

    Raises:
        ProviderError: Of kind `setup`, if the prefix is unknown, or the SDK, the key or the script is missing.
    """
    prefix, colon, name = model.partition(":")
    if not colon or not name or prefix not in _PREFIXES:
        raise ProviderError(
            f"{model!r} is not a model. Use one of {', '.join(f'{known}:…' for known in _PREFIXES)}, for example "
            f"anthropic:claude-sonnet-5, or pass a provider object with the name {prefix!r} as the model of the agent.",
            "setup",
        )
    if prefix == "scripted":
        from lockstitch.agents.providers.scripted import Scripted

        return Scripted.from_file(name), name
    return _made(prefix, None, base_url, api_key, _DEFAULT_NAMES[prefix]), name


def provider_at(model: str | Provider, *, base_url: str | None = None, api_key: str | None = None) -> Provider:
    """Return a provider object with a model, for the arguments `model`, `base_url` and `api_key` of an agent.

    With a base URL, the prefix of the stored model is host and port, so that the models of two servers have different
    names.

    Raises:
        Refused: If the model is not text with the prefix of an API.
        ProviderError: Of kind `setup`, if the SDK or the key is missing, or the URL is not valid.
    """
    if not isinstance(model, str):
        raise Refused(f"Pass base_url and api_key to the provider object {model.name}, not to the agent.")
    prefix, _, name = model.partition(":")
    if not name or prefix not in _DEFAULT_NAMES:
        known = ", ".join(f"{known}:…" for known in _DEFAULT_NAMES)
        raise Refused(f"base_url and api_key need a model of {known}, not {model!r}.")
    return _made(prefix, name, base_url, api_key, None if base_url else _DEFAULT_NAMES[prefix])


def is_model(text: str) -> bool:
    """True if a text has the prefix of a known API and the name of a model, as in `openai:gpt-5`."""
    prefix, _, name = text.partition(":")
    return bool(name) and prefix in _PREFIXES


def server_prefix(base_url: str) -> str:
    """Return the prefix of the stored models of a server: its host and port."""
    from lockstitch.agents.providers.http import prefix_of

    return prefix_of(None, base_url, "")


def _made(prefix: str, model: str | None, base_url: str | None, api_key: str | None, name: str | None) -> Provider:
    """Return a provider object. `openai:` is the Responses API at OpenAI, and Chat Completions at other servers."""
    module = _MODULES.get(prefix)
    if module is None:
        _load(_CHAT)
        from lockstitch.agents.providers.openai_client import base_url_of, is_custom

        module = _CHAT if is_custom(base_url_of(base_url)) else _RESPONSES
    return _load(module)(model, base_url=base_url, api_key=api_key, name=name)


def _load(provider: _ProviderModule) -> Callable[..., Any]:
    try:
        module = import_module(f"{_PACKAGE}.{provider.module}")
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] == "lockstitch":
            raise
        raise ProviderError(
            f"The SDK of {provider.sdk} is not installed. Run: pip install 'lockstitch[{provider.sdk}]'.", "setup"
        ) from exc
    return getattr(module, provider.class_name)


_MODULES: Final = {"anthropic": _ANTHROPIC, "openai-chat": _CHAT, "openai-responses": _RESPONSES}
_DEFAULT_NAMES: Final = {
    "anthropic": "anthropic",
    "openai": "openai",
    "openai-chat": "openai",
    "openai-responses": "openai",
}
"""Prefixes of model names by the API that they choose, with the name of its provider in the record."""
_PREFIXES: Final = (*_DEFAULT_NAMES, "scripted")


_FILE_STORE_FORMS: Final = (
    "none, file:folder, file:///srv/files or s3://bucket/prefix?endpoint=http://host:9000&region=eu-west-1"
)
_S3_OPTIONS: Final = frozenset({"endpoint", "region"})


def file_store(url: str) -> FileStore:
    """Return the file store at a URL. Raises `Refused` if the URL is not a file store."""
    if url in ("none", "none:"):
        return NoFileStore()
    try:
        # A # is part of the path.
        parts = urlsplit(url, allow_fragments=False)
    except ValueError as exc:
        raise Refused(f"{url!r} is not a file store ({exc}). Use {_FILE_STORE_FORMS}.") from exc
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        # A ? is part of the folder name: file URLs have no options.
        path = url.removeprefix("file:").removeprefix("//localhost").removeprefix("//")
        if path.strip("/"):
            return LocalFileStore(unquote(path))
    if parts.scheme == "s3" and parts.netloc:
        return _s3(parts.netloc, unquote(parts.path), parts.query)
    raise Refused(f"{url!r} is not a file store. Use {_FILE_STORE_FORMS}.")


def _s3(bucket: str, prefix: str, query: str) -> FileStore:
    options = {name: values[-1] for name, values in parse_qs(query).items()}
    if not options.keys() <= _S3_OPTIONS:
        raise Refused(f"An S3 file store has the options {' and '.join(sorted(_S3_OPTIONS))}, not {query!r}.")
    try:
        from lockstitch.agents.s3_file_store import S3FileStore
    except ModuleNotFoundError as exc:
        raise Refused(f"Package {exc.name} is not installed. Run: pip install 'lockstitch[s3]'.") from exc
    return S3FileStore(bucket, prefix, endpoint=options.get("endpoint"), region=options.get("region"))


_EMBEDDER_FORMS: Final = "hashing, hashing:DIMENSIONS or openai:MODEL, for example openai:text-embedding-3-small"


def embedder(which: str | Embedder) -> Embedder:
    """Return an embedder by name. This makes no request.

    Args:
        which: `hashing` works offline, `openai:MODEL` uses any server with the OpenAI API. An embedder is returned
            unchanged.

    Raises:
        Refused: If the name is unknown.
        ProviderError: Of kind `setup`, if the SDK or the key is missing.
    """
    if not isinstance(which, str):
        return which
    kind, _, name = which.partition(":")
    if kind == "hashing":
        if not name:
            return HashingEmbedder()
        if name.isascii() and name.isdigit() and int(name):
            return HashingEmbedder(int(name))
    if kind == "openai" and name:
        return _openai_embedder(name)
    raise Refused(f"{which!r} is not an embedder. Use {_EMBEDDER_FORMS}.")


def _openai_embedder(model: str) -> Embedder:
    try:
        from lockstitch.agents.openai_embedder import OpenAIEmbedder
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] == "lockstitch":
            raise
        raise ProviderError(
            "The SDK of openai is not installed. Run: pip install 'lockstitch[openai]'.", "setup"
        ) from exc
    return OpenAIEmbedder(model)


_COMPACTOR_CLASSES: Final = (NoCompactor, ToolResultRemovalCompactor, SlidingWindowCompactor, SummarizingCompactor)

COMPACTOR_NAMES: Final = tuple(kind.name for kind in _COMPACTOR_CLASSES)

_COMPACTORS: Final[dict[str, Callable[..., Compactor]]] = {
    **{kind.name: kind for kind in _COMPACTOR_CLASSES},
    # Names in older definitions.
    **{kind.__name__: kind for kind in _COMPACTOR_CLASSES},
    "placeholder": NoCompactor,
}


def compactor(name: str, **parameters: Any) -> Compactor:
    """Return a compactor by name. Raises `Refused` if the name or a parameter is unknown."""
    kind = _COMPACTORS.get(name)
    if kind is None:
        raise Refused(f"Unknown compactor {name!r}. Choose from: {', '.join(COMPACTOR_NAMES)}.")
    try:
        return kind(**parameters)
    except TypeError as exc:
        raise Refused(f"The compactor {name} does not take these parameters: {exc}") from exc


_MEMORY_CLASSES: Final = (NoMemoryStore, RecordMemoryStore)

MEMORY_NAMES: Final = tuple(kind.name for kind in _MEMORY_CLASSES)

_MEMORIES: Final[dict[str, Callable[..., MemoryStore]]] = {
    **{kind.name: kind for kind in _MEMORY_CLASSES},
    # Names in older definitions.
    **{kind.__name__: kind for kind in _MEMORY_CLASSES},
    "placeholder": NoMemoryStore,
    "PlaceholderMemoryStore": NoMemoryStore,
}


def memory_store(name: str, **parameters: Any) -> MemoryStore:
    """Return a memory store by name. Raises `Refused` if the name or a parameter is unknown."""
    kind = _MEMORIES.get(name)
    if kind is None:
        raise Refused(f"Unknown memory {name!r}. Choose from: {', '.join(MEMORY_NAMES)}.")
    try:
        return kind(**parameters)
    except TypeError as exc:
        raise Refused(f"The memory {name} does not take these parameters: {exc}") from exc


_FORMATTER_CLASSES: Final = (JsonFormatter, XmlFormatter, RawFormatter, AISDKFormatter, AGUIFormatter)

FORMATTER_NAMES: Final = tuple(kind.name for kind in _FORMATTER_CLASSES)

_FORMATTERS: Final[dict[str, FormatterMaker]] = {kind.name: kind for kind in _FORMATTER_CLASSES}


def formatter(name: str) -> FormatterMaker:
    """Return the class of a formatter by name. Raises `Refused` if the name is unknown."""
    formatter_maker = _FORMATTERS.get(name)
    if formatter_maker is None:
        raise Refused(f"Unknown formatter {name!r}. Choose from: {', '.join(FORMATTER_NAMES)}.")
    return formatter_maker
