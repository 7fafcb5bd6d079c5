"""Providers, compactors, memories, formatters and file stores by name.

SDKs are imported here, when they are asked for, and nowhere else.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from lockstitch.agents.compactors.strategies import (
    SlidingWindowCompactor,
    SummarizingCompactor,
    ToolResultRemovalCompactor,
)
from lockstitch.agents.embedders import Embedder, HashingEmbedder
from lockstitch.agents.file_stores import LocalFileStore
from lockstitch.agents.formatters.formats import JsonFormatter, RawFormatter, XmlFormatter
from lockstitch.agents.formatters.formatter import FormatterMaker
from lockstitch.agents.memories import RecordMemoryStore
from lockstitch.engine.ports.compactor import Compactor, NoCompactor
from lockstitch.engine.ports.file_store import FileStore, NoFileStore
from lockstitch.engine.ports.memory import MemoryStore, NoMemoryStore
from lockstitch.engine.ports.provider import Provider, ProviderError
from lockstitch.errors import Refused

_HERE: Final = "lockstitch.agents.providers"


class _Place(NamedTuple):
    """Where a provider is, and the SDK and extra it needs."""

    module: str
    class_name: str
    sdk: str


_ANTHROPIC: Final = _Place("anthropic", "AnthropicProvider", "anthropic")
_CHAT: Final = _Place("openai_chat", "OpenAIChatProvider", "openai")
_RESPONSES: Final = _Place("openai_responses", "OpenAIResponsesProvider", "openai")


def resolve_provider(model: str, *, base_url: str | None = None, api_key: str | None = None) -> tuple[Provider, str]:
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
    from lockstitch.agents.providers.openai_client import base_url_of, is_custom

    make = _openai_chat if is_custom(base_url_of(base_url)) else _openai_responses
    return make(name, base_url, api_key)


def _scripted(name: str, _base_url: str | None, _api_key: str | None) -> Provider:
    from lockstitch.agents.providers.scripted import Scripted

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


_FILE_STORE_FORMS: Final = (
    "none, file:folder, file:///srv/files or s3://bucket/prefix?endpoint=http://host:9000&region=eu-west-1"
)
_S3_OPTIONS: Final = frozenset({"endpoint", "region"})


def file_store(url: str) -> FileStore:
    """The file store at `url`. Refused when that is none."""
    if url in ("none", "none:"):
        return NoFileStore()
    try:
        # A # belongs to the path.
        parts = urlsplit(url, allow_fragments=False)
    except ValueError as exc:
        raise Refused(f"{url!r} is no file store ({exc}). Write {_FILE_STORE_FORMS}.") from exc
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        # A ? belongs to a folder's name: it has no options.
        path = url.removeprefix("file:").removeprefix("//localhost").removeprefix("//")
        if path.strip("/"):
            return LocalFileStore(unquote(path))
    if parts.scheme == "s3" and parts.netloc:
        return _s3(parts.netloc, unquote(parts.path), parts.query)
    raise Refused(f"{url!r} is no file store. Write {_FILE_STORE_FORMS}.")


def _s3(bucket: str, prefix: str, query: str) -> FileStore:
    options = {name: values[-1] for name, values in parse_qs(query).items()}
    if not options.keys() <= _S3_OPTIONS:
        raise Refused(f"A file store on S3 takes {' and '.join(sorted(_S3_OPTIONS))}, not {query!r}.")
    try:
        from lockstitch.agents.file_stores import S3FileStore
    except ModuleNotFoundError as exc:
        raise Refused(f"{exc.name} is missing: pip install 'lockstitch[s3]'") from exc
    return S3FileStore(bucket, prefix, endpoint=options.get("endpoint"), region=options.get("region"))


_EMBEDDER_FORMS: Final = "hashing, hashing:DIMENSIONS or openai:MODEL, as in openai:text-embedding-3-small"


def embedder(which: str | Embedder) -> Embedder:
    """The embedder of this name: "hashing" needs nothing but this machine, "openai:MODEL" any server that speaks so.

    Refused when there is none; ProviderError of kind setup, before any network, when its SDK or key is missing.
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
    raise Refused(f"{which!r} names no embedder: write {_EMBEDDER_FORMS}.")


def _openai_embedder(model: str) -> Embedder:
    try:
        from lockstitch.agents.openai_embedder import OpenAIEmbedder
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] == "lockstitch":
            raise
        raise ProviderError("The SDK of openai is not installed: pip install 'lockstitch[openai]'.", "setup") from exc
    return OpenAIEmbedder(model)


_COMPACTOR_CLASSES: Final = (NoCompactor, ToolResultRemovalCompactor, SlidingWindowCompactor, SummarizingCompactor)

COMPACTOR_NAMES: Final = tuple(kind.name for kind in _COMPACTOR_CLASSES)

_COMPACTORS: Final[dict[str, Callable[..., Compactor]]] = {
    **{kind.name: kind for kind in _COMPACTOR_CLASSES},
    # How older records name them.
    **{kind.__name__: kind for kind in _COMPACTOR_CLASSES},
    "placeholder": NoCompactor,
}


def compactor(name: str, **parameters: Any) -> Compactor:
    """The compactor of this name, made with these parameters. Refused when there is none, or it does not take them."""
    kind = _COMPACTORS.get(name)
    if kind is None:
        raise Refused(f"There is no compactor {name!r}; there are {', '.join(COMPACTOR_NAMES)}.")
    try:
        return kind(**parameters)
    except TypeError as exc:
        raise Refused(f"The compactor {name} does not take these parameters: {exc}") from exc


_MEMORY_CLASSES: Final = (NoMemoryStore, RecordMemoryStore)

MEMORY_NAMES: Final = tuple(kind.name for kind in _MEMORY_CLASSES)

_MEMORIES: Final[dict[str, Callable[..., MemoryStore]]] = {
    **{kind.name: kind for kind in _MEMORY_CLASSES},
    # How older records name them.
    **{kind.__name__: kind for kind in _MEMORY_CLASSES},
    "placeholder": NoMemoryStore,
    "PlaceholderMemoryStore": NoMemoryStore,
}


def memory_store(name: str, **parameters: Any) -> MemoryStore:
    """The memory of this name, made with these parameters. Refused when there is none, or it does not take them."""
    kind = _MEMORIES.get(name)
    if kind is None:
        raise Refused(f"There is no memory {name!r}; there are {', '.join(MEMORY_NAMES)}.")
    try:
        return kind(**parameters)
    except TypeError as exc:
        raise Refused(f"The memory {name} does not take these parameters: {exc}") from exc


_FORMATTER_CLASSES: Final = (JsonFormatter, XmlFormatter, RawFormatter)

FORMATTER_NAMES: Final = tuple(kind.name for kind in _FORMATTER_CLASSES)

_FORMATTERS: Final[dict[str, FormatterMaker]] = {kind.name: kind for kind in _FORMATTER_CLASSES}


def formatter(name: str) -> FormatterMaker:
    """What makes formatters of this name, one for each stream. Refused when there is none."""
    formatter_maker = _FORMATTERS.get(name)
    if formatter_maker is None:
        raise Refused(f"There is no formatter {name!r}; there are {', '.join(FORMATTER_NAMES)}.")
    return formatter_maker
