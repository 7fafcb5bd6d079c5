"""The subprocess that parses an untrusted document.

python -m lockstitch.apps.notebooks.readers.isolated_process pdf|html PAGES CHARACTERS MEMORY SECONDS < file
"""

import sys
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from typing import Any, Final

from lockstitch.apps.notebooks.readers.isolated import document_of, run_reader
from lockstitch.ext import Json

_MOST_HEADINGS: Final = 2_000
_DEEPEST: Final = 6


def read_pdf(content: bytes, most_pages: int, most_characters: int) -> Json:
    """Return the texts of the pages, the title and the outline, or `refused` with a reason."""
    from pypdf import PdfReader

    reader = PdfReader(BytesIO(content), strict=False)
    if reader.is_encrypted and not reader.decrypt(""):
        return {"refused": "is protected by a password. Save a copy without a password."}
    count = len(reader.pages)
    if not count:
        return {"refused": "has no pages."}
    if count > most_pages:
        return {"refused": f"has {count:,} pages. The limit is {most_pages:,}. Split it."}
    texts: list[str] = []
    length = 0
    for page in reader.pages:
        # Replace characters that are not valid, such as single surrogates.
        texts.append(page.extract_text().encode("utf-8", "replace").decode())
        length += len(texts[-1])
        if length > most_characters:
            return {"refused": f"has more than {most_characters:,} characters of text. Split it."}
    if not any(text.strip() for text in texts):
        return {"refused": "has no text: its pages are images. Run text recognition first."}
    title: str | None = None
    outline: list[tuple[int, str, int]] = []
    # The title and the outline are optional, and often damaged.
    with suppress(Exception):
        title = str(reader.metadata.title) if reader.metadata and reader.metadata.title else None
    with suppress(Exception):
        _collect(reader, reader.outline, 1, outline)
    return {"pages": texts, "title": title, "outline": outline}


def _collect(reader: Any, entries: Any, level: int, matches: list[tuple[int, str, int]]) -> None:
    for entry in entries:
        if len(matches) >= _MOST_HEADINGS:
            return
        if isinstance(entry, list):
            if level < _DEEPEST:
                _collect(reader, entry, level + 1, matches)
            continue
        page = reader.get_destination_page_number(entry)
        if page is not None:
            matches.append((level, str(entry.title), int(page)))


def read_html(content: bytes, _pages: int, most_characters: int) -> Json:
    """Return the text, the title and the headings."""
    document = document_of(content.decode())
    if len(document.text) > most_characters:
        return {"refused": f"has more than {most_characters:,} characters of text. Split it."}
    headings = [(heading.at, heading.level, heading.text) for heading in document.headings]
    return {"text": document.text, "title": document.title, "headings": headings}


def main() -> None:
    kind, *limits = sys.argv[1:]
    if kind == "pdf":
        # Import before the limits apply, because they are for the content.
        import_module("pypdf")
        run_reader(read_pdf, limits)
    else:
        run_reader(read_html, limits)


if __name__ == "__main__":
    main()
