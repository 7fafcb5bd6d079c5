"""The notebook of `serve --demo`: sources, chats and a PDF."""

import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from lockstitch.apps.notebooks import Notebooks, notebooks
from lockstitch.apps.notebooks.quote_provider import quote_reply
from lockstitch.engine.ports.provider import ModelRequest
from lockstitch.model import FakeClock, Json, Memory, Message, text_of
from lockstitch.model.message import blocks
from lockstitch.store import Store

_SIZE: Final = "/MediaBox [0 0 595 842]"


def paper(pages: Sequence[str]) -> bytes:
    """Return a PDF with one page per text."""
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


class Book(NamedTuple):
    """A book: its entry in the library list, why it suits a child of nine, and its summary."""

    title: str
    author: str
    listed: str
    reason: str
    summary: str


BOOKS: Final = (
    Book(
        "The Wild Robot",
        "Peter Brown",
        "BROWN, Peter: The Wild Robot. 80 short chapters, many under three pages; ages 8 to 11. First of three.\n"
        "Two copies, one on loan.",
        "Short chapters, shelved for ages 8 to 11.",
        "Roz wakes on an island with no idea why she is there. She learns from the animals, raises a gosling, and "
        "finds that being useful and being loved are not the same.",
    ),
    Book(
        "Front Desk",
        "Kelly Yang",
        "YANG, Kelly: Front Desk. A girl of ten minds the desk of a motel; ages 8 to 12.\nThree copies, all on loan.",
        "A ten-year-old runs the motel desk; asked for most often by parents.",
        "Mia greets the guests while her parents clean the rooms. She keeps a secret: behind the closed doors her "
        "parents let others stay who have nowhere to go.",
    ),
    Book(
        "The Penderwicks",
        "Jeanne Birdsall",
        "BIRDSALL, Jeanne: The Penderwicks. Four sisters, a dog and one summer; ages 8 to 12. One copy.",
        "Four sisters, one summer; a prize winner.",
        "Four sisters rent a cottage for the summer, and its garden belongs to a boy who is not allowed to be their "
        "friend.",
    ),
    Book(
        "Roller Girl",
        "Victoria Jamieson",
        "JAMIESON, Victoria: Roller Girl. Graphic novel, full colour; ages 9 to 12. Two copies.",
        "A graphic novel, good for a reluctant reader.",
        "Astrid goes to roller derby camp without her best friend and falls, often, until she does not.",
    ),
)

_SHELVES: Final = (
    (
        "A, picture books",
        (
            "WILLEMS, Mo: Knuffle Bunny. A toy is left behind at the laundry; ages 3 to 6. Two copies.",
            "KLASSEN, Jon: I Want My Hat Back. A bear asks everybody, politely; ages 4 to 8. One copy.",
            "CARLE, Eric: The Very Hungry Caterpillar. Holes in the pages; ages 2 to 5. Four copies, two worn.",
            "STEPTOE, Javaka: Radiant Child. A painter as a boy; ages 6 to 9. One copy.",
            "SENDAK, Maurice: Where the Wild Things Are. Supper is still hot; ages 4 to 8. Two copies.",
        ),
    ),
    (
        "B, first readers",
        (
            "LOBEL, Arnold: Frog and Toad Are Friends. Five stories, large print; ages 5 to 8. Three copies.",
            "ARNOLD, Tedd: Hi! Fly Guy. A boy and his fly, three chapters; ages 4 to 7. Two copies.",
            "DICAMILLO, Kate: Mercy Watson to the Rescue. A pig and much toast; ages 6 to 8. Two copies.",
            "RYLANT, Cynthia: Henry and Mudge. A boy and a very large dog; ages 5 to 7. One copy.",
            "BARROWS, Annie: Ivy and Bean. Two girls who did not want to be friends; ages 6 to 9. Two copies.",
        ),
    ),
    ("C, ages 8 to 11", tuple(book.listed for book in BOOKS)),
    (
        "D, ages 10 to 13",
        (
            "DICAMILLO, Kate: The Tale of Despereaux. A mouse with large ears; ages 9 to 12. Two copies.",
            "SACHAR, Louis: Holes. Boys dig in a lake that has dried up; ages 10 to 14. Three copies.",
            "KONIGSBURG, E. L.: From the Mixed-up Files. Two children live in a museum; ages 9 to 12. One copy.",
            "STEAD, Rebecca: When You Reach Me. Notes that know what will happen; ages 10 to 13. Two copies.",
            "APPLEGATE, Katherine: The One and Only Ivan. A gorilla paints; ages 9 to 12. One copy, on loan.",
        ),
    ),
    (
        "E, facts",
        (
            "MACAULAY, David: The Way Things Work. Levers, and mammoths that pull them; from 9 on. One copy.",
            "ATTENBOROUGH, David: Life on Earth. Much text, good pictures; from 11 on. Two copies.",
            "JENKINS, Steve: Actual Size. A squid's eye fills the page; from 5 on. One copy.",
            "ROCCO, John: How We Got to the Moon. Who did the sums and sewed the suits; from 10 on. One copy.",
        ),
    ),
)

_LIST: Final = "School library list 2026.pdf"
_KNOWN: Final = ("hello", "recommend", "aloud", "summar")
"""Words of the questions that have a scripted answer."""
_LOOK_UP: Final = "Look this up: "
_FIND: Final = "Find what each of the four books is about."


def sources() -> list[tuple[str, bytes]]:
    """Return the sources by name: a PDF, notes, an HTML page and a text file."""
    pages = [f"School library list 2026\n\nShelf {name}.\n\n" + "\n\n".join(value) for name, value in _SHELVES]
    notes = (
        "# Reading ages\n\nWhat is printed on the back is a guess; these are ours.\n\n## Eight to eleven\n\n"
        "Short chapters help more than short words. A child of nine who reads slowly finishes a book whose chapters "
        "end before the evening does.\n\n## Reluctant readers\n\n"
        "Graphic novels count. Pictures carry a reader over the hard page. Roller Girl has brought more of them back "
        "to the library than anything else.\n"
    )
    winners = (
        "<html><head><title>Prize winners</title></head><body><h1>Prize winners 2010 to 2025</h1><h2>Fiction</h2>"
        "<p>The Penderwicks, four sisters and one summer, has won the readers' prize twice.</p>"
        "<p>The Wild Robot: shortlisted, and the jury's favourite for reading aloud, for its short chapters.</p>"
        "<h2>Graphic novels</h2><p>Roller Girl won the year it came out.</p></body></html>"
    )
    letters = (
        "From Mrs Okafor: my daughter asks for Front Desk every week and it is always on loan.\n\n"
        "From Mr Lind: could you get more copies of Front Desk? It is the one that parents ask for most.\n\n"
        "From the Haddads: we read The Wild Robot aloud, a chapter a night, and nobody wanted it to end.\n"
    )
    return [
        (_LIST, paper(pages)),
        ("Reading ages, notes.md", notes.encode()),
        ("Prize winners 2010-2025.html", winners.encode()),
        ("Letters from parents.txt", letters.encode()),
    ]


def reply(request: ModelRequest) -> Any:
    """Return the reply of the team's model. The tools of the request show which member it answers for.

    For other notebooks, and for questions without a script, it quotes the sources, as notebooks without a model do. So
    users who try their own notebook get no answers about books that are not in it.
    """
    if request.purpose == "session_summary":
        return '{"summary": "The user asks for books from the list of the school library.", "topics": ["books"]}'
    if request.purpose is not None:
        return "[]"
    tools = {str(tool.get("name")) for tool in request.tools}
    text, results = _last_input(request.messages)
    if "delegate" in tools:
        known = _LIST in (request.system or "") and any(word in text.casefold() for word in _KNOWN)
        return _lead(text.casefold(), results) if known else quote_reply(request)
    if "search_sources" in tools:
        return _research(text, results) if text.startswith((_LOOK_UP, _FIND)) else quote_reply(request)
    return _write(text)


def _lead(text: str, results: Sequence[str]) -> Any:
    if "summar" in text:
        look = {"member": "Researcher", "task": _FIND}
        write = {"member": "Writer", "task": "Summarise each book in two sentences.", "final": True}
        return {"calls": [{"name": "delegate", "input": look}, {"name": "delegate", "input": write}]}
    if "hello" in text:
        return "Hello! Ask me anything about your four sources."
    if results:
        lines = [f"- **{book.title}**, {book.author}. {book.reason} {_cites(book, results[-1])}" for book in BOOKS]
        return "From your library list and the prize winners, four that fit age nine:\n\n" + "\n".join(lines)
    return {"calls": [{"name": "delegate", "input": {"member": "Researcher", "task": f"{_LOOK_UP}{text}"}}]}


def _research(text: str, results: Sequence[str]) -> Any:
    if not results:
        queries = ["books for age nine, short chapters", "prize winners", "what parents ask for most"]
        if "about" in text:
            queries.append("four sisters, a motel, an island, a camp")
        return {"calls": [{"name": "search_sources", "input": {"query": query}} for query in queries]}
    match = "\n\n".join(results)
    return "Found in the sources:\n\n" + "\n".join(
        f"- {book.title}: {book.reason} {_numbers(book, match)}" for book in BOOKS
    )


def _write(text: str) -> str:
    return "\n\n".join(f"**{book.title}.** {book.summary} {_cites(book, text)}".strip() for book in BOOKS)


def _numbers(book: Book, match: str) -> str:
    """Return the numbers of the found passages that name a book."""
    parts = re.split(r"^\[(\d+)\] ", match, flags=re.MULTILINE)[1:]
    named = [number for number, text in zip(parts[::2], parts[1::2], strict=True) if book.title in text]
    return "".join(f"[{number}]" for number in dict.fromkeys(named[:2]))


def _cites(book: Book, notes: str) -> str:
    """Return the citation numbers that the notes contain for a book."""
    match = re.search(rf"^- {re.escape(book.title)}: .*?((?:\[\d+\])+)$", notes, flags=re.MULTILINE)
    return match[1] if match else ""


def _last_input(messages: Sequence[Message]) -> tuple[str, list[str]]:
    """Return the last user text, with the answers of other members before it, and the tool results after it."""
    results: list[str] = []
    texts: list[str] = []
    for message in reversed(messages):
        values = [block for block in blocks(message) if block.get("type") == "tool_result"]
        if texts and (values or message.get("role") != "user"):
            break
        if values:
            results = [_result(block) for block in values] + results
        elif message.get("role") == "user":
            texts.insert(0, text_of(message))
    return "\n\n".join(texts), results


def _result(block: Json) -> str:
    content: Any = block.get("content")
    return content if isinstance(content, str) else text_of({"role": "user", "content": content or []})


USER: Final = "local"
"""The user of the demo, as pages without tokens name it."""

_CHATS: Final = (
    ("Read aloud at bedtime", timedelta(days=2), ("Which books are good to read aloud?",)),
    (
        "Books for a nine-year-old",
        timedelta(minutes=7),
        ("hello", "recommend books for a 9yo girl", "summarize each book"),
    ),
)
_MEMORIES: Final = ("Has a daughter of nine.", "Her daughter reads slowly and likes short chapters.")

Happens = Callable[[Notebooks, Store, FakeClock], Coroutine[Any, Any, None]]


def story(now: datetime) -> Iterator[tuple[datetime, Happens]]:
    """Yield the events of the notebook with their times."""
    yield now - timedelta(days=3), _make
    for title, ago, messages in _CHATS:
        yield now - ago, partial(_talk, title, messages)


async def _make(application: Notebooks, store: Store, clock: FakeClock) -> None:
    notebook = await notebooks.create(
        store,
        "Books",
        description="For children\N{RIGHT SINGLE QUOTATION MARK}s reading lists.",
        instructions="Recommend only books that we have. Name the shelf if the user asks where a book is.",
    )
    for name, content in sources():
        await application.add_source(store, notebook.number, name, content)
        clock.advance(20)
    for text in _MEMORIES:
        at = clock.now()
        await store.memories.put(Memory(project=store.project, user_id=USER, text=text, created_at=at, updated_at=at))
        clock.advance(20)


async def _talk(title: str, messages: Sequence[str], application: Notebooks, store: Store, clock: FakeClock) -> None:
    (notebook,) = await notebooks.listed(store, limit=1)
    session = None
    for message in messages:
        result = await application.run(store, notebook.number, message, session_id=session, user_id=USER)
        session = str(result.thread_id)
        clock.advance(40)
    if session is not None:
        await store.edit(session, title=title)
