"""The process that reads one page of HTML: its markup in UTF-8 comes in, JSON goes out."""

import sys

from lockstitch.apps.notebooks.readers.apart import answer
from lockstitch.apps.notebooks.readers.html import document_of
from lockstitch.records import Json


def read_html(content: bytes, _pages: int, most_characters: int) -> Json:
    """The text, the title and the headings."""
    document = document_of(content.decode())
    if len(document.text) > most_characters:
        return {"refused": f"has more than {most_characters:,} characters of text. Split it."}
    headings = [(heading.at, heading.level, heading.text) for heading in document.headings]
    return {"text": document.text, "title": document.title, "headings": headings}


if __name__ == "__main__":
    answer(read_html, sys.argv[1:])
