"""Calls and results: which answer belongs to which request.

A request stands in a model's response, its result in a span of the tool's own, or in a message that mentions it, or in
all of them; one row carries what is known. They are joined by the call's id, but never by that alone: servers reuse ids
("call_0" in every response), so of several requests a result answers the last one before it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from lockstitch.bridges.rows import Names, Row, at_of, begun, new_row, part, piece_of, removed
from lockstitch.bridges.span import Meaning, Piece, Result
from lockstitch.records import Json, Run, Stitch, format_time, parse_time, tool_result, tool_uses

_NAMELESS: Final = "tool"


@dataclass(slots=True, eq=False)
class _Request:
    """A call that a response asks for."""

    response: Row | int
    """The response, or its place where only that is known."""
    index: int
    name: str
    asked_at: str
    order: tuple[Any, ...]
    row: Stitch | None = None
    span: "_Span | None" = None


@dataclass(slots=True, eq=False)
class _Span:
    """A call that a span of its own tells of."""

    piece: Piece
    at: datetime
    row: Stitch | None
    request: _Request | None = None
    given: Row | None = None


class Calls:
    """The tool calls of one trace that what arrived is about."""

    def __init__(self, names: Names, run: Run, now: datetime, known: Sequence[Stitch]) -> None:
        self._names = names
        self._run = run
        self._now = now
        self._requests: dict[str, list[_Request]] = defaultdict(list)
        self._spans: dict[str, list[_Span]] = defaultdict(list)
        self._touched: set[str] = set()
        self._meanings: dict[str, Meaning] = {}
        self._mentions: list[tuple[datetime, Sequence[Result]]] = []
        self._placed: dict[tuple[int, int], _Request] = {}
        self._orphans: dict[str, Stitch] = {}
        """Results that were mentioned, of calls that nobody was known to have asked for."""
        for stitch in known:
            self._know(stitch)

    def _know(self, stitch: Stitch) -> None:
        call_id = stitch.call_id or ""
        request = None
        if stitch.reply_to is not None:
            asked_at = str(stitch.data.get("asked_at") or format_time(at_of(stitch)))
            request = _Request(
                stitch.reply_to, stitch.call_index or 0, stitch.name or "", asked_at, (parse_time(asked_at), ""), stitch
            )
            self._requests[call_id].append(request)
            self._placed[stitch.reply_to, stitch.call_index or 0] = request
        if "id" in stitch.data:
            piece: Any = stitch.data
            self._spans[call_id].append(_Span(piece, at_of(stitch), stitch, request))
        elif request is None:
            self._orphans[call_id] = stitch

    def ask(self, response: Row) -> None:
        """A response arrived, or more of it: note what it asks for."""
        for index, block in enumerate(tool_uses(response.values["message"])):
            call_id = part(str(block.get("id") or "")) or f"{response.id}/{index}"
            self._touched.add(call_id)
            known = self._placed.get((response.position or 0, index))
            if known is not None:
                known.response = response
                continue
            asked_at = format_time(response.at)
            order = (*response.order, index)
            name = part(str(block.get("name") or "")) or _NAMELESS
            self._requests[call_id].append(_Request(response, index, name, asked_at, order))

    def run_span(self, piece: Piece, meaning: Meaning, old: Stitch | None) -> None:
        """A tool's own span arrived, or more of it."""
        at = begun(piece, self._now)
        known = old.call_id if old is not None and old.type == "tool_call" else None
        given = part(meaning.call.id) if meaning.call else None
        nameless = _without_call(piece)
        if known == nameless:
            known = None
        call_id = given or known or self._call_without_id(piece, meaning, at) or nameless
        self._touched.add(call_id)
        self._meanings[piece["id"]] = meaning
        for spans in self._spans.values():
            # Once it is known which call it is, it stands with that call.
            spans[:] = [span for span in spans if old is None or span.row is None or span.row.id != old.id]
        self._spans[call_id].append(_Span(piece, at, old))

    def mention(self, at: datetime, results: Sequence[Result]) -> None:
        """Messages of a span mention results."""
        if results:
            self._mentions.append((at, results))
            self._touched.update(call_id for result in results if (call_id := part(result.call_id)))

    def remember(self, at: datetime, results: Sequence[Result]) -> None:
        """Messages that came before mention results: news for calls that are asked for only now."""
        news = [result for result in results if part(result.call_id) in self._touched]
        if news:
            self._mentions.append((at, news))

    def rows(self) -> list[Row]:
        """What stands, after all this, for every call that it was about."""
        rows: dict[str, list[Row]] = {}
        for call_id in sorted(self._touched):
            rows[call_id] = self._settle(call_id)
        for at, results in sorted(self._mentions, key=lambda mention: mention[0]):
            self._fill(rows, at, results)
        return [row for found in rows.values() for row in found]

    def _call_without_id(self, piece: Piece, meaning: Meaning, at: datetime) -> str | None:
        """The id of the call that a nameless span most likely is: asked for under its name, and not answered yet."""
        name = part((meaning.call.name if meaning.call else None) or piece.get("name") or "")
        open_ = [
            (request, call_id)
            for call_id, requests in self._requests.items()
            for request in requests
            if request.name == name and request.asked_at <= format_time(at) and not self._answered(call_id, request)
        ]
        return max(open_, key=lambda found: found[0].order, default=(None, None))[1]

    def _answered(self, call_id: str, request: _Request) -> bool:
        return any(span.request is request or span.request is None for span in self._spans.get(call_id, ()))

    def _settle(self, call_id: str) -> list[Row]:
        requests = sorted(self._requests.get(call_id, ()), key=lambda request: request.order)
        spans = sorted(self._spans.get(call_id, ()), key=lambda span: (span.at, span.piece["id"]))
        _match(requests, spans)
        orphan = self._orphans.get(call_id)
        heir = next((one for one in (*requests, *spans) if one.row is None), None)
        if orphan is not None and heir is not None:
            heir.row = self._orphans.pop(call_id)
        rows: list[Row] = []
        kept: set[int] = set()
        for span in spans:
            old = span.row
            if old is None and span.request is not None and span.request.row is not None:
                taken = span.request.row
                old = None if "id" in taken.data else taken
            row = self._span_row(call_id, span, old)
            kept.add(row.position or 0)
            rows.append(row)
        for request in requests:
            old = request.row
            if request.span is None:
                free = old if old is not None and old.position not in kept else None
                rows.append(self._request_row(call_id, request, free))
            elif old is not None and old.position not in kept:
                rows.append(Row(removed(old), (), old))
        return rows

    def _span_row(self, call_id: str, span: _Span, old: Stitch | None) -> Row:
        piece, request = piece_of(span.piece), span.request
        parent = piece.get("parent_id")
        parent_id = self._names.span(parent) if parent else self._run.id
        row = new_row(piece, self._names.span(piece["id"]), self._run, parent_id, old, self._now)
        meaning = self._meanings.get(piece["id"])
        values, data = row.values, row.values["data"]
        values["type"], values["call_id"] = "tool_call", call_id
        said_failed = bool(span.row is not None and span.row.data.get("failed"))
        if meaning is None:
            # Nothing new about the span itself: only whom it answers may have changed.
            known = span.row
            assert known is not None
            values["name"], values["message"], values["status"] = known.name, known.message, known.status
            args = known.data.get("args")
        else:
            call = meaning.call
            args = call.args if call else None
            values["name"] = (part(call.name) if call else None) or values["name"] or _NAMELESS
            values["message"], values["status"] = _result(call_id, meaning.result, piece, values["status"])
        if said_failed:
            _fail(row)
        if old is not None and old.message is not None and _only_raised(values["message"], piece):
            values["message"] = old.message
        if values["message"] is None and old is not None and old.message is not None:
            values["message"], values["status"] = old.message, values["status"] or old.status
        if request is not None:
            _asked(row, request)
            data["asked_at"] = request.asked_at
        if isinstance(args, dict) and args != piece.get("inputs"):
            # What was given as a text of another language stands beside it, understood.
            data["args"] = args
        return row

    def _request_row(self, call_id: str, request: _Request, old: Stitch | None) -> Row:
        response = request.response
        owner = response.id if isinstance(response, Row) else (old.parent_id if old else None)
        if old is not None and "id" not in old.data:
            values = dict(old.__dict__)
            values["data"] = dict(old.data)
            values |= {"name": request.name, "at": parse_time(request.asked_at)}
            values["data"]["asked_at"] = request.asked_at
            row = Row(values, request.order, old)
        else:
            row_id = self._names.span(f"{owner or response}", f"/{request.index}")
            row = new_row({}, row_id, self._run, owner or self._run.id, None, self._now)
            row.values |= {"type": "tool_call", "call_id": call_id, "name": request.name, "status": None}
            row.values["at"] = parse_time(request.asked_at)
            row.values["data"] = {"asked_at": request.asked_at}
            row.order = request.order
        _asked(row, request)
        return row

    def _fill(self, rows: dict[str, list[Row]], at: datetime, results: Sequence[Result]) -> None:
        """Give mentioned results to the requests that they answer: of each id the last ones to the last ones."""
        by_id: dict[str, list[Result]] = defaultdict(list)
        for result in results:
            if call_id := part(result.call_id):
                by_id[call_id].append(result)
        for call_id, mentioned in by_id.items():
            asked = [row for row in rows.get(call_id, ()) if row.values["type"] == "tool_call" and _before(row, at)]
            asked.sort(key=lambda row: str(row.values["data"].get("asked_at") or format_time(row.at)))
            for row, result in zip(reversed(asked), reversed(mentioned), strict=False):
                _mentioned(row, call_id, result)
            if not rows.get(call_id) and not mentioned[-1].asked:
                rows[call_id] = [self._orphan(call_id, at, mentioned[-1])]

    def _orphan(self, call_id: str, at: datetime, result: Result) -> Row:
        """A result of a call that nobody is known to have asked for."""
        row_id = self._names.span(f"{self._run.id}", f"/result/{call_id}")
        row = new_row({}, row_id, self._run, self._run.id, self._orphans.get(call_id), self._now)
        row.values |= {"type": "tool_call", "call_id": call_id, "name": part(result.name) or _NAMELESS, "at": at}
        row.order = (at, "", call_id)
        _mentioned(row, call_id, result)
        return row


def _without_call(piece: Piece) -> str:
    """What stands for the id of a call, where a span does not know which call it is."""
    return part(f"span-{piece['id']}") or ""


def _match(requests: Sequence[_Request], spans: Sequence[_Span]) -> None:
    """Join each span with the last free request before it, or, where clocks differ, with the first free one."""
    for request in requests:
        request.span = None
    for span in spans:
        span.request = None
    for span in spans:
        free = [request for request in requests if request.span is None]
        if not free:
            continue
        before = [request for request in free if request.asked_at <= format_time(span.at)]
        chosen = before[-1] if before else free[0]
        chosen.span, span.request = span, chosen


def _asked(row: Row, request: _Request) -> None:
    """Say in a row whom it answers."""
    row.values["call_index"] = request.index
    if isinstance(request.response, Row):
        row.asker = request.response
    else:
        row.values["reply_to"] = request.response


def _result(call_id: str, result: Result | None, piece: Piece, status: str | None) -> tuple[Json | None, str | None]:
    """What a tool's own span says came out, as the block that answers the call."""
    failed = bool(status == "error" or (result is not None and result.failed))
    if result is None and not failed:
        return None, status
    content = result.content if result is not None and result.content not in (None, "") else piece.get("error", "")
    return tool_result(call_id, content, is_error=failed), "error" if failed else "ok"


def _mentioned(row: Row, call_id: str, result: Result) -> None:
    if row.values["message"] is None or _only_raised(row.values["message"], row.values["data"]):
        row.values["message"] = tool_result(call_id, result.content, is_error=bool(result.failed))
        row.values["status"] = "error" if result.failed else "ok"
    if result.failed:
        row.values["data"]["failed"] = True
        _fail(row)


def _only_raised(message: Json | None, piece: Mapping[str, Any]) -> bool:
    """Whether all that is known of a result is what the tool raised, and not what the model was told of it."""
    return message is not None and bool(piece.get("error")) and message.get("content") == piece.get("error")


def _fail(row: Row) -> None:
    """A failure that the tool's caller handled shows only in the message; the span itself ended well."""
    row.values["status"] = "error"
    row.values["data"]["failed"] = True
    if row.values["message"] is not None:
        row.values["message"] = {**row.values["message"], "is_error": True}


def _before(row: Row, at: datetime) -> bool:
    return str(row.values["data"].get("asked_at") or "") <= format_time(at)
