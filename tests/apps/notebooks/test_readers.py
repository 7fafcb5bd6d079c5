"""Readers return text with locations, or reject the file with a reason."""

import time

import pytest

from lockstitch.apps.notebooks.readers import isolated_process
from lockstitch.apps.notebooks.readers.isolated import document_of
from lockstitch.apps.notebooks.readers.reader import Document, Limits
from lockstitch.apps.notebooks.readers.registry import kind_of, read
from lockstitch.apps.notebooks.readers.text import headings_of
from lockstitch.errors import Refused
from tests.apps.notebooks.papers import bomb, encrypted, pdf

pytestmark = pytest.mark.anyio


def at(document: Document, text: str) -> str:
    start = document.text.index(text)
    return document.place(start, start + len(text)).words


async def test_text_has_line_numbers() -> None:
    document = await read("letters.txt", "one\r\ntwo\r\nthree".encode("utf-8-sig"))
    assert (document.kind, document.text) == ("text", "one\ntwo\nthree")
    assert at(document, "three") == "line 3"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "cp1252", "utf-32"])
async def test_reads_text_in_other_encodings(encoding: str) -> None:
    assert (await read("a.txt", "Ærø, “yes”, naïve".encode(encoding))).text == "Ærø, “yes”, naïve"


async def test_markdown_headings_exclude_code() -> None:
    text = "# Books\n\n## Shelf C ##\n\n```\n# no heading\n```\n\nThe Wild Robot\n\nShelf D\n-------\n\nRoller Girl\n"
    document = await read("notes.md", text.encode())
    assert document.title == "Books"
    assert [heading.text for heading in document.headings] == ["Books", "Shelf C", "Shelf D"]
    assert at(document, "The Wild Robot") == "Books / Shelf C, line 9"
    assert at(document, "Roller Girl") == "Books / Shelf D, line 14"


async def test_html_reader_returns_visible_text() -> None:
    page = """<!doctype html><html><head><title>Prize  winners</title><style>p { color: red }</style>
    <script>alert("no")</script></head><body onload="evil()"><h1>Prizes</h1><p>Front&nbsp;Desk &amp; more,<br>by
    <b>Kelly Yang</b>.<script>steal()</script></p><h2>2005</h2><ul><li>The Penderwicks<li>Another</ul>
    <template><p>hidden</p></template><table><tr><td>a</td><td>b</td></tr></table><div hidden>secret</div>
    <pre>  two\n  lines</pre></body></html>"""
    document = await read("prizes.html", page.encode())
    assert document.title == "Prize winners"
    for word in ("alert", "steal", "color", "hidden", "secret", "<"):
        assert word not in document.text
    assert "Front\xa0Desk & more,\nby Kelly Yang." in document.text
    assert "a b" in document.text
    assert "  two\n  lines" in document.text
    assert at(document, "The Penderwicks").startswith("Prizes / 2005, line ")


async def test_html_reader_accepts_invalid_markup() -> None:
    document = await read("a.html", b"<p>one<div>two</b></p></p><script>never closed <p>three")
    assert document.text.split() == ["one", "two"]


async def test_rejects_pdf_bomb() -> None:
    with pytest.raises(Refused, match=r"bomb\.pdf (has no text|cannot be read|needs too much)"):
        await read("bomb.pdf", bomb(90 * 2**20), limits=Limits(memory=2**29))


async def test_pdf_has_pages_and_outline() -> None:
    paper = pdf(["Shelf A\nGood books", "", "Shelf C\nThe Wild Robot"], title="List", outline=[("A", 0), ("C", 2)])
    document = await read("list.pdf", paper)
    assert (document.kind, document.title, len(document.pages)) == ("pdf", "List", 3)
    assert at(document, "Good books") == "page 1, A"
    assert at(document, "The Wild Robot") == "page 3, C"


async def test_reads_pdf_of_500_pages_in_bounded_time() -> None:
    paper = pdf([f"Page {number}.\n" + "Some words of a page in a long report.\n" * 4 for number in range(1, 501)])
    began = time.monotonic()
    document = await read("long.pdf", paper)
    assert len(document.pages) == 500
    assert at(document, "Page 317.") == "page 317"
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(bytes=100), "bytes. The limit is 100"),
        (Limits(seconds=0.001), "takes more than 0.001 seconds"),
    ],
)
async def test_rejects_pdf_above_limits(limits: Limits, message: str) -> None:
    with pytest.raises(Refused, match=message):
        await read("large.pdf", pdf(["A page with some words on it."] * 4), limits=limits)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", "empty.txt is empty"),
        ("blank.md", b" \n\n\t", "has no text"),
        ("picture.txt", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4, "is not text"),
        ("program.txt", bytes(range(1, 32)) * 9, "is not text"),
        ("scripts.html", b"<script>alert(1)</script>", "has no text"),
        ("a.docx", b"PK\x03\x04", "not a supported kind"),
        ("broken.pdf", b"%PDF-1.7\nthis is no PDF at all", "damaged"),
        ("secret.pdf", encrypted(pdf(["Some words."]), "xyzzy"), "protected by a password"),
    ],
)
async def test_rejects_unreadable_file_with_reason(name: str, content: bytes, message: str) -> None:
    with pytest.raises(Refused, match=message):
        await read(name, content)


def test_pdf_subprocess_rejects_with_reason() -> None:
    four = pdf(["A page with some words on it."] * 4)
    assert "has 4 pages. The limit is 3" in isolated_process.read_pdf(four, 3, 10_000)["refused"]
    assert "has more than 50 characters" in isolated_process.read_pdf(four, 9, 50)["refused"]
    assert "its pages are images" in isolated_process.read_pdf(pdf([""]), 9, 50)["refused"]


async def test_rejects_other_file_named_pdf() -> None:
    with pytest.raises(Refused, match="is not a PDF"):
        await read("a.pdf", b"hello")


def test_chooses_kind_by_content_name_and_type() -> None:
    assert kind_of("upload", b"%PDF-1.4 ...") == "pdf"
    assert kind_of("notes.MD", b"x", "text/plain") == "markdown"
    assert kind_of("page", b"x", "text/html; charset=utf-8") == "html"


@pytest.mark.parametrize("markup", ["<a " * 60_000, '<a b="' * 60_000], ids=["tags", "attributes"])
async def test_stops_reading_slow_html(markup: str) -> None:
    started = time.monotonic()
    # Some Python versions parse these quickly and find no text.
    with pytest.raises(Refused, match=r"takes more than 1 seconds|has no text"):
        await read("a.html", markup.encode(), limits=Limits(seconds=1))
    assert time.monotonic() - started < 10


async def test_reads_many_line_ends_quickly() -> None:
    started = time.process_time()
    assert document_of("a<pre>" + "\n<p>" * 50_000 + "b").text.endswith("b")
    assert not headings_of("# a" + " " * 50_000 + "x#")[1:]
    assert time.process_time() - started < 3


@pytest.mark.parametrize("charset", ["undefined", "idna", "zlib_codec", "none-such"])
async def test_rejects_unknown_encoding(charset: str) -> None:
    with pytest.raises(Refused, match="is not text"):
        await read("a.html", f"<meta charset={charset}>".encode() + b"\xff")


async def test_closing_marks_of_a_heading_need_a_space() -> None:
    assert [heading.text for heading in headings_of("# C#\n# a # #\n## ##\n#no\n# b\t##  \n")] == ["C#", "a #", "b"]
