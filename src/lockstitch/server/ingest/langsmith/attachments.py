"""Attachments of spans and files of examples: signed URLs that need no token, and the route that serves them.

The LangSmith client downloads attachments without its API key. So the URL has a signature and an expiry time. The key
of the signature is the stored hash of the caller's token: a revoked token also ends the URLs that it received. A server
that needs no token signs nothing.
"""

import hmac
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final
from urllib.parse import quote, urlencode
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from lockstitch.errors import NotFound
from lockstitch.model import Blob, ExampleFile, File, Json, codec
from lockstitch.server.auth import Caller
from lockstitch.server.ingest.langsmith.spans import Span
from lockstitch.server.problems import Problem
from lockstitch.server.state import server_state
from lockstitch.store import Store, Where

_LASTS: Final = timedelta(hours=1)
"""Time for which a signed URL is valid."""
_BLOB: Final = "blob:"


class UrlSigner:
    """Makes the URLs of one request. The caller can read what it signs."""

    def __init__(self, base: str, project: str, key: str | None, expires: datetime) -> None:
        self._base = base
        self._project = project
        self._key = key
        self._expires = int(expires.timestamp())

    @classmethod
    async def of(cls, request: Request, caller: Caller) -> "UrlSigner":
        """Return the signer of a caller. Without tokens it signs nothing."""
        key = None
        if caller.state.settings.tokens_needed:
            tokens = await caller.store.tokens.valid()
            key = next((token.sha256 for token in tokens if token.name == caller.actor), None)
        base = str(request.base_url).rstrip("/")
        return cls(base, caller.project, key, caller.store.clock.now() + _LASTS)

    def url(self, kind: str, owner: UUID, name: str) -> str:
        """Return the URL of a file: of `spans` by thread and hash, or of `examples` by example and name."""
        path = f"/attachments/{kind}/{owner}/{quote(name, safe='')}"
        query: dict[str, str | int] = {"project": self._project}
        if self._key is not None:
            query["expires"] = self._expires
            query["signature"] = _signature(self._key, self._project, kind, owner, name, self._expires)
        return f"{self._base}{path}?{urlencode(query)}"


def _signature(key: str, project: str, kind: str, owner: UUID, name: str, expires: int) -> str:
    text = codec.dumps([project, kind, str(owner), name, expires])
    return hmac.new(key.encode(), text, "sha256").hexdigest()


async def attachments_of(store: Store, spans: Sequence[Span], signer: UrlSigner) -> dict[str, Json]:
    """Return the attachments of spans by the id of the span: name, URL and media type, as LangSmith has them."""
    found: dict[str, Json] = {}
    threads = sorted({span.run.thread_id for span in spans})
    files = await store.files.find(Where("thread_id", "in", threads), order=("thread_id", "file_id")) if threads else []
    by_thread: dict[UUID, list[File]] = {}
    for file in files:
        if (file.storage_path or "").startswith(_BLOB):
            by_thread.setdefault(file.thread_id, []).append(file)
    for span in spans:
        for file in by_thread.get(span.run.thread_id, ()):
            if file.file_id.startswith(f"{span.id}/"):
                digest = (file.storage_path or "").removeprefix(_BLOB)
                url = signer.url("spans", file.thread_id, digest)
                attachments = found.setdefault(span.id, {})
                attachments[f"attachment.{file.filename}"] = {"presigned_url": url, "mime_type": file.mime_type}
    return found


async def download(
    request: Request,
    kind: Annotated[str, Path(pattern="^(spans|examples)$")],
    owner: UUID,
    name: Annotated[str, Path(max_length=300)],
    project: Annotated[str, Query(max_length=255)],
    expires: int = 0,
    signature: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """Return the content of an attachment. The URL comes from a run or an example."""
    state = server_state(request)
    store = state.store.in_project(codec.check_text(project, "The project"))
    name = codec.check_text(name, "The name")
    if state.settings.tokens_needed:
        # The holder of a token can compute its hash, so only tokens that can read are keys.
        keys = [token.sha256 for token in await store.tokens.valid() if {"read", "admin"} & set(token.scopes)]
        signatures = [_signature(key, project, kind, owner, name, expires) for key in keys]
        valid = any(hmac.compare_digest(signature.encode(), each.encode()) for each in signatures)
        if not valid or expires < store.clock.now().timestamp():
            raise Problem(401, "Unauthorized", "The URL of the attachment has expired or is not valid. Read it again.")
    content, media_type = await (_of_span(store, owner, name) if kind == "spans" else _of_example(store, owner, name))
    headers = {"Content-Disposition": "attachment"}
    return Response(content, media_type=media_type or "application/octet-stream", headers=headers)


async def _of_span(store: Store, thread_id: UUID, digest: str) -> tuple[bytes, str | None]:
    await store.thread(thread_id)
    file = await store.files.first(Where("thread_id", "=", thread_id), Where("storage_path", "=", f"{_BLOB}{digest}"))
    blob = await store.table(Blob).get_or_none(digest) if file is not None else None
    if file is None or blob is None:
        raise NotFound(f"Attachment {digest} not found.")
    return blob.content, file.mime_type


async def _of_example(store: Store, example_id: UUID, name: str) -> tuple[bytes, str | None]:
    file = await store.table(ExampleFile).get_or_none(example_id, name)
    if file is None or file.project != store.project:
        raise NotFound(f"File {name} of example {example_id} not found.")
    return file.content, file.media_type


def add_routes(router: APIRouter) -> None:
    content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    router.add_api_route(
        "/attachments/{kind}/{owner}/{name}",
        download,
        methods=["GET"],
        response_class=Response,
        responses={
            200: {"content": content},
            401: {"description": "The URL has expired or is not valid"},
            404: {"description": "The file does not exist"},
            422: {"description": "A part of the URL is not valid"},
            503: {"description": "The store is unreachable"},
        },
    )
