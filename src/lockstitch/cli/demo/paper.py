"""Paper: a small PDF of plain text, so that the demonstration has a source with pages."""

from collections.abc import Sequence
from typing import Final

_SIZE: Final = "/MediaBox [0 0 595 842]"


def paper(pages: Sequence[str]) -> bytes:
    """A PDF with a page for each text, line by line, in letters that every reader knows."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids: list[int] = []
    for text in pages:
        drawn = "\n".join(f"({_escaped(line)}) Tj T*" for line in text.split("\n"))
        stream = f"BT /F1 11 Tf 15 TL 60 780 Td\n{drawn}\nET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        contents = len(objects)
        resources = "/Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R {_SIZE} {resources} /Contents {contents} 0 R >>")
        kids.append(len(objects))
    objects[1] = f"<< /Type /Pages /Count {len(kids)} /Kids [{' '.join(f'{kid} 0 R' for kid in kids)}] >>"
    return _file(objects)


def _escaped(line: str) -> str:
    return line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _file(objects: Sequence[str]) -> bytes:
    body = b"%PDF-1.4\n"
    places: list[int] = []
    for number, content in enumerate(objects, start=1):
        places.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n".encode("latin-1")
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return body + end.encode() + trailer.encode()
