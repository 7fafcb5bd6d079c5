"""PDF files for tests, written byte by byte."""

import zlib
from collections.abc import Sequence
from io import BytesIO


def pdf(pages: Sequence[str], *, title: str = "", outline: Sequence[tuple[str, int]] = ()) -> bytes:
    """Return a PDF with these texts, one line each. The outline counts pages from 0."""
    count = len(pages)
    first_page, font = 4, 3
    objects: dict[int, bytes] = {font: b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"}
    kids = " ".join(f"{first_page + 2 * number} 0 R" for number in range(count))
    objects[2] = f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode()
    for number, text in enumerate(pages):
        at = first_page + 2 * number
        lines = " ".join(f"({_escaped(line)}) Tj T*" for line in text.split("\n"))
        stream = f"BT /F1 11 Tf 14 TL 50 760 Td {lines} ET".encode("latin-1")
        objects[at] = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {at + 1} 0 R "
            f"/Resources << /Font << /F1 {font} 0 R >> >> >>"
        ).encode()
        objects[at + 1] = b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream)
    last = first_page + 2 * count
    catalog = "<< /Type /Catalog /Pages 2 0 R"
    if outline:
        catalog += f" /Outlines {last} 0 R"
        items = range(last + 1, last + 1 + len(outline))
        objects[last] = (
            f"<< /Type /Outlines /First {items[0]} 0 R /Last {items[-1]} 0 R /Count {len(outline)} >>".encode()
        )
        for item, (name, page) in zip(items, outline, strict=True):
            after = f" /Next {item + 1} 0 R" if item != items[-1] else ""
            target = first_page + 2 * page
            objects[item] = (
                f"<< /Title ({_escaped(name)}) /Parent {last} 0 R /Dest [{target} 0 R /Fit]{after} >>".encode()
            )
        last = items[-1] + 1
    objects[1] = f"{catalog} >>".encode()
    objects[last] = f"<< /Title ({_escaped(title)}) >>".encode()
    return _file(objects, info=last)


def bomb(size: int) -> bytes:
    """Return a small PDF with one page of `size` bytes after decompression."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(b"(x) Tj " * 149_797) for _ in range(size // 2**20)) + packer.flush()
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << >> >>"
    objects = {
        1: b"<< /Type /Catalog /Pages 2 0 R >>",
        2: b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        3: page,
        4: b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (len(packed), packed),
        5: b"<< >>",
    }
    return _file(objects, info=5)


def encrypted(content: bytes, password: str) -> bytes:
    """Return a PDF with a password."""
    from pypdf import PdfWriter

    writer = PdfWriter(clone_from=BytesIO(content))
    writer.encrypt(password, algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


def _file(objects: dict[int, bytes], info: int) -> bytes:
    out = bytearray(b"%PDF-1.4\n")
    places: dict[int, int] = {}
    for number in sorted(objects):
        places[number] = len(out)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, objects[number])
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for number in sorted(objects):
        out += b"%010d 00000 n \n" % places[number]
    out += b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1,
        info,
        start,
    )
    return bytes(out)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
