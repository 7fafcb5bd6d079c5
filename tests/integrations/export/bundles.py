"""Bundles for tests: a valid one with every kind of document, and tools to change it as an attacker would."""

import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from lockstitch.integrations.export.bundle import export_bundle
from lockstitch.model import Feedback, File, Thread
from lockstitch.store import Store, open_store
from tests.samples import begin_turn, finish_turn, said, turn

MEDIA = {"type": "base64", "media_type": "image/png", "data": "AAAA" * 10_000}


async def tell(store: Store) -> Thread:
    """A goal with a child, a blob, a file, feedback, an open delivery and an archived turn."""
    head = await turn(store, await store.create(key="boss", title="Boss"), "one", "two", input_tokens=7)
    committed, run = await begin_turn(store, head, "three")
    head = (await store.append(committed.head, [said([{"type": "image", "source": MEDIA}], run_id=run.id)])).head  # pyright: ignore[reportArgumentType]
    head = (await finish_turn(store, head, run, "four")).head
    child = await store.create(parent_id=head.id, kind="goal", goal="Child")
    for text in ("five", "six"):
        child = await turn(store, child, text, text)
    await store.append(child, fields={"status": "completed", "result": {"summary": "s"}})
    now = store.clock.now()
    times: dict[str, Any] = {"created_at": now, "last_updated_at": now}
    await store.files.put(File(thread_id=head.id, file_id="f", filename="f.txt", **times))
    await store._backend.put(
        [Feedback(project=store.project, thread_id=head.id, name="good", score=1.0, created_at=now, updated_at=now)]
    )
    assert await store.archive(now + timedelta(days=1)) >= 1
    held = await store.claim(await store.thread(head.id))
    await store.deliver(held, said("later"), kind="input", sender="ada")
    return await store.thread(head.id)


@dataclass
class Bundle:
    """The documents of a bundle. `write` creates a zip with a matching manifest, unless `spoil` changes it."""

    documents: dict[str, bytes]
    manifest: dict[str, Any]
    extra: list[tuple[zipfile.ZipInfo, bytes]] = field(default_factory=list[tuple[zipfile.ZipInfo, bytes]])

    def name(self, start: str, ending: str = "") -> str:
        """Return the first document with a name that starts and ends like this."""
        return next(
            document for document in sorted(self.documents) if document.startswith(start) and document.endswith(ending)
        )

    def change(self, name: str, **fields: Any) -> None:
        """Set fields of a JSON document."""
        self.documents[name] = json.dumps({**json.loads(self.documents[name]), **fields}).encode()

    def change_line(self, name: str, number: int, **fields: Any) -> None:
        lines = self.documents[name].splitlines()
        lines[number] = json.dumps({**json.loads(lines[number]), **fields}).encode()
        self.documents[name] = b"\n".join(lines) + b"\n"

    def write(self, path: Path, spoil: Callable[[dict[str, Any]], object] | None = None) -> Path:
        listed = {
            name: {"sha256": sha256(content).hexdigest(), "size": len(content)}
            for name, content in self.documents.items()
        }
        manifest = {**self.manifest, "files": listed}
        if spoil is not None:
            spoil(manifest)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
            target.writestr("manifest.json", json.dumps(manifest))
            for name, content in self.documents.items():
                target.writestr(name, content)
            for entry, content in self.extra:
                target.writestr(entry, content)
        return path


def read(path: Path) -> Bundle:
    with zipfile.ZipFile(path) as bundle:
        documents = {name: bundle.read(name) for name in bundle.namelist() if name != "manifest.json"}
        return Bundle(documents, json.loads(bundle.read("manifest.json")))


async def good(folder: Path) -> Bundle:
    async with open_store(f"sqlite:///{folder / 'source.db'}") as store:
        await export_bundle(store, await tell(store), folder / "good.zip")
    return read(folder / "good.zip")


@contextmanager
def unchanged(*folders: Path) -> Iterator[None]:
    """Assert that nothing below these folders is created, changed or removed."""
    before = [snapshot(folder) for folder in folders]
    yield
    assert [snapshot(folder) for folder in folders] == before


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
