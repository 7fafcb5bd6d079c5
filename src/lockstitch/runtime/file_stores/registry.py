"""Opening a file store by its URL."""

from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from lockstitch.errors import Refused
from lockstitch.runtime.file_store import FileStore
from lockstitch.runtime.file_stores.local import LocalFileStore
from lockstitch.runtime.file_stores.none import NoFileStore

_FILE_STORE_FORMS: Final = (
    "none, file:folder, file:///srv/files or s3://bucket/prefix?endpoint=http://host:9000&region=eu-west-1"
)
_S3_OPTIONS: Final = frozenset({"endpoint", "region"})


def file_store(url: str) -> FileStore:
    """The file store at `url`. Refused when that is none."""
    if url in ("none", "none:"):
        return NoFileStore()
    try:
        # A # belongs to the path.
        parts = urlsplit(url, allow_fragments=False)
    except ValueError as exc:
        raise Refused(f"{url!r} is no file store ({exc}). Write {_FILE_STORE_FORMS}.") from exc
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        # A ? belongs to a folder's name: it has no options.
        path = url.removeprefix("file:").removeprefix("//localhost").removeprefix("//")
        if path.strip("/"):
            return LocalFileStore(unquote(path))
    if parts.scheme == "s3" and parts.netloc:
        return _s3(parts.netloc, unquote(parts.path), parts.query)
    raise Refused(f"{url!r} is no file store. Write {_FILE_STORE_FORMS}.")


def _s3(bucket: str, prefix: str, query: str) -> FileStore:
    options = {name: values[-1] for name, values in parse_qs(query).items()}
    if not options.keys() <= _S3_OPTIONS:
        raise Refused(f"A file store on S3 takes {' and '.join(sorted(_S3_OPTIONS))}, not {query!r}.")
    try:
        from lockstitch.runtime.file_stores.s3 import S3FileStore
    except ModuleNotFoundError as exc:
        raise Refused(f"{exc.name} is missing: pip install 'lockstitch[s3]'") from exc
    return S3FileStore(bucket, prefix, endpoint=options.get("endpoint"), region=options.get("region"))
