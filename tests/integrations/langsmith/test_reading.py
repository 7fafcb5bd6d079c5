"""Every format of traces gives the same items."""

import base64
import gzip
import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from lockstitch.errors import LockstitchError, NotFound, Unreadable
from lockstitch.integrations.langsmith import RECORD_LIMIT, files, read
from lockstitch.integrations.spans.span import SpanFeedback
from tests.integrations.langsmith.recorded import FIXTURES, body, runs_of, spans

RUNS = runs_of("batch_invoke")
SAME = spans(read(json.dumps(RUNS).encode()))


def _jsonl(runs: list[Any]) -> bytes:
    return b"".join(json.dumps(run).encode() + b"\n" for run in runs)


def _op_log(runs: list[Any]) -> bytes:
    return _jsonl([{"operation": "patch" if index % 2 else "post", **run} for index, run in enumerate(runs)])


def _envelope(data: bytes, headers: dict[str, str]) -> bytes:
    saved = {"version": 1, "endpoint": "/runs/multipart", "headers": headers}
    return json.dumps({**saved, "body_base64": base64.b64encode(data).decode()}).encode()


SHAPES: dict[str, Callable[[list[Any]], bytes]] = {
    "list": lambda runs: json.dumps(runs).encode(),
    "pretty list": lambda runs: json.dumps(runs, indent=2).encode(),
    "list of lists": lambda runs: json.dumps([runs[:4], runs[4:]]).encode(),
    "webhook": lambda runs: json.dumps({"rule_id": "r", "start_time": "x", "end_time": "y", "runs": runs}).encode(),
    "query": lambda runs: json.dumps({"runs": runs, "cursors": {"next": None}}).encode(),
    "batch": lambda runs: json.dumps({"post": runs[:5], "patch": runs[5:]}).encode(),
    "batch of posts": lambda runs: json.dumps({"post": runs}).encode(),
    "batch of patches": lambda runs: json.dumps({"patch": runs}).encode(),
    "JSONL": _jsonl,
    "JSONL without a last line break": lambda runs: _jsonl(runs)[:-1],
    "JSONL with blank lines": lambda runs: _jsonl(runs).replace(b"\n", b"\r\n\r\n"),
    "pretty documents in a row": lambda runs: b"".join(json.dumps(run, indent=1).encode() for run in runs),
    "operations": _op_log,
    "operations around runs": lambda runs: _jsonl([{"operation": "post", "run": run} for run in runs]),
    "bodies in a row": lambda runs: _jsonl([{"post": runs[:3]}, {"patch": runs[3:]}]),
    "byte order mark": lambda runs: b"\xef\xbb\xbf" + json.dumps(runs).encode(),
    "UTF-16": lambda runs: json.dumps(runs).encode("utf-16"),
    "saved": lambda runs: _envelope(json.dumps({"post": runs}).encode(), {"Content-Type": "application/json"}),
    "nested": lambda runs: json.dumps(_nested(runs)).encode(),
}


def _nested(runs: list[Any]) -> dict[str, Any]:
    """Return runs nested in their parents, without the ids that follow from the nesting."""
    by_id = {run["id"]: {**run, "child_runs": []} for run in runs}
    root = next(run for run in by_id.values() if not run.get("parent_run_id"))
    for run in by_id.values():
        parent = run.pop("parent_run_id", None)
        if parent:
            run.pop("trace_id")
            run.pop("dotted_order")
            by_id[parent]["child_runs"].append(run)
    return root


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_format_gives_same_items(shape: str, pack: Callable[[bytes], bytes]):
    by_id = spans(read(pack(SHAPES[shape](RUNS))))
    for span in by_id.values():
        if shape == "nested":
            span["order"] = SAME[span["id"]].get("order", "")
        children = span.pop("children", None)
        assert (children is not None) == (shape == "nested" and any(_under(span["id"])))
    assert by_id == SAME


def _under(parent: str) -> list[str]:
    return [span["id"] for span in SAME.values() if span.get("parent_id") == parent]


def test_nested_trace_is_complete():
    root = next(iter(spans(read(SHAPES["nested"](RUNS))).values()))
    assert sorted(root["children"]) == sorted(set(SAME) - {root["id"]})


def test_reads_single_run():
    (span,) = read(json.dumps(RUNS[0]).encode())
    assert span == SAME[RUNS[0]["id"]]


@pytest.mark.parametrize("sniffed", [True, False])
@pytest.mark.parametrize("folder", ["zstd_two_turns", "js_full", "prov_deepagent", "old_0.1.147_invoke"])
def test_reads_multipart_with_and_without_headers(folder: str, sniffed: bool):
    (file,) = (FIXTURES / folder).glob("*.body")
    headers = json.loads(file.with_name(file.name[:-5] + ".headers.json").read_bytes())["headers"]
    by_id = spans(read(file.read_bytes(), folder, {} if sniffed else headers))
    assert by_id == spans(read(json.dumps(runs_of(folder)).encode()))
    assert by_id == spans(read(file))
    assert by_id == spans(read(io.BytesIO(body(folder)))), "unpacked"
    assert by_id == spans(read(_envelope(file.read_bytes(), headers))), "saved by the client"


def test_separated_parts_keep_their_trace():
    data = body("zstd_two_turns")
    mark = data.split(b"\r\n", 1)[0]
    parts = data.split(mark)[1:-1]
    by_kind = sorted(parts, key=lambda part: part.count(b'.inputs"') + part.count(b'.outputs"'))
    strayed = spans(read(mark + mark.join(by_kind) + mark + b"--\r\n"))
    assert strayed == spans(read(data))


def test_url_sets_run_id():
    patch = {"end_time": "2026-01-01T00:00:00Z", "outputs": {"a": 1}, "name": None}
    (span,) = read(json.dumps(patch).encode(), run_id="run-7")
    assert (span["id"], span["outputs"]) == ("run-7", {"a": 1})


def test_reads_separate_feedback():
    (feedback,) = read(b'[{"id": "f", "key": "good", "score": true, "value": "yes", "run_id": "r"}]')
    assert feedback == SpanFeedback("f", "r", None, "good", 1.0, {"value": "yes"}, about={"id": "f", "run_id": "r"})


def test_reads_files_in_order(tmp_path: Path):
    for name in ("b.jsonl", "a/2.json", "a/1.body", "a/1.headers.json", ".hidden/x.json", "c.headers.json", ".x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")
    assert [str(file.relative_to(tmp_path)) for file in files(tmp_path)] == ["a/1.body", "a/2.json", "b.jsonl"]
    assert list(files(tmp_path / "b.jsonl")) == [tmp_path / "b.jsonl"]
    with pytest.raises(NotFound):
        list(files(tmp_path / "nothing"))


def test_split_trace_is_one_trace():
    """One trace in two webhooks, the first without the root, with parent_run_ids but no parent_run_id."""
    bare: list[Any] = []
    for run in RUNS:
        line = [part.split("Z", 1)[1] for part in run["dotted_order"].split(".")]
        fields = {key: value for key, value in run.items() if key not in ("parent_run_id", "trace_id", "dotted_order")}
        bare.append({**fields, "parent_run_ids": line[:-1], "trace_id": run["trace_id"]})
    first, second = json.dumps({"runs": bare[1:6]}).encode(), json.dumps({"runs": [*bare[6:], bare[0]]}).encode()
    by_id = spans([*read(first), *read(second)])
    assert {key: span.get("parent_id") for key, span in by_id.items()} == {
        key: span.get("parent_id") for key, span in SAME.items()
    }
    assert {span["trace_id"] for span in by_id.values()} == {RUNS[0]["id"]}


JUNK = {
    "empty": (b"", "it is empty"),
    "blank": (b"\n \n", None),
    "text": (b"hello there", "not JSON"),
    "a number": (b"5", "not JSON"),
    "HTML": (b"<html></html>", "not JSON"),
    "another object": (b'{"foo": 1}', "not a LangSmith run"),
    "a list of numbers": (b"[1]", "not a LangSmith run"),
    "an empty object in a list": (b"[{}]", "not a LangSmith run"),
    "broken JSON": (b'[{"id": "a", "name": nope}]' + b" " * 100, "not JSON"),
    "an object with a number for a key": (b"{1: 2}" + b" " * 100, "JSON"),
    "too deep": (b'[{"id": ' + b"[" * 100_000, "nested too deeply"),
    "no base64": (b'{"version": 1, "body_base64": "***"}', "not base64"),
    "no gzip": (b"\x1f\x8b" + b"x" * 50, "cannot be unpacked"),
    "no zstd": (b"\x28\xb5\x2f\xfd" + b"\xff" * 50, "cannot be unpacked"),
    "no Parquet": (b"PAR1" + b"x" * 50, "not a valid Parquet"),
    "a part that is no JSON": (b'--b\r\nContent-Disposition: form-data; name="post.a"\r\n\r\n{\r\n--b--', "not JSON"),
    "an int too long": (b'[{"id": ' + b"1" * 5000 + b"}]", "integer string conversion"),
}


@pytest.mark.parametrize("kind", JUNK)
def test_rejects_junk_with_reason(kind: str):
    data, reason = JUNK[kind]
    if reason is None:
        assert list(read(data, "x.json")) == []
        return
    with pytest.raises(Unreadable, match=reason) as caught:
        list(read(data, "x.json"))
    assert caught.value.name == "x.json"
    assert str(caught.value).startswith("x.json")
    assert isinstance(caught.value, LockstitchError)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("shape", ["list", "webhook", "JSONL", "pretty list"])
def test_yields_complete_items_before_cut(shape: str, pack: Callable[[bytes], bytes]):
    noise = random.Random(5)
    runs = [{"id": str(number), "name": "x", "inputs": {"noise": noise.randbytes(2000).hex()}} for number in range(400)]
    data = pack(SHAPES[shape](runs))
    items, error = _until_it_breaks(data[: len(data) // 2 - 7])
    assert re.match(r"cut.json, record \d+: ", str(error))
    assert error.cut
    # Compressed data is returned in blocks, and the last block is missing.
    assert 150 <= len(items) <= 200
    assert [item["id"] for item in items] == [str(number) for number in range(len(items))]
    assert all(item["inputs"] == runs[number]["inputs"] for number, item in enumerate(items))


def _until_it_breaks(data: bytes) -> tuple[list[Any], Unreadable]:
    items: list[Any] = []
    reading = read(data, "cut.json")
    while True:
        try:
            items.append(next(reading))
        except Unreadable as exc:
            return items, exc


def test_reports_incomplete_multipart_body():
    data = body("zstd_two_turns")
    items, error = _until_it_breaks(data[: len(data) // 2])
    assert "middle of a part" in str(error)
    assert error.cut
    assert len(items) > 10


def test_rejects_record_beyond_limit():
    """A few kilobytes that unpack to an endless record are rejected before they are in memory."""
    bomb = zstandard.compress(b'[{"id": "a", "inputs": "' + b"x" * (RECORD_LIMIT + (40 << 20)))
    assert len(bomb) < 100_000
    with pytest.raises(Unreadable, match="larger than 64 MB"):
        list(read(bomb))
    part = b'--b\r\nContent-Disposition: form-data; name="attachment.a.b"\r\n\r\n' + b"x" * (RECORD_LIMIT + (4 << 20))
    with pytest.raises(Unreadable, match="larger than 64 MB"):
        list(read(gzip.compress(part, 1)))


def test_reads_large_object_member_by_member():
    """Several chunks of text, runs between other members, and numbers at the chunk boundaries."""
    filler = {"rule_id": 12345, "note": "ü" * 700_000, "runs": RUNS * 100, "count": 17, "more": [1, 2, {"a": "]}"}]}
    data = json.dumps(filler, ensure_ascii=False).encode()
    items = list(read(data))
    assert len(items) == 1000
    assert spans(items) == SAME
    alone = {**RUNS[0], "note": "x" * 3_000_000}
    (span,) = read(json.dumps(alone).encode())
    assert span["extra"]["note"] == alone["note"]


def test_reports_missing_file(tmp_path: Path):
    with pytest.raises(Unreadable, match="No such file"):
        list(read(tmp_path / "nothing"))
