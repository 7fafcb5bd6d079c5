"""`export_bundle` and `import_bundle`: a tree of threads as a zip.

A bundle contains the documents that the files backend stores for these threads, and a `manifest.json` with their sizes
and checksums. The same tree always gives the same bytes. `BundleReader` checks bundles from untrusted sources.
"""

import os
import zipfile
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from lockstitch.backends.files import disk
from lockstitch.errors import Conflict, NotFound, Refused, StoreError
from lockstitch.integrations.export.bundle_archive import FORMAT, MANIFEST, VERSION
from lockstitch.integrations.export.bundle_reader import BundleReader
from lockstitch.integrations.export.lens_tables import free_place
from lockstitch.model import Json, Stitch, codec
from lockstitch.store import CopyReport, Store, open_store
from lockstitch.store.maintenance.copy import put_copies
from lockstitch.store.threads import ThreadRef

_MOMENT: Final = (1980, 1, 1, 0, 0, 0)
_PAGE: Final = 500


async def export_bundle(store: Store, ref: ThreadRef, path: Path) -> Json:
    """Write a thread and its descendants into a new zip and return the manifest.

    Raises `NotFound` if the thread does not exist, and `Refused` if the file exists.
    """
    head = await store.thread(ref)
    free_place(path)
    with TemporaryDirectory(prefix="lockstitch-") as folder:
        root = Path(folder)
        async with open_store(f"file://{root / 'store'}", project=store.project) as target:
            copied = await store.copy_to(target, tree=head)
            runs = [len(await target.runs(thread)) for thread in await target.tree(head.id)]
        if (root / "store" / disk.JOURNAL).stat().st_size:
            raise StoreError("The export was not written completely to the temporary folder. Check the disk and retry.")
        files = sorted(file for file in (root / "store").rglob("*") if file.is_file() and _belongs(file))
        manifest: Json = {
            "format": FORMAT,
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


async def import_bundle(store: Store, path: Path) -> CopyReport:
    """Copy the threads of a bundle into a store.

    The bundle is read completely first, into a temporary store that is deleted afterwards. Raises `Refused` if the
    bundle is not valid, and `NotFound` if it belongs to another project. Nothing is written then.
    """
    with TemporaryDirectory(prefix="lockstitch-") as folder, BundleReader(path) as bundle:
        url = f"sqlite:///{Path(folder) / 'bundle.db'}?synchronous=normal"
        async with open_store(url, project=store.project) as scratch:
            try:
                await _fill(scratch, bundle)
            except Conflict as exc:
                raise Refused(f"{path} cannot be imported: two of its records conflict ({exc})") from exc
            if bundle.project != store.project:
                raise NotFound(
                    f"{path} contains threads of project {bundle.project}, but this store uses project "
                    f"{store.project}. Nothing was written. Choose project {bundle.project}."
                )
            return await scratch.copy_to(store, tree=str(bundle.thread_id))


async def _fill(scratch: Store, bundle: BundleReader) -> None:
    """Store all records of a bundle in an empty store. Logs come last, because they refer to runs."""
    for head in bundle.threads():
        await put_copies(scratch, [head])
    for record in bundle.records():
        await put_copies(scratch, [record])
    page: list[Stitch] = []
    for stitch in bundle.stitches():
        page.append(stitch)
        if len(page) == _PAGE:
            await put_copies(scratch, page)
            page = []
    await put_copies(scratch, page)
    for head in bundle.threads():
        first, last = bundle.positions(head.id)
        count = await scratch.count_stitches(head.id)
        if count != last - first + 1:
            raise Refused(
                f"The log of thread {head.id} has {count} of {last - first + 1} positions. Nothing was written."
            )


def _belongs(file: Path) -> bool:
    """True for documents of a store. The lock and the journal are only for processes that write."""
    return not file.name.endswith(".lock") and file.name not in (disk.JOURNAL, disk.APPLIED)


def _name(root: Path, file: Path) -> str:
    return file.relative_to(root).as_posix()


def _digest(file: Path) -> str:
    result = sha256()
    with file.open("rb") as content:
        while part := content.read(1 << 20):
            result.update(part)
    return result.hexdigest()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _MOMENT)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
