"""Bodies are redacted before they are stored, so the queue and the quarantine have no secrets."""

import asyncio
import base64
import gzip
import json
from collections.abc import Callable
from itertools import count
from typing import Any

import httpx2
import pytest
import zstandard

from lockstitch.backend import Find
from lockstitch.errors import BodyTooExpensive, Unreadable
from lockstitch.integrations import langsmith
from lockstitch.integrations.langsmith.redaction import redacted_body
from lockstitch.integrations.otel import read_body
from lockstitch.integrations.otel.accept import screen
from lockstitch.integrations.spans.batch import redact
from lockstitch.integrations.spans.budget import Budget, Limits, ReadingStopped
from lockstitch.model.side_records import IngestBody
from lockstitch.server import Settings
from lockstitch.store import Store
from tests.integrations.langsmith import recorded
from tests.integrations.otel import bodies as otel
from tests.server.ingest.sending import PROTOBUF, requests_of, run_of, settled
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio

SECRET = "sk-example-0123456789abcdef"
WORD = "open-sesame"
JSON = {"content-type": "application/json"}


def run(**more: Any) -> dict[str, Any]:
    metadata = {"api_key": WORD, "plain": "stays", "text": SECRET, "thread_id": "a-thread"}
    return run_of(extra={"metadata": metadata, "runtime": {"OPENAI_API_KEY": WORD}}, inputs={"q": SECRET}, **more)


def multipart(*parts: tuple[str, bytes]) -> bytes:
    return (
        b"".join(
            b'--frontier\r\nContent-Disposition: form-data; name="%s"\r\nContent-Type: application/json\r\n\r\n%s\r\n'
            % (name.encode(), content)
            for name, content in parts
        )
        + b"--frontier--\r\n"
    )


def in_parts() -> bytes:
    body = run()
    extra = json.dumps(body.pop("extra")).encode()
    return multipart(
        (f"post.{body['id']}", json.dumps(body).encode()),
        (f"post.{body['id']}.extra", extra),
        (f"attachment.{body['id']}.file", WORD.encode()),
    )


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


LANGSMITH: dict[str, Callable[[], bytes]] = {
    "one run": lambda: dumped(run()),
    "list": lambda: dumped([run(), run()]),
    "batch": lambda: dumped({"post": [run()], "patch": [run()]}),
    "webhook": lambda: dumped({"rule_id": "x", "runs": [run()]}),
    "lines": lambda: dumped(run()) + b"\n" + dumped(run()),
    "extra in a text": lambda: dumped({**run(), "extra": json.dumps(run()["extra"])}),
    "nested": lambda: dumped({**run_of(), "child_runs": [run()]}),
    "multipart": in_parts,
    "gzip": lambda: gzip.compress(dumped(run())),
    "zstd": lambda: zstandard.compress(in_parts()),
    "saved": lambda: dumped({"body_base64": base64.b64encode(dumped(run())).decode(), "headers": {"X-API-Key": WORD}}),
    "utf-16": lambda: json.dumps(run()).encode("utf-16"),
    "beside": lambda: dumped({"post": [run()], "api_key": WORD, "note": {"password": WORD}}),
    "unknown part": lambda: multipart((f"post.{run_of()['id']}", dumped(run())), ("other", SECRET.encode())),
    "cut off": lambda: dumped(run()) + b'{"extra": {"metadata": {"a": "' + SECRET.encode() + b'"',
}


def opened(body: bytes) -> bytes:
    """Return the decompressed body."""
    if body.startswith(b"\x1f\x8b"):
        return gzip.decompress(body)
    return zstandard.decompress(body) if body.startswith(b"\x28\xb5\x2f\xfd") else body


def redacted(body: bytes, hide: frozenset[str] = frozenset()) -> bytes:
    return redacted_body(body, {"content-type": "multipart/form-data; boundary=frontier"}, Budget(Limits()), hide)


def pieces(body: bytes, hide: frozenset[str] = frozenset()) -> list[Any]:
    items = list(langsmith.read(body, "the body", {}, on_bad=lambda _: None))
    return [
        {**item, "metadata": redact(item.get("metadata"), hide), "extra": redact(item.get("extra"), hide)}
        if isinstance(item, dict)
        else item
        for item in items
    ]


def read(body: bytes, hide: frozenset[str] = frozenset()) -> list[Any]:
    try:
        return pieces(body, hide)
    except Unreadable:
        return []


@pytest.mark.parametrize("form", LANGSMITH)
def test_langsmith_body_is_redacted_in_its_own_format(form: str) -> None:
    body = LANGSMITH[form]()
    new = redacted(body)
    plain = opened(new)
    if form == "saved":
        plain = base64.b64decode(json.loads(plain)["body_base64"]) + plain
    assert WORD.encode() not in plain.replace(b"\r\n\r\n" + WORD.encode(), b""), "a name that says it"
    assert plain.count(SECRET.encode()) == max(1, opened(body).count(b'"q"')), "content stays"
    assert b"stays" in plain
    assert read(new) == read(body), "the record is the same"
    assert redacted(new) is new


@pytest.mark.parametrize("name", sorted(path.name for path in recorded.FIXTURES.iterdir()))
def test_record_of_recorded_requests_is_the_same_after_redaction(name: str) -> None:
    for request in requests_of("langsmith", name):
        new = redacted_body(request.body, request.headers, Budget(Limits()), frozenset())
        run_id = request.path.rpartition("/")[2] if request.method == "PATCH" else None

        def read_items(
            body: bytes, headers: dict[str, str] = request.headers, run_id: str | None = run_id
        ) -> list[Any]:
            return [
                {**item, "metadata": redact(item.get("metadata")), "extra": redact(item.get("extra"))}
                for item in langsmith.read(body, "the body", headers, run_id=run_id)
                if isinstance(item, dict)
            ]

        assert read_items(new) == read_items(request.body)


def test_body_without_secrets_is_stored_unchanged() -> None:
    for body in (dumped(run_of()), b"[ ]", b"no json", gzip.compress(dumped(run_of())), b""):
        assert redacted(body) is body


def test_deeply_nested_body_is_not_a_failure() -> None:
    body = b'{"id": "x", "extra": ' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}"
    assert redacted(body) is body


def spans(body: bytes, hide: frozenset[str] = frozenset()) -> list[Any]:
    return [
        {**span, "metadata": redact(span.get("metadata"), hide), "extra": redact(span.get("extra"), hide)}
        for span in read_body(body, on_bad=lambda _: None)
    ]


def screened(body: bytes, hide: frozenset[str] = frozenset()) -> bytes:
    return screen(body, Budget(Limits()), keep_secrets=False, hide=hide).body


ATTRIBUTES = {
    "api_key": WORD,
    "note": SECRET,
    "plain": "stays",
    "nested": {"password": WORD, "list": [SECRET, 1, True, 0.5]},
    "langsmith.metadata.client_secret": WORD,
    "langsmith.metadata.about": json.dumps({"password": WORD, "a": 1}),
    "metadata": json.dumps({"auth": WORD, "b": 2}),
    "langfuse.trace.metadata.client_secret": json.dumps(WORD),
    "langfuse.observation.metadata": json.dumps({"password": WORD, "c": 3}),
    "input.value": SECRET,
    "gen_ai.prompt": json.dumps({"messages": [{"role": "user", "content": SECRET}]}),
}


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
@pytest.mark.parametrize("form", ["json", "protobuf"])
def test_otlp_body_is_redacted_in_its_own_format(form: str, pack: Callable[[bytes], bytes]) -> None:
    plain = otel.made(ATTRIBUTES, resource={"db_password": WORD, "service.name": "shop"})
    body = pack(dumped(plain) if form == "json" else otel.as_protobuf(plain))
    new = screened(body)
    assert WORD.encode() not in opened(new)
    assert opened(new).count(SECRET.encode()) == 2, "what was said stays"
    assert spans(new) == spans(body), "the record is the same"
    assert screened(new) is new


@pytest.mark.parametrize("name", otel.NAMES)
@pytest.mark.parametrize("hide", [frozenset(), frozenset({"gen_ai.response.id", "service.name", "thread_id"})])
def test_record_of_recorded_spans_is_the_same_after_redaction(name: str, hide: frozenset[str]) -> None:
    for body in (otel.recorded(name), dumped(otel.as_document(otel.recorded(name)))):
        assert spans(screened(body, hide), hide) == spans(body, hide)


async def test_stored_bodies_have_no_secrets(store: Store) -> None:
    """Queued and quarantined bodies have no secrets, also if other parts are invalid."""
    broken = dumped({"post": [run(), {"nothing": "of use", "metadata": {"token": WORD}}]})
    document = otel.made({"api_key": WORD}, resource={})
    bad = {"resourceSpans": [*document["resourceSpans"], {"scopeSpans": [{"spans": [{"name": "no id"}]}]}]}
    async with serving(store, settings=Settings()) as url, caller(url) as http:
        assert (await http.post("/runs/batch", content=broken)).status_code == 202
        answer = await http.post("/v1/traces", content=dumped(bad), headers=JSON)
        assert answer.json()["partialSuccess"]["rejectedSpans"] == "1"
        queue = await settled(http)
        assert queue["quarantined"] == 2
        for row in queue["quarantine"]:
            body = (await http.get(f"/api/arrivals/{row['id']}/body")).content
            assert WORD.encode() not in body
            assert b"[redacted]" in body
    rows = await store._backend.find(Find(IngestBody))
    assert len(rows) == 2


async def test_keep_secrets_stores_bodies_unchanged(store: Store) -> None:
    broken = dumped({"post": [run(), {"nothing": "of use"}]})
    async with serving(store, settings=Settings(keep_secrets=True)) as url, caller(url) as http:
        await http.post("/runs/batch", content=broken)
        queue = await settled(http)
        (row,) = queue["quarantine"]
        assert (await http.get(f"/api/arrivals/{row['id']}/body")).content == broken


async def test_malformed_otlp_gets_400_with_a_status(http: httpx2.AsyncClient) -> None:
    """As OTLP requires. Nothing is stored."""
    answer = await http.post("/v1/traces", content=b"\xff\xff\xff", headers=PROTOBUF)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/x-protobuf")
    assert answer.content.startswith(b"\x08\x03\x12")
    answer = await http.post("/v1/traces", content=b'{"resourceSpans": [', headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, 3)
    assert "incomplete" in answer.json()["message"]
    assert (await settled(http))["quarantined"] == 0


async def test_partly_rejected_otlp_gets_partial_success(http: httpx2.AsyncClient) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    document = otel.made({"a": 1}, resource={})
    document["resourceSpans"][0]["scopeSpans"][0]["spans"] += [{"name": "no ids"}, {"name": "none"}]
    body = (await http.post("/v1/traces", content=dumped(document), headers=JSON)).json()
    assert body["partialSuccess"]["rejectedSpans"] == "2"
    assert "trace id" in body["partialSuccess"]["errorMessage"]
    answer = await http.post("/v1/traces", content=otel.as_protobuf(document), headers=PROTOBUF)
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, partial.rejected_spans) == (200, 2)
    assert "trace id" in partial.error_message


async def test_accepted_otlp_has_no_partial_success(http: httpx2.AsyncClient) -> None:
    document = otel.made({"a": 1}, resource={})
    assert (await http.post("/v1/traces", content=dumped(document), headers=JSON)).json() == {}
    assert (await http.post("/v1/traces", content=otel.as_protobuf(document), headers=PROTOBUF)).content == b""
    assert (await http.post("/v1/traces", content=b"", headers=PROTOBUF)).status_code == 200


async def test_expensive_otlp_gets_413(store: Store) -> None:
    settings = Settings(body_cost=Limits(unpacked_bytes=1 << 20))
    async with serving(store, settings=settings) as url, caller(url) as http:
        body = gzip.compress(b"{" + b" " * (8 << 20))
        answer = await http.post("/v1/traces", content=body, headers=JSON)
        assert answer.status_code == 413
        assert "unpacks to more" in answer.json()["message"]
        assert (await settled(http))["quarantined"] == 0


@pytest.mark.parametrize(
    "body",
    [
        b"{x " + SECRET.encode() + b" a" * (1 << 20),
        b'{"inputs": "url ' + b"d" * (2 << 20) + b'"}',
        dumped({"metadata": {"a": ["x" * 20_000] * 50}, "api_key": "x"}),
    ],
    ids=["unreadable", "long text", "long values"],
)
def test_redaction_stops_at_its_time_limit(body: bytes) -> None:
    clock = count()
    budget = Budget(Limits(seconds=20), clock=lambda: float(next(clock)))
    with pytest.raises(BodyTooExpensive, match="processor time"):
        redacted_body(body, {}, budget, frozenset())


def test_multipart_body_is_rejected_when_it_has_too_many_parts() -> None:
    body = b"--frontier" + b"\r\n--frontierxx" * 2_000 + b" secret"
    headers = {"content-type": "multipart/form-data; boundary=frontier"}
    with pytest.raises(BodyTooExpensive, match="records"):
        redacted_body(body, headers, Budget(Limits(records=1_000)), frozenset())


@pytest.mark.parametrize(
    "body",
    [dumped(SECRET), in_parts().replace(b"\r\n", b"\n"), dumped({"body_base64": "", "url": f"http://a:{SECRET}@b"})],
    ids=["text", "parts without a delimiter", "address"],
)
def test_credentials_in_unread_parts_are_redacted(body: bytes) -> None:
    assert SECRET.encode() not in redacted(body).replace(b'"inputs": {"q": "' + SECRET.encode(), b"")


async def test_screening_of_a_body_stops_when_the_request_is_cancelled() -> None:
    budget = Budget(Limits(unpacked_bytes=1 << 40, seconds=3600.0))
    body = gzip.compress(b"[" + b"\n" * (64 << 20))
    task = asyncio.create_task(asyncio.to_thread(screen, body, budget, keep_secrets=True))
    await asyncio.sleep(0)
    budget.stop()
    with pytest.raises(ReadingStopped):
        await task
