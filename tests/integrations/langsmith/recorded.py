"""Recorded requests of real clients, and helpers to read them."""

import gzip
import io
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import zstandard

from lockstitch.integrations.langsmith import LangSmith, files, read
from lockstitch.integrations.spans.span import Attachment, Item, SpanData, SpanFacts, SpanFeedback, merge

FIXTURES = Path(__file__).parent / "fixtures"
FOLDERS = sorted(folder.name for folder in FIXTURES.iterdir() if folder.is_dir())


def items_of(folder: str) -> list[Item]:
    return [item for file in files(FIXTURES / folder) for item in read(file)]


def spans(items: Iterable[Item]) -> dict[str, SpanData]:
    """Return the merged span data by span, in the order of the first occurrence."""
    merged: dict[str, SpanData] = {}
    for item in items:
        if not isinstance(item, Attachment | SpanFeedback):
            merged[item["id"]] = merge(merged.get(item["id"], {}), item)
    return merged


def all_facts_of(items: Iterable[Item]) -> list[SpanFacts]:
    return [LangSmith().facts(span) for span in spans(items).values()]


def facts_of(run: dict[str, Any]) -> SpanFacts:
    """Return the facts of one run object."""
    (facts,) = all_facts_of(read(json.dumps({"id": "run-1", **run}).encode()))
    return facts


def body(folder: str) -> bytes:
    """Return the only body of a folder, unpacked without the code under test."""
    (file,) = (FIXTURES / folder).glob("*.body")
    data = file.read_bytes()
    if data[:4] == b"\x28\xb5\x2f\xfd":
        return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def runs_of(folder: str) -> list[dict[str, Any]]:
    """Return the run objects of a body, posts and patches separately, assembled without the code under test."""
    data = body(folder)
    if not data.startswith(b"--"):
        batch = json.loads(data)
        return [*batch.get("post", []), *batch.get("patch", [])]
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    for part in data.split(data.split(b"\r\n", 1)[0])[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        match = re.search(rb'name="(post|patch)\.([^".]+)\.?([^"]*)"', head)
        if match:
            kind, run_id, field = (group.decode() for group in match.groups())
            value = json.loads(content)
            runs.setdefault((kind, run_id), {}).update({field: value} if field else value)
    return list(runs.values())
