"""`BundleArchive`: the documents of a bundle, read from the zip in place.

A bundle can come from an untrusted source. This module limits the cost of reading it:

1. The zip directory, the number of documents and the size of each are limited before a document is read.
2. A document is read in chunks. Reading stops if it is longer than the manifest says.
3. Lines, documents and archives have a maximum size, and a maximum number of values.
"""

import io
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Never, cast

from lockstitch.errors import Refused
from lockstitch.model import Json, as_id, codec

MANIFEST: Final = "manifest.json"
FORMAT: Final = "lockstitch-bundle"
VERSION: Final = 2
FOLDER: Final = "store/"

LARGEST: Final = 4 * 1024**3
"""Maximum unpacked bytes of all documents of a bundle."""
MOST: Final = 100_000
"""Maximum number of documents of a bundle."""
LONGEST_MANIFEST: Final = 32 * 1024**2
LONGEST_TEXT: Final = 64 * 1024**2
"""Maximum bytes of one JSON document, and of one line of a log."""
LONGEST_CONTENT: Final = 256 * 1024**2
"""Maximum bytes of the content of one blob, and of one unpacked archive."""
MOST_VALUES: Final = 4_000_000
"""Maximum number of JSON values in one document or line. A parsed value takes about 60 bytes of memory."""
RATIO: Final = 200
"""Maximum compression ratio of a bundle with more than `RATIO_FROM` bytes. Text of agents reaches about 30."""
RATIO_FROM: Final = 256 * 1024**2

_CHUNK: Final = 1 << 16
_LONGEST_READ: Final = 32 * 1024**2
"""Maximum bytes of the zip directory. The module zipfile reads it at once."""
_ENCRYPTED: Final = 0x1
_READABLE: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

_BROKEN: Final = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    ValueError,
)
"""Errors that the parsers raise for invalid content. RecursionError is a RuntimeError."""

_HASH: Final = re.compile("[0-9a-f]{64}")
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


class BundleArchive:
    """The zip of one bundle. It keeps the file open until `close`. Not safe for concurrent use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._verified: set[str] = set()
        self._file = _BoundedFile(path, "rb")
        try:
            with explained(path):
                self._zip = zipfile.ZipFile(self._file)
                self._sizes = self._directory()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._zip.close()
        self._file.close()

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes of the documents, by their names in the zip."""
        return self._sizes

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a document. Compare its size and checksum with the manifest."""
        path = FOLDER + name
        expected = self._sizes.get(path)
        if expected is None:
            refuse(f"{path} is missing")
        size, digest = 0, sha256()
        with self._zip.open(path) as file:
            while part := file.read(_CHUNK):
                size += len(part)
                if size > expected:
                    refuse(f"{path} is longer than the manifest says")
                digest.update(part)
                yield part
        if size != expected or digest.hexdigest() != self._digests[path]:
            refuse(f"{path} is damaged: its content does not match the manifest")
        self._verified.add(path)

    def text(self, name: str) -> bytes:
        """Return a JSON document."""
        return self._read_limited(name, LONGEST_TEXT)

    def content(self, name: str) -> bytes:
        """Return the content of a blob or of an archive."""
        return self._read_limited(name, LONGEST_CONTENT)

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a log."""
        return split(self.chunks(name), name)

    def matching(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
        """Yield the documents with matching names, in the order of their names."""
        for path in sorted(self._sizes):
            name = path.removeprefix(FOLDER)
            match = pattern.fullmatch(name)
            if match is not None:
                yield name, match

    def unread(self) -> Iterator[str]:
        """Yield the names of documents that were not read to their end."""
        return (path.removeprefix(FOLDER) for path in self._sizes if path not in self._verified)

    def check_count(self, name: str, number: int) -> None:
        """Reject the bundle if its manifest counts another number of records."""
        if self._counts.get(name) != number:
            refuse(f"its manifest counts {str(self._counts.get(name))[:40]} {name}, but it contains {number}")

    def _read_limited(self, name: str, most: int) -> bytes:
        if self._sizes.get(FOLDER + name, 0) > most:
            refuse(f"{name} is longer than {most:,} bytes")
        return b"".join(self.chunks(name))

    def _directory(self) -> dict[str, int]:
        """Return the sizes of the documents by name. The zip and its manifest must name the same documents."""
        entries = self._zip.infolist()
        if len(entries) > MOST + 1:
            refuse(f"it has {len(entries):,} documents, but only {MOST:,} are allowed")
        names = {entry.filename for entry in entries}
        if len(names) != len(entries):
            refuse("two of its documents have the same name")
        for entry in entries:
            _check_entry(entry)
        manifest = self._manifest()
        listed: Any = manifest["files"]
        sizes = {str(name): _size(listed[name], str(name)) for name in listed}
        if names != {MANIFEST, *sizes}:
            example = min(names ^ {MANIFEST, *sizes})
            refuse(f"the manifest and the zip do not name the same documents, for example {example[:200]!r}")
        for entry in entries:
            if entry.filename != MANIFEST and entry.file_size != sizes[entry.filename]:
                refuse(f"{entry.filename} has another size than the manifest says")
        total, packed = sum(sizes.values()), self._path.stat().st_size
        if total > LARGEST:
            refuse(f"it unpacks to {total:,} bytes, but only {LARGEST:,} are allowed")
        if total > RATIO_FROM and total > RATIO * packed:
            refuse(f"it unpacks to {total:,} bytes from {packed:,}, which is not plausible")
        self._digests = {name: str(listed[name]["sha256"]) for name in sizes}
        return sizes

    def _manifest(self) -> Json:
        parts: list[bytes] = []
        size = 0
        with self._zip.open(MANIFEST) as file:
            while part := file.read(_CHUNK):
                parts.append(part)
                size += len(part)
                if size > LONGEST_MANIFEST:
                    refuse(f"its manifest is longer than {LONGEST_MANIFEST:,} bytes")
        manifest = read_object(b"".join(parts), MANIFEST)
        if manifest.get("format") != FORMAT:
            refuse(f"its format is {str(manifest.get('format'))[:100]!r}")
        if manifest.get("version") != VERSION:
            refuse(f"its version is {str(manifest.get('version'))[:100]}, but this code reads version {VERSION}")
        thread_id = as_id(str(manifest["thread"]))
        if thread_id is None:
            refuse("its manifest names no thread")
        self.thread_id = thread_id
        self._counts = cast("Json", manifest["counts"])
        return manifest


class _BoundedFile(io.FileIO):
    """A file that rejects large reads, so that no zip header can request much memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = _LONGEST_READ + 1 if size is None or size < 0 else size
        content = super().read(wanted) if wanted <= _LONGEST_READ + 1 else b""
        if wanted > _LONGEST_READ + 1 or len(content) > _LONGEST_READ:
            refuse(f"its directory is larger than {_LONGEST_READ:,} bytes")
        return content


class _Unacceptable(Exception):
    """A bundle breaks a rule."""


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Turn the errors of parsers into `Refused` with the name of the file."""
    try:
        yield
    except _Unacceptable as exc:
        raise Refused(f"{path} cannot be imported: {exc}. Nothing was written.") from exc
    except Refused as exc:
        raise Refused(f"{path} cannot be imported: {exc}") from exc
    except _BROKEN as exc:
        raise Refused(
            f"{path} is not a bundle that can be read ({type(exc).__name__}: {str(exc)[:200]}). Nothing was written."
        ) from exc


def refuse(reason: str) -> Never:
    raise _Unacceptable(reason)


def _check_entry(entry: zipfile.ZipInfo) -> None:
    """Reject entries that are not plain files: folders, links, devices, encrypted or unusually compressed ones."""
    mode = entry.external_attr >> 16
    shown = repr(entry.filename[:200])
    if entry.is_dir() or (stat.S_IFMT(mode) and not stat.S_ISREG(mode)):
        refuse(f"{shown} is not a plain file")
    if entry.flag_bits & _ENCRYPTED:
        refuse(f"{shown} is encrypted")
    if entry.compress_type not in _READABLE:
        refuse(f"{shown} uses a compression method that is not supported")
    # zipfile cuts a name at a NUL. `orig_filename` is the original name.
    if entry.orig_filename != entry.filename:
        refuse(f"{entry.orig_filename[:200]!r} is not a name of a document")


def _size(listed: Any, name: str) -> int:
    size: Any = listed["size"]
    if type(size) is not int or not 0 <= size <= LARGEST:
        refuse(f"its manifest gives {name[:200]!r} the size {str(size)[:40]}")
    if _HASH.fullmatch(str(listed["sha256"])) is None:
        refuse(f"its manifest gives {name[:200]!r} no checksum")
    return size


def split(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of a text in chunks. Reject a line that is too long, and a last line without an end."""
    parts: list[bytes] = []
    length = 0
    for chunk in chunks:
        first, *following_lines = chunk.split(b"\n")
        parts.append(first)
        length += len(first)
        if length > LONGEST_TEXT:
            refuse(f"{name} has a line of more than {LONGEST_TEXT:,} bytes")
        for following in following_lines:
            yield b"".join(parts)
            parts, length = [following], len(following)
    if length:
        refuse(f"{name} ends in the middle of a line")


def unpacked(content: bytes, name: str, note: Callable[[bytes], object]) -> Iterator[bytes]:
    """Yield the text of a gzip member in chunks. `note` gets each. Reject text that is too long or incomplete."""
    unpacking = zlib.decompressobj(wbits=31)
    size = 0
    remaining = content
    while not unpacking.eof:
        part = unpacking.decompress(remaining, _CHUNK)
        if not part and not unpacking.unconsumed_tail and not unpacking.eof:
            refuse(f"{name} is incomplete")
        remaining = unpacking.unconsumed_tail
        size += len(part)
        if size > LONGEST_CONTENT:
            refuse(f"{name} unpacks to more than {LONGEST_CONTENT:,} bytes")
        note(part)
        yield part
    if unpacking.unused_data:
        refuse(f"{name} has data after its end")


def bounded(text: bytes, name: str) -> bytes:
    """Return a JSON text. Reject it if it has too many values. Separators inside strings do not count."""
    if len(text) > MOST_VALUES and _values(text) > MOST_VALUES and _values(_STRING.sub(b"", text)) > MOST_VALUES:
        refuse(f"{name} has a text of more than {MOST_VALUES:,} values")
    return text


def _values(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def read_object(text: bytes, name: str) -> Json:
    result = codec.loads(bounded(text, name))
    if not isinstance(result, dict):
        refuse(f"{name} does not contain a JSON object")
    return cast("Json", result)
