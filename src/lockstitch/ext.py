"""Names that applications import, besides those of `lockstitch` and `lockstitch.server`.

Names are loaded when they are first used, so that a module with record classes does not import the runtime.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstitch.agents.compactors.strategies import (
        SlidingWindowCompactor,
        SummarizingCompactor,
        ToolResultRemovalCompactor,
    )
    from lockstitch.agents.compactors.view import ContextView
    from lockstitch.agents.embedders import Embedder, Vector, similarity
    from lockstitch.agents.memories import RecordMemoryStore
    from lockstitch.agents.otlp_exporter import OtlpExporter
    from lockstitch.agents.providers.scripted import Scripted
    from lockstitch.agents.registry import embedder as resolve_embedder
    from lockstitch.agents.registry import resolve_provider
    from lockstitch.agents.spec import ToolSource
    from lockstitch.engine.concurrency import run_blocking
    from lockstitch.engine.config import RunStart
    from lockstitch.engine.events import Listener
    from lockstitch.engine.ports.compactor import CompactionInput, CompactionResult, Compactor, Summarize
    from lockstitch.engine.ports.memory import MemoryStore, Retrieved, Scope, Updated
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
    from lockstitch.store import AnyOf, Where

_MODULES = {
    "agents.compactors.strategies": (
        *("SlidingWindowCompactor", "SummarizingCompactor", "ToolResultRemovalCompactor"),
    ),
    "agents.compactors.view": ("ContextView",),
    "agents.embedders": ("Embedder", "Vector", "similarity"),
    "agents.memories": ("RecordMemoryStore",),
    "agents.otlp_exporter": ("OtlpExporter",),
    "agents.providers.scripted": ("Scripted",),
    "agents.registry": ("resolve_provider",),
    "agents.spec": ("ToolSource",),
    "engine.concurrency": ("run_blocking",),
    "engine.config": ("RunStart",),
    "engine.events": ("Listener",),
    "engine.ports.compactor": ("CompactionInput", "CompactionResult", "Compactor", "Summarize"),
    "engine.ports.memory": ("MemoryStore", "Retrieved", "Scope", "Updated"),
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
    "store": ("AnyOf", "Where"),
}

_PLACES = {name: (module, name) for module, names in _MODULES.items() for name in names} | {
    "format_duration": ("model.format", "duration"),
    "format_size": ("model.format", "size"),
    "resolve_embedder": ("agents.registry", "embedder"),
}

__all__ = [
    "TERMINAL_STATUSES",
    "AnyOf",
    "Chunk",
    "CompactionInput",
    "CompactionResult",
    "Compactor",
    "ContextView",
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
    "OtlpExporter",
    "Provider",
    "ProviderError",
    "Record",
    "RecordMemoryStore",
    "Response",
    "Retrieved",
    "RunStart",
    "Scope",
    "Scripted",
    "SlidingWindowCompactor",
    "Summarize",
    "SummarizingCompactor",
    "Text",
    "Time",
    "ToolResultRemovalCompactor",
    "ToolSource",
    "Updated",
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
