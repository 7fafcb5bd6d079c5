"""`Media`: moves large base64 content from messages to blobs, and back for readers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, cast
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import StoreDamaged
from lockstitch.model import Blob, BlobUse, Clock, Delivery, Json, Stitch, codec
from lockstitch.store.transaction import ThreadUpdate, Transaction

BLOB = "lockstitch:blob"
"""Type of a source that refers to a blob."""

_BLOB_TEXT = BLOB.encode()

LARGE = 32 * 1024
"""Minimum characters of base64 that are moved to a blob."""

_MOST_TRUSTED: Final = 1000


class Media:
    """Moves media between messages and blobs.

    A source {"type": "base64", "media_type", "data"} becomes {"type": "lockstitch:blob", "media_type", "sha256"}. The
    keys keep their order, so that a reader gets the same bytes. If the content of a caller has this type already, it is
    wrapped as {"type": "lockstitch:blob", "bag": {…}}, and a hash in it is not read as a blob. Blobs are written before
    the commit that refers to them. A blob without a reference does no harm.
    """

    def __init__(self, backend: FullBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._trusted: set[str] = set()
        """Hashes of texts that `write_trusted` found or wrote."""

    async def offload(self, transaction: Transaction) -> Transaction:
        """Return the transaction with its large media in blobs. `has_media` says if it has any."""
        texts: defaultdict[UUID, dict[str, tuple[str, str | None]]] = defaultdict(dict)
        updates = [_offloaded_update(update, texts[update.head.id]) for update in transaction.updates]
        deliveries = [_offloaded_delivery(delivery, texts[delivery.thread_id]) for delivery in transaction.deliveries]
        stored = replace(transaction, updates=updates, deliveries=deliveries)
        new_threads = {thread.id: thread for thread in transaction.new_threads}
        for thread_id, texts_of_thread in texts.items():
            if thread_id in new_threads:
                # The thread does not exist yet, so the commit that creates it adds the references.
                await self.write(texts_of_thread)
                update = stored.update(new_threads[thread_id])
                update.blob_refs = list(dict.fromkeys([*update.blob_refs, *texts_of_thread]))
            else:
                await self.put(thread_id, texts_of_thread)
        return stored

    async def put(self, thread_id: UUID, texts: Mapping[str, tuple[str, str | None]]) -> None:
        """Write texts as blobs, and the references of a thread to them."""
        await self.write(texts)
        await self.add_references(thread_id, texts)

    async def write(self, texts: Mapping[str, tuple[str, str | None]]) -> None:
        """Write texts as blobs. Until this thread refers to a blob, it is deleted with the last other thread that
        does."""
        present = Find(Blob, (Where("sha256", "in", sorted(texts)),))
        if not texts or await self._backend.count(present) == len(texts):
            return
        now = self._clock.now()
        for digest, (text, media_type) in texts.items():
            if not await self._backend.count(Find(Blob, (Where("sha256", "=", digest),))):
                content = text.encode()
                blob = Blob(sha256=digest, size=len(content), media_type=media_type, content=content, created_at=now)
                await self._backend.put([blob])

    async def write_trusted(self, texts: Mapping[str, tuple[str, str | None]]) -> None:
        """Write texts as blobs, without a query for those that an earlier call has found or written.

        Another process may have deleted one of these since. Then the commit that refers to it raises `Refused`, and the
        caller calls `write`.
        """
        unknown = {digest: text for digest, text in texts.items() if digest not in self._trusted}
        if unknown:
            await self.write(unknown)
            if len(self._trusted) >= _MOST_TRUSTED:
                self._trusted.clear()
            self._trusted.update(unknown)

    async def add_references(self, thread_id: UUID, digests: Iterable[str]) -> None:
        """Write the references of a thread to blobs. The thread must exist."""
        uses = [BlobUse(thread_id=thread_id, sha256=digest) for digest in digests]
        if uses:
            await self._backend.put(uses)

    async def put_text(self, thread_id: UUID, text: str, media_type: str) -> str:
        """Store one text for a thread. Return its sha256."""
        digest = sha256(text.encode()).hexdigest()
        await self.put(thread_id, {digest: (text, media_type)})
        return digest

    async def restore(self, stitches: Sequence[Stitch]) -> list[Stitch]:
        """Return the stitches with their media in place. Raises `StoreDamaged` if a blob is missing."""
        references = [(*_references(stitch.message), *_references(stitch.data)) for stitch in stitches]
        wanted = {digest for digests in references for digest in digests if digest is not None}
        texts: dict[str, str] = {}
        if wanted:
            blobs = await self._backend.find(Find(Blob, (Where("sha256", "in", sorted(wanted)),)))
            texts = {blob.sha256: blob.content.decode() for blob in blobs}
        missing = wanted - texts.keys()
        if missing:
            raise StoreDamaged(
                f"The blob with sha256 {min(missing)}, part of a message, is missing from this store. Restore a backup."
            )
        return [
            stitch.changed(message=_restored(stitch.message, texts), data=_restored(stitch.data, texts))
            if digests
            else stitch
            for stitch, digests in zip(stitches, references, strict=True)
        ]


def has_media(transaction: Transaction) -> bool:
    """True if a transaction has large media. Raises `Refused` if JSON cannot represent the content of an entry."""
    for update in transaction.updates:
        for entry in update.entries:
            message, data = entry.json_texts()
            if message is not None and _may_have_media(message) and has_large_media(entry.message):
                return True
            if _may_have_media(data) and has_large_media(entry.data):
                return True
    deliveries = transaction.deliveries
    return bool(deliveries) and any(has_large_media(delivery.entry) for delivery in deliveries)


def _check(content: Any) -> None:
    """Raise `Refused` for content that is not valid, before a blob is written for it."""
    codec.dumps(content)


def _may_have_media(text: bytes) -> bool:
    """True if a JSON text is long enough for large media, or has the type of a blob."""
    return len(text) >= LARGE or _BLOB_TEXT in text


def has_large_media(value: Any) -> bool:
    """True if the content has large media. This check is cheap, because most messages have none."""
    if not value:
        return False
    waiting: list[Any] = [value]
    seen = set[int]()
    for item in waiting:
        if isinstance(item, dict):
            bag = cast("Json", item)
            kind = bag.get("type")
            if kind == BLOB or (kind == "base64" and len(str(bag.get("data"))) >= LARGE):
                return True
            content, inside = id(bag), bag.values()
        elif isinstance(item, list):
            items = cast("list[Any]", item)
            content, inside = id(items), items
        else:
            continue
        # Content that contains itself is refused when it is written. Until then, this loop must end.
        if content not in seen:
            seen.add(content)
            waiting.extend(inside)
    return False


def _offloaded_update(update: ThreadUpdate, texts: dict[str, tuple[str, str | None]]) -> ThreadUpdate:
    _check([[entry.message, entry.data] for entry in update.entries])
    entries = [
        entry.changed(message=_offloaded(entry.message, texts), data=_offloaded(entry.data, texts))
        for entry in update.entries
    ]
    return replace(update, entries=entries)


def _offloaded_delivery(delivery: Delivery, texts: dict[str, tuple[str, str | None]]) -> Delivery:
    if delivery.entry is None or not has_large_media(delivery.entry):
        return delivery
    _check(delivery.entry)
    return delivery.changed(entry={name: _offloaded(value, texts) for name, value in delivery.entry.items()})


def _offloaded(value: Any, result: dict[str, tuple[str, str | None]]) -> Any:
    """Return content with references to blobs instead of large media. `result` collects the texts by sha256."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_offloaded(item, result) for item in items] if any(_is_container(item) for item in items) else items
    if not isinstance(value, dict):
        return value
    bag = cast("Json", value)
    data = bag.get("data")
    if bag.get("type") == "base64" and isinstance(data, str) and _is_large(data) and "sha256" not in bag:
        digest = sha256(data.encode()).hexdigest()
        result[digest] = (data, _plain_text(bag.get("media_type")))
        return _renamed(bag, "data", "sha256", digest, BLOB)
    lifted = {name: _offloaded(item, result) for name, item in bag.items()}
    return {"type": BLOB, "bag": lifted} if bag.get("type") == BLOB else lifted


def _plain_text(value: Any) -> str | None:
    """Return a media type if a column can store it. The message keeps the original value."""
    return value if isinstance(value, str) and value.isascii() and value.isprintable() else None


def _is_large(data: str) -> bool:
    return len(data) >= LARGE and data.isascii()


def _renamed(bag: Json, old: str, new: str, value: str, kind: str) -> Json:
    """Return the bag with another type, and with the key `new` in the place of `old`."""
    return {
        (new if name == old else name): value if name == old else kind if name == "type" else item
        for name, item in bag.items()
    }


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list)


def _references(value: Any) -> list[str | None]:
    """Return the hashes of the blobs that a value refers to, and None for each wrapped bag."""
    waiting, digests = [value], list[str | None]()
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(cast("list[Any]", item))
        elif isinstance(item, dict):
            bag = cast("Json", item)
            inside = _unwrapped(bag)
            if inside is None:
                digests.append(bag["sha256"])
                continue
            if inside is not bag:
                digests.append(None)
            waiting.extend(inside.values())
    return digests


def _restored(value: Any, texts: Mapping[str, str]) -> Any:
    """Return content with media instead of references to blobs."""
    if isinstance(value, list):
        return [_restored(item, texts) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    bag = cast("Json", value)
    inside = _unwrapped(bag)
    if inside is None:
        return _renamed(bag, "sha256", "data", texts[bag["sha256"]], "base64")
    return {name: _restored(item, texts) for name, item in inside.items()}


def _unwrapped(bag: Json) -> Json | None:
    """Return the bag as its caller wrote it, and None if it is a reference to a blob."""
    if bag.get("type") != BLOB:
        return bag
    if isinstance(bag.get("sha256"), str):
        return None
    return bag["bag"] if isinstance(bag.get("bag"), dict) else bag
