"""Import of traces of other systems until they are durable, compared with the same rows written by hand."""

import io
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.floors import mirrors
from benchmarks.foreign import langsmith, otel
from benchmarks.measure import middle, take_turns
from benchmarks.places import SQL, Places
from benchmarks.report import Aim, Measured, Row, at_least
from benchmarks.scale import Scale
from lockstitch.integrations.importer import Report, TraceImport, open_source
from lockstitch.store import open_store

BACKENDS = SQL

OF_FLOOR = 0.5
SPANS_A_SECOND = 10_000


async def measure(places: Places, backend: str, scale: Scale) -> Measured:
    with TemporaryDirectory(prefix="lockstitch-traces-") as folder:
        lines, requests = (Path(folder) / name for name in ("runs.jsonl", "traces.pb"))
        langsmith.write(lines, langsmith.agents(scale.traces))
        otel.write_protobuf(requests, otel.agents(scale.traces))
        rows = [
            *await _compare_with_floor(places, backend, scale, "langsmith", "LangSmith JSONL", lines),
            *await _compare_with_floor(places, backend, scale, "otel", "OTLP protobuf", requests),
        ]
    return Measured(rows)


async def _compare_with_floor(
    places: Places, backend: str, scale: Scale, source: str, label: str, path: Path
) -> list[Row]:
    with places.fresh(backend) as url:
        report, _ = await imported(url, source, path)
        tables = mirrors.taken(url)
    expected = scale.traces * langsmith.SPANS
    if report.spans != expected or report.skipped:
        raise RuntimeError(f"{report.spans} spans of {expected} were imported: {report.skipped[:3]}")

    async def floor() -> float:
        with places.fresh(backend) as url:
            async with open_store(url):
                pass
            return mirrors.written(url, tables)

    async def ours() -> float:
        with places.fresh(backend) as url:
            _, seconds = await imported(url, source, path)
            return expected / seconds

    rounds = await take_turns(scale.import_rounds, floor, ours)
    raw, value = middle([(figures[0], figures[1]) for figures in rounds])
    name = f"import of {scale.traces:,} traces of {langsmith.SPANS} spans, {label}"
    rows = [Row(name, backend, value, "spans/s", raw, at_least(OF_FLOOR))]
    if backend == "sqlite":
        rows.append(Row(f"{name}, durable", backend, value, "spans/s", aim=Aim("value", ">=", SPANS_A_SECOND)))
    return rows


async def imported(url: str, source: str, path: Path) -> tuple[Report, float]:
    """Import a file like `lockstitch import`. Return the report and the seconds."""
    async with open_store(url) as store:
        opened = open_source(source, str(path), io.BytesIO())
        started = time.perf_counter()
        report = await TraceImport(store, opened.source).run(opened.sources)
        return report, time.perf_counter() - started
