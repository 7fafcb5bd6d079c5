"""Embedders by name."""

from typing import Final

from lockstitch.errors import Refused
from lockstitch.runtime.embedder import Embedder
from lockstitch.runtime.embedders.hashing import HashingEmbedder
from lockstitch.runtime.provider import ProviderError

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
        from lockstitch.runtime.embedders.openai import OpenAIEmbedder
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] == "lockstitch":
            raise
        raise ProviderError("The SDK of openai is not installed: pip install 'lockstitch[openai]'.", "setup") from exc
    return OpenAIEmbedder(model)
