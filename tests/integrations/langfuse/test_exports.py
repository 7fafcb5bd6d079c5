"""Exports of Langfuse in each form: the download of a trace, tables of the UI, pages of the API, exports to a bucket.

`fixtures/trace.json` is the download of the recorded trace (`otel/fixtures/langfuse.body`). No Langfuse server ran: the
file was made from the recorded spans and from the columns in the source code of Langfuse. Times have milliseconds.
"""

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstitch.backend import Find
from lockstitch.model import Feedback, Json
from lockstitch.store import Store, open_store
from tests.integrations.importing import import_bytes, import_path, lens
from tests.integrations.otel import bodies as otel
from tests.integrations.seeing import rows_of, seen

pytestmark = pytest.mark.anyio

DOWNLOAD: Json = json.loads((Path(__file__).parent / "fixtures" / "trace.json").read_bytes())
TRACE: Json = {key: value for key, value in DOWNLOAD["trace"].items() if key != "scores"}
OBSERVATIONS: list[Json] = DOWNLOAD["observations"]
SCORES: list[Json] = DOWNLOAD["trace"]["scores"]
FULL = {"sessionId": "session-1", "userId": "user-1", "traceName": "weather", "tags": ["blue"]}


def snake(row: Json) -> Json:
    return {re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", key): value for key, value in row.items()}


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def lines(rows: list[Json]) -> bytes:
    return b"\n".join(map(dumped, rows))


def table(rows: list[Json], *, quoted: bool) -> bytes:
    """Return rows as CSV. Newer versions of Langfuse write texts as JSON."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), quoting=csv.QUOTE_ALL)
    writer.writeheader()
    for row in rows:
        cells = {key: "" if value is None else value for key, value in row.items()}
        plain = (str,) if not quoted else ()
        writer.writerow({key: value if isinstance(value, plain) else json.dumps(value) for key, value in cells.items()})
    return text.getvalue().encode()


FORMS: dict[str, Callable[[], dict[str, bytes]]] = {
    "download": lambda: {"trace.json": dumped(DOWNLOAD)},
    "api": lambda: {"trace.json": dumped({**TRACE, "observations": OBSERVATIONS, "scores": SCORES})},
    "pages": lambda: {
        "1.json": dumped({"data": [{**TRACE, "observations": ["a"], "scores": ["b"]}], "meta": {"page": 1}}),
        "2.json": dumped({"data": OBSERVATIONS, "meta": {}}),
        "3.json": dumped({"data": SCORES, "meta": {}}),
    },
    "session": lambda: {
        "session.json": dumped({"id": "session-1", "traces": [DOWNLOAD["trace"]]}),
        "o": lines(OBSERVATIONS),
    },
    "tables": lambda: {"a.json": dumped([TRACE]), "b.jsonl": lines(OBSERVATIONS), "c.json": dumped(SCORES)},
    "csv": lambda: {
        "a.csv": table([TRACE], quoted=False),
        "b.csv": table(OBSERVATIONS, quoted=False),
        "c.csv": table(SCORES, quoted=False),
    },
    "csv with quotes": lambda: {
        "a.csv": table([TRACE], quoted=True),
        "b.csv": table(OBSERVATIONS, quoted=True),
        "c.csv": table(SCORES, quoted=True),
    },
    "bucket": lambda: {
        "observations/1.jsonl.gz": gzip.compress(lines([snake(row) for row in OBSERVATIONS])),
        "scores/1.jsonl.gz": gzip.compress(lines([snake(row) for row in SCORES])),
        "traces/1.jsonl.gz": gzip.compress(lines([snake(TRACE)])),
    },
    "enriched": lambda: {
        "observations_v2/1.jsonl": lines([snake({**row, **FULL}) for row in OBSERVATIONS]),
        "scores/1.jsonl": lines([snake(row) for row in SCORES]),
    },
}


def write(folder: Path, form: str) -> Path:
    for name, content in FORMS[form]().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def without_times(records: Json) -> Json:
    """Return stored traces without durations and times, which have milliseconds in exports."""
    for record in records.values():
        record["rows"] = [(*row[:9], *row[10:]) for row in record["rows"]]
        del record["run"]["times"]
    return records


@pytest.mark.parametrize("form", FORMS)
async def test_export_gives_the_same_record_as_the_client(form: str, tmp_path: Path) -> None:
    async with open_store("sqlite:///:memory:") as store:
        await import_path(store, "otel", otel.FIXTURES / "langfuse.body")
        sent, rows = without_times(await seen(store)), await lens(store)
    async with open_store("sqlite:///:memory:") as store:
        report = await import_path(store, "langfuse", write(tmp_path, form))
        assert report.as_json()["skipped"] == []
        assert without_times(await seen(store)) == sent
        imported = await lens(store)
        for view in ("llm_calls", "tool_calls"):
            times = {"created_at", "execution_latency_ms"}
            assert [{key: row[key] for key in row.keys() - times} for row in imported[view]] == [
                {key: row[key] for key in row.keys() - times} for row in rows[view]
            ]
        (run,) = await store.runs((await store.threads(kind="trace"))[0])
        assert (run.agent, run.tags, run.state["user_id"]) == ("weather", ["blue"], "user-1")
        feedback = {record.name: record for record in await store._backend.find(Find(Feedback))}
        assert (feedback["accuracy"].score, feedback["helpful"].value) == (0.9, {"value": "yes"})
        assert {record.run_id for record in feedback.values()} == {run.id}
        before = await seen(store)
        await import_path(store, "langfuse", tmp_path)
        assert await seen(store) == before
        assert (await store.verify()).ok


async def test_export_completes_the_trace_of_the_client(tmp_path: Path) -> None:
    async with open_store("sqlite:///:memory:") as store:
        await import_path(store, "otel", otel.FIXTURES / "langfuse.body")
        before = without_times(await seen(store))
        await import_path(store, "langfuse", write(tmp_path, "download"))
        assert without_times(await seen(store)) == before


def observation(number: int, **fields: Any) -> Json:
    at = f"2024-05-29 13:46:{number:02d}.963000"
    return {
        "id": f"o{number}",
        "trace_id": "t1",
        "type": "SPAN",
        "name": f"s{number}",
        "start_time": at,
        "end_time": at,
        **fields,
    }


TWO_ROOTS = [
    observation(1),
    observation(2, type="GENERATION", provided_model_name="m", usage_details={"input": 3, "output": 1, "total": 4}),
    observation(3, parent_observation_id="o1", level="ERROR", status_message="bad"),
]
OLD_TRACE = {"id": "t1", "timestamp": "2024-05-29 13:46:00.000000", "name": "chat", "session_id": "s", "input": "Hi"}


async def test_trace_with_several_roots_is_a_root_itself(store: Store) -> None:
    """Clients before version 3 have traces that are no observations, with ids of any form."""
    await import_bytes(store, "langfuse", lines([*TWO_ROOTS, {**OLD_TRACE, "latency": 4.5}]))
    (run,) = await store.runs((await store.threads(kind="trace"))[0])
    assert (run.agent, run.status, run.input_tokens, run.state["said"]) == ("chat", "completed", 3, "Hi")
    rows = {row.data["id"]: row for kind in ("span", "llm_call") for row in await rows_of(store, kind)}
    assert {name: row.data.get("parent_id") for name, row in rows.items()} == {
        "t1:t1": None,
        "t1:o1": "t1:t1",
        "t1:o2": "t1:t1",
        "t1:o3": "t1:o1",
    }
    assert (rows["t1:o3"].status, rows["t1:o3"].data["error"], rows["t1:t1"].duration_ms) == ("error", "bad", 4500)


async def test_trace_without_observations_is_one_span(store: Store) -> None:
    await import_bytes(
        store, "langfuse", dumped([{**OLD_TRACE, "output": "Hello", "totalCost": 0.1, "level": "ERROR"}])
    )
    (run,) = await store.runs((await store.threads(kind="trace"))[0])
    assert (run.agent, run.status, run.state["thread_id"]) == ("chat", "completed", "s")


async def test_unknown_rows_are_reported(store: Store) -> None:
    report = await import_bytes(
        store,
        "langfuse",
        lines([*TWO_ROOTS, {"id": "x"}, {"traceId": "t1", "name": "empty", "value": None, "stringValue": None}]),
    )
    assert report.spans == 3
    assert [skipped["why"] for skipped in report.skipped] == [
        "standard input, record 4: this is not a row of a Langfuse export",
        "standard input, record 5: this is not a row of a Langfuse export",
    ]
    for body in (b"no,export\n1,2\n", b"{"):
        report = await import_bytes(store, "langfuse", body)
        assert len(report.skipped) == 1
