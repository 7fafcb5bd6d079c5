"""The bridges there are, by name. Each is imported when somebody asks for it: their parsers are extras."""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from lockstitch.bridges.importing import Importing, OnBad, Progress, Report, Source
from lockstitch.bridges.span import Bridge, Item
from lockstitch.errors import NotFound, Refused
from lockstitch.store import Store

NAMES: Final = ("langsmith", "otel")
STANDARD_INPUT: Final = "-"
_PIPED: Final = "standard input"


async def import_traces(store: Store, source: str, path: str, **options: Any) -> Report:
    """Import another system's traces from a file, a folder, or standard input (`-`) into a store's project.

    The options are those of `Opened.into`.
    """
    return await open_bridge(source, path, sys.stdin.buffer).into(store, **options)


class Opened(NamedTuple):
    """A bridge, and what there is to read through it."""

    bridge: Bridge
    sources: Iterator[Source]

    async def into(
        self, store: Store, *, replace: bool = False, keep_secrets: bool = False, progress: Progress | None = None
    ) -> Report:
        """Import all of it into a store's project.

        With `replace` the traces are whole: spans that are in them no more are removed. Values in metadata that look
        like secrets are replaced unless `keep_secrets`.
        """
        importing = Importing(store, self.bridge, replace=replace, keep_secrets=keep_secrets, progress=progress)
        return await importing.run(self.sources)


def open_bridge(name: str, path: str, standard_input: BinaryIO) -> Opened:
    """The bridge of a name and the files of a path: itself, or those of a folder in their order; `-` is the input."""
    if path != STANDARD_INPUT and not Path(path).exists():
        raise NotFound(f"There is no file or folder {path}.")
    if name == "langsmith":
        return _langsmith(path, standard_input)
    if name == "otel":
        return _otel(path, standard_input)
    raise Refused(f"{name!r} is no source of traces; there are {', '.join(NAMES)}.")


def _langsmith(path: str, standard_input: BinaryIO) -> Opened:
    from lockstitch.bridges import langsmith

    def source(found: Path | None) -> Source:
        def items(on_bad: OnBad) -> Iterator[Item]:
            return langsmith.read(found) if found else langsmith.read(standard_input, _PIPED)

        return Source(str(found or _PIPED), items)

    return Opened(langsmith.LangSmith(), map(source, _files(path, langsmith.files)))


def _otel(path: str, standard_input: BinaryIO) -> Opened:
    try:
        from lockstitch.bridges import otel
    except ModuleNotFoundError as exc:
        raise Refused("Reading OpenTelemetry needs opentelemetry-proto: pip install 'lockstitch[otel]'") from exc

    def source(found: Path | None) -> Source:
        def items(on_bad: OnBad) -> Iterator[Item]:
            if found:
                return otel.read_file(found, on_bad=on_bad)
            return otel.read_stream(standard_input, _PIPED, on_bad=on_bad)

        return Source(str(found or _PIPED), items)

    return Opened(otel.OpenTelemetry(), map(source, _files(path, otel.files)))


def _files(path: str, below: Callable[[Path], Iterable[Path]]) -> Iterable[Path | None]:
    """The files of a path; None stands for standard input."""
    return [None] if path == STANDARD_INPUT else below(Path(path))
