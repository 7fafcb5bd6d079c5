"""Media: large base64 content is lifted out of messages into blobs, and put back for whoever reads."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast
from uuid import UUID

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import StoreDamaged
from lockstitch.model import Blob, BlobUse, Clock, Delivery, Json, Stitch, codec
from lockstitch.store.transaction import ThreadUpdate

BLOB = "lockstitch:blob"

LARGE = 32 * 1024
"""Characters of base64 from which content is lifted."""


class Media:
    """Moves media between messages and blobs.

    A source {"type": "base64", "media_type", "data"} becomes {"type": "lockstitch:blob", "media_type", "sha256"},
    its keys in the same order, so that it comes back as the same bytes. Content that has this type already is
    wrapped, {"type": "lockstitch:blob", "bag": {…}}: it is somebody's words, and a hash in it opens no blob. Blobs are
    written before the commit that refers to them: one that nobody came to refer to does no harm.
    """

    def __init__(self, backend: FullBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock

    async def offload(self, drafts: Sequence[ThreadUpdate]) -> Sequence[ThreadUpdate]:
        """The drafts with their large media in blobs; the very same where there is nothing to lift."""
        for draft in drafts:
            for entry in draft.entries:
                if has_large_media(entry.message) or has_large_media(entry.data):
                    return [await self._lifted(draft) for draft in drafts]
        return drafts

    async def _lifted(self, draft: ThreadUpdate) -> ThreadUpdate:
        _check([[entry.message, entry.data] for entry in draft.entries])
        found: dict[str, tuple[str, str | None]] = {}
        entries = [
            entry.changed(message=_lift(entry.message, found), data=_lift(entry.data, found)) for entry in draft.entries
        ]
        await self.put(draft.head.id, found)
        return draft._replace(entries=entries)

    async def offload_delivery(self, letter: Delivery) -> Delivery:
        """The letter with the large media of its entry in blobs."""
        if letter.entry is None or not has_large_media(letter.entry):
            return letter
        _check(letter.entry)
        found: dict[str, tuple[str, str | None]] = {}
        entry = {name: _lift(value, found) for name, value in letter.entry.items()}
        await self.put(letter.thread_id, found)
        return letter.changed(entry=entry)

    async def put(self, thread_id: UUID, texts: Mapping[str, tuple[str, str | None]]) -> None:
        """Write texts as blobs that a thread uses; one that is there already is only noted."""
        await self.write(texts)
        await self.add_references(thread_id, texts)

    async def write(self, texts: Mapping[str, tuple[str, str | None]]) -> None:
        """Write texts as blobs. Until a thread notes that it uses them they may go with the last thread that does."""
        now = self._clock.now()
        for digest, (text, media_type) in texts.items():
            if not await self._backend.count(Find(Blob, (Where("sha256", "=", digest),))):
                content = text.encode()
                blob = Blob(sha256=digest, size=len(content), media_type=media_type, content=content, created_at=now)
                await self._backend.put([blob])

    async def add_references(self, thread_id: UUID, digests: Iterable[str]) -> None:
        """Note that a thread, which must exist, uses blobs."""
        uses = [BlobUse(thread_id=thread_id, sha256=digest) for digest in digests]
        if uses:
            await self._backend.put(uses)

    async def keep_text(self, thread_id: UUID, text: str, media_type: str) -> str:
        """Keep one text for a thread; its sha256."""
        digest = sha256(text.encode()).hexdigest()
        await self.put(thread_id, {digest: (text, media_type)})
        return digest

    async def restore(self, stitches: Sequence[Stitch]) -> list[Stitch]:
        """The stitches with their media back in place. StoreDamaged when one of them is missing."""
        marks = [(*_references(stitch.message), *_references(stitch.data)) for stitch in stitches]
        wanted = {digest for found in marks for digest in found if digest is not None}
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
            if found
            else stitch
            for stitch, found in zip(stitches, marks, strict=True)
        ]


def _check(content: Any) -> None:
    """Refuse what cannot be kept before a blob is written for it."""
    codec.dumps(content)


def has_large_media(value: Any) -> bool:
    """Whether there is something to lift: a look that costs little, since most messages have nothing."""
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
        # Content that holds itself is refused when it is written; until then, looking at it must end.
        if content not in seen:
            seen.add(content)
            waiting.extend(inside)
    return False


def _lift(value: Any, found: dict[str, tuple[str, str | None]]) -> Any:
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_lift(item, found) for item in items] if any(_is_bag(item) for item in items) else items
    if not isinstance(value, dict):
        return value
    bag = cast("Json", value)
    data = bag.get("data")
    if bag.get("type") == "base64" and isinstance(data, str) and _is_large(data) and "sha256" not in bag:
        digest = sha256(data.encode()).hexdigest()
        found[digest] = (data, _plain_text(bag.get("media_type")))
        return _renamed(bag, "data", "sha256", digest, BLOB)
    lifted = {name: _lift(item, found) for name, item in bag.items()}
    return {"type": BLOB, "bag": lifted} if bag.get("type") == BLOB else lifted


def _plain_text(value: Any) -> str | None:
    """A media type as a column can keep it; the message keeps whatever it was."""
    return value if isinstance(value, str) and value.isascii() and value.isprintable() else None


def _is_large(data: str) -> bool:
    return len(data) >= LARGE and data.isascii()


def _renamed(bag: Json, old: str, new: str, value: str, kind: str) -> Json:
    """The bag with another type, and one key in another's place."""
    return {
        (new if name == old else name): value if name == old else kind if name == "type" else item
        for name, item in bag.items()
    }


def _is_bag(value: Any) -> bool:
    return isinstance(value, dict | list)


def _references(value: Any) -> list[str | None]:
    """The hashes of the blobs that a value refers to, and None for each bag that is wrapped."""
    waiting, found = [value], list[str | None]()
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(cast("list[Any]", item))
        elif isinstance(item, dict):
            bag = cast("Json", item)
            inside = _unwrapped(bag)
            if inside is None:
                found.append(bag["sha256"])
                continue
            if inside is not bag:
                found.append(None)
            waiting.extend(inside.values())
    return found


def _restored(value: Any, texts: Mapping[str, str]) -> Any:
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
    """The bag as somebody wrote it, or None when it is a reference of ours."""
    if bag.get("type") != BLOB:
        return bag
    if isinstance(bag.get("sha256"), str):
        return None
    return bag["bag"] if isinstance(bag.get("bag"), dict) else bag
