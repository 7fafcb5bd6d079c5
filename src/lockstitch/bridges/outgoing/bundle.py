"""A tree of threads to take home: a folder of files, as the file backend has it, in one zip, and how it comes back.

The same tree always gives the same bytes. `manifest.json` says what is in it and the sha256 of every file.
"""

import os
import zipfile
from hashlib import sha256
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

from lockstitch.bridges.outgoing.tables import free_place
from lockstitch.errors import Refused
from lockstitch.records import Json, codec
from lockstitch.store import Copied, Store, open_store
from lockstitch.store.threads import ThreadRef

MANIFEST: Final = "manifest.json"
VERSION: Final = 1
LARGEST: Final = 4 * 1024**3
"""Bytes that a bundle may unpack to."""
MOST: Final = 100_000
"""Files that a bundle may have."""

_MOMENT: Final = (1980, 1, 1, 0, 0, 0)
_FOLDER: Final = "store/"


async def export_bundle(store: Store, ref: ThreadRef, path: Path) -> Json:
    """Write a thread and everything below it into a new zip; its manifest."""
    head = await store.thread(ref)
    free_place(path)
    with TemporaryDirectory(prefix="lockstitch-") as folder:
        root = Path(folder)
        async with open_store(f"file://{root / 'store'}", project=store.project) as target:
            copied = await store.copy_to(target, tree=head)
            runs = [len(await target.runs(one)) for one in await target.tree(head.id)]
        files = sorted(file for file in (root / "store").rglob("*") if file.is_file() and _belongs(file))
        manifest: Json = {
            "format": "lockstitch-bundle",
            "version": VERSION,
            "thread": str(head.id),
            "counts": {"threads": copied.threads, "runs": sum(runs), "stitches": copied.stitches},
            "files": {_name(root, file): {"sha256": _digest(file), "size": file.stat().st_size} for file in files},
        }
        partial = path.with_name(f"{path.name}.partial")
        try:
            with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as bundle:
                bundle.writestr(_entry(MANIFEST), codec.dumps(manifest))
                for file in files:
                    with bundle.open(_entry(_name(root, file)), "w") as target_file, file.open("rb") as source:
                        while part := source.read(1 << 20):
                            target_file.write(part)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    return manifest


async def import_bundle(store: Store, path: Path) -> Copied:
    """Copy the threads of a bundle into a store. Refused when it is no bundle, or not as its manifest says."""
    with TemporaryDirectory(prefix="lockstitch-") as folder:
        manifest = _unpack(path, Path(folder))
        async with open_store(f"file://{Path(folder) / 'store'}", project=store.project, create=False) as source:
            return await source.copy_to(store, tree=str(manifest["thread"]))


def _unpack(path: Path, folder: Path) -> Json:
    """Write what the manifest lists, and nothing else, below `folder`."""
    try:
        with zipfile.ZipFile(path) as bundle:
            read: Any = codec.loads(_bounded(bundle, MANIFEST, 64 * 1024**2))
            manifest = cast("Json", read if isinstance(read, dict) else {})
            if manifest.get("format") != "lockstitch-bundle":
                raise Refused(f"{path} is no bundle of Lockstitch.")
            if manifest.get("version") != VERSION:
                raise Refused(f"{path} is a bundle of version {manifest.get('version')}; this code knows {VERSION}.")
            files: dict[str, Json] = manifest["files"]
            if len(files) > MOST or sum(int(one["size"]) for one in files.values()) > LARGEST:
                raise Refused(f"{path} is too large to unpack.")
            for name, told in files.items():
                _write(bundle, name, told, folder)
            return manifest
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, OSError) as exc:
        if isinstance(exc, Refused):
            raise
        raise Refused(f"{path} is no bundle that can be read: {exc}.") from exc


def _write(bundle: zipfile.ZipFile, name: str, told: Json, folder: Path) -> None:
    place = PurePosixPath(name)
    if not name.startswith(_FOLDER) or place.is_absolute() or ".." in place.parts or "\\" in name or ":" in name:
        raise Refused(f"The bundle has a file {name!r}, which would lie outside of it.")
    content = _bounded(bundle, name, int(told["size"]))
    if sha256(content).hexdigest() != told["sha256"]:
        raise Refused(f"The file {name} of the bundle is damaged.")
    target = folder.joinpath(*place.parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _bounded(bundle: zipfile.ZipFile, name: str, most: int) -> bytes:
    """The content of a file, if it is no longer than it is said to be, whatever the zip says of itself."""
    with bundle.open(name) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise Refused(f"The file {name} of the bundle is longer than it is said to be.")
    return content


def _belongs(file: Path) -> bool:
    """Locks say nothing of what is kept."""
    return not file.name.endswith(".lock")


def _name(root: Path, file: Path) -> str:
    return file.relative_to(root).as_posix()


def _digest(file: Path) -> str:
    found = sha256()
    with file.open("rb") as content:
        while part := content.read(1 << 20):
            found.update(part)
    return found.hexdigest()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _MOMENT)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
