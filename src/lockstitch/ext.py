"""Names that applications import, besides those of `lockstitch` and `lockstitch.server`.

Names are loaded when they are first used, so that a module with record classes does not import the runtime.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstitch.agents.embedders import Embedder, Vector, similarity
    from lockstitch.agents.providers.scripted import Scripted
    from lockstitch.agents.registry import embedder as resolve_embedder
    from lockstitch.agents.registry import resolve_provider
    from lockstitch.agents.spec import ToolSource
    from lockstitch.engine.concurrency import run_blocking
    from lockstitch.engine.config import RunStart
    from lockstitch.engine.events import Listener
    from lockstitch.engine.ports.memory import MemoryStore
    from lockstitch.engine.ports.provider import (
        Chunk,
        Download,
        ModelRequest,
        Provider,
        ProviderError,
        Response,
        Usage,
    )
    from lockstitch.extension import Extension
    from lockstitch.model import codec
    from lockstitch.model.clock import format_time, parse_time
    from lockstitch.model.format import duration as format_duration
    from lockstitch.model.format import plural
    from lockstitch.model.format import size as format_size
    from lockstitch.model.ids import as_id, foreign_id, new_id
    from lockstitch.model.message import answer_of, blocks, text_of, tool_uses
    from lockstitch.model.record import Count, Json, Number, Record, Text, Time
    from lockstitch.model.side_records import Name
    from lockstitch.model.thread import TERMINAL_STATUSES
    from lockstitch.store import Where

_MODULES = {
    "agents.embedders": ("Embedder", "Vector", "similarity"),
    "agents.providers.scripted": ("Scripted",),
    "agents.registry": ("resolve_provider",),
    "agents.spec": ("ToolSource",),
    "engine.concurrency": ("run_blocking",),
    "engine.config": ("RunStart",),
    "engine.events": ("Listener",),
    "engine.ports.memory": ("MemoryStore",),
    "engine.ports.provider": (
        *("Chunk", "Download", "ModelRequest", "Provider", "ProviderError", "Response", "Usage"),
    ),
    "extension": ("Extension",),
    "model": ("codec",),
    "model.clock": ("format_time", "parse_time"),
    "model.format": ("plural",),
    "model.ids": ("as_id", "foreign_id", "new_id"),
    "model.message": ("answer_of", "blocks", "text_of", "tool_uses"),
    "model.record": ("Count", "Json", "Number", "Record", "Text", "Time"),
    "model.side_records": ("Name",),
    "model.thread": ("TERMINAL_STATUSES",),
    "store": ("Where",),
}

_PLACES = {name: (module, name) for module, names in _MODULES.items() for name in names} | {
    "format_duration": ("model.format", "duration"),
    "format_size": ("model.format", "size"),
    "resolve_embedder": ("agents.registry", "embedder"),
}

__all__ = [
    "TERMINAL_STATUSES",
    "Chunk",
    "Count",
    "Download",
    "Embedder",
    "Extension",
    "Json",
    "Listener",
    "MemoryStore",
    "ModelRequest",
    "Name",
    "Number",
    "Provider",
    "ProviderError",
    "Record",
    "Response",
    "RunStart",
    "Scripted",
    "Text",
    "Time",
    "ToolSource",
    "Usage",
    "Vector",
    "Where",
    "answer_of",
    "as_id",
    "blocks",
    "codec",
    "foreign_id",
    "format_duration",
    "format_size",
    "format_time",
    "new_id",
    "parse_time",
    "plural",
    "resolve_embedder",
    "resolve_provider",
    "run_blocking",
    "similarity",
    "text_of",
    "tool_uses",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    value = globals()[name] = getattr(import_module(f"lockstitch.{module}"), attribute)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
