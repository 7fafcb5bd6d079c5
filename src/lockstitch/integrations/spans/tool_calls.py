"""`ToolCallIndex`: the tool calls of a trace with their requests and results.

A request is in a model's response. Its result is in a separate tool span, or in a message that mentions it, or in both.
One row contains all of it. Requests and results are matched by the call id, but not by that alone: servers reuse ids
("call_0" in every response), so a result answers the last request before it. `matching` decides which span answers
which request, among all stored and new ones.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from lockstitch.integrations.spans.rows import (
    MirrorIds,
    SpanRow,
    at_of,
    new_row,
    part,
    removed,
    start_time,
    stored_span_data,
)
from lockstitch.integrations.spans.span import NewSpan, Result, SpanData, SpanFacts
from lockstitch.integrations.spans.tool_matches import (
    NAMELESS,
    Parents,
    Request,
    Span,
    SpanTree,
    deal,
    is_guessed,
    match,
    name_of,
    requested_calls,
    stated_call_id,
    without_call,
)
from lockstitch.model import Json, Run, Stitch, format_time, parse_time, tool_result


class MentionedResult(NamedTuple):
    """Results that the messages of one span mention, and the start time of the span."""

    at: datetime
    span_id: str
    results: Sequence[Result]


class ToolCallIndex:
    """The tool calls of one trace that the new spans affect."""

    def __init__(
        self,
        names: MirrorIds,
        run: Run,
        now: datetime,
        stitches: Sequence[Stitch],
        callback: Callable[[SpanData], SpanFacts],
        recompute: Collection[str],
        relinked: Collection[str],
        tree: SpanTree,
    ) -> None:
        self._names = names
        self._run = run
        self._now = now
        self._facts = callback
        self._recompute = recompute
        self._requests: dict[str, list[Request]] = defaultdict(list)
        self._spans: dict[str, list[Span]] = defaultdict(list)
        self._responses = tree.responses
        self._parents = dict(tree.parents)
        self._arrived: Sequence[NewSpan] = ()
        """All spans with new data, until their parents are among the known ones."""
        self._touched = set(relinked)
        self._guessed: set[str] = set()
        """Names of new spans without a call id."""
        self._facts_by_span: dict[str, SpanFacts] = {}
        self._mentions: list[MentionedResult] = []
        self._placed: dict[tuple[int, int], Request] = {}
        self._unused_rows: dict[str, list[Stitch]] = defaultdict(list)
        """Rows of requests that no response makes any longer."""
        self._orphans: dict[str, Stitch] = {}
        """Rows of mentioned results without a known request."""
        for stitch in stitches:
            self._know(stitch)

    def _know(self, stitch: Stitch) -> None:
        call_id = stitch.call_id or ""
        request = None
        if stitch.reply_to is not None:
            index, asked_at = stitch.call_index or 0, str(stitch.data.get("asked_at") or format_time(at_of(stitch)))
            order = (parse_time(asked_at), "")
            name = str(stitch.data.get("asked_name") or stitch.name or "")
            under = str(stitch.data.get("asked_under") or "")
            near = self._responses.get(stitch.reply_to) or (UUID(under) if under else None)
            request = Request(stitch.reply_to, index, call_id, name, asked_at, order, stitch, None, under, near)
            self._requests[call_id].append(request)
            self._placed[stitch.reply_to, index] = request
        if "id" in stitch.data:
            piece: Any = stitch.data
            span_name = stitch.name if is_guessed(stitch) else None
            span = Span(piece, at_of(stitch), stitch, call_id, span_name, request, stitch.parent_id)
            self._spans[call_id].append(span)
            if request is not None:
                request.span = span
        elif request is None:
            self._orphans[call_id] = stitch

    def ask(self, response: SpanRow) -> None:
        """Add the requests of a new or changed response."""
        under = str(response.values["parent_id"])
        self._parents[response.id] = response.values["parent_id"]
        for index, (call_id, name) in enumerate(requested_calls(response.values["message"], response.id)):
            self._touched.add(call_id)
            asked_at, order = format_time(response.at), (*response.order, index)
            request = self._placed.get((response.position or 0, index))
            if request is not None and request.call_id == call_id:
                request.response, request.name, request.requested_at = response, name, asked_at
                request.asked_under, request.parent_id = under, response.id
                continue
            if request is not None:
                self._drop(request)
            request = Request(response, index, call_id, name, asked_at, order, None, None, under, response.id)
            self._requests[call_id].append(request)

    def remove_request(self, response: Stitch) -> None:
        """Drop the requests of a response that is now a duplicate of another model call."""
        for request in [request for requests in self._requests.values() for request in requests]:
            if request.response == response.position:
                self._drop(request)

    def _drop(self, request: Request) -> None:
        self._requests[request.call_id].remove(request)
        self._touched.add(request.call_id)
        if request.span is not None:
            request.span.request = None
        if (row := request.own_row) is not None:
            self._unused_rows[request.call_id].append(row)

    def run_span(self, new_span: NewSpan, old: Stitch | None) -> None:
        """Add a new or changed tool span."""
        span, facts = new_span.data, new_span.facts
        call_id, name = stated_call_id(facts), None
        if call_id is None:
            call_id, name = without_call(span), name_of(span, facts)
            self._guessed.add(name)
        self._touched.add(call_id)
        self._facts_by_span[span["id"]] = facts
        if old is not None and old.type == "tool_call":
            self._forget(old)
        self._spans[call_id].append(Span(span, new_span.at, old, call_id, name, None, new_span.parent_id))

    def _parent_of(self, span: SpanData) -> UUID:
        parent = span.get("parent_id")
        return self._names.span(parent) if parent else self._run.id

    def _all_parents(self) -> Parents:
        """Return the parents of all known rows."""
        self._parents.update((new_span.row_id, new_span.parent_id) for new_span in self._arrived)
        self._arrived = ()
        return self._parents

    def _forget(self, old: Stitch) -> None:
        """Remove the stored version of a span, because new data of it arrived."""
        call_id = old.call_id or ""
        self._touched.add(call_id)
        for span in [span for span in self._spans[call_id] if span.row is not None and span.row.id == old.id]:
            self._spans[call_id].remove(span)
            if span.request is not None:
                span.request.span = None

    def mention(self, mention: MentionedResult) -> None:
        """Add the results that the messages of a span mention."""
        if mention.results:
            self._mentions.append(mention)
            self._touched.update(call_id for result in mention.results if (call_id := part(result.call_id)))

    def rows(self, arrived: Sequence[NewSpan], remembered: Iterable[MentionedResult] = ()) -> list[SpanRow]:
        """Return the rows of all affected calls.

        `arrived` are all spans with new data. `remembered` are mentions in stored messages. They matter for calls that
        are computed again.
        """
        self._arrived = arrived
        for call_id in self._touched:
            spans = [span for span in self._spans.get(call_id, ()) if not span.name]
            match(self._requests.get(call_id, ()), spans, self._all_parents)
        self._guess()
        rows = {call_id: self._call_rows(call_id) for call_id in sorted(self._touched)}
        for at, span_id, results in remembered:
            news = [result for result in results if part(result.call_id) in self._touched]
            self._mentions.append(MentionedResult(at, span_id, news))
        for mention in sorted(self._mentions, key=lambda mention: mention[:2]):
            self._fill(rows, mention.at, mention.results)
        return [row for span_rows in rows.values() for row in span_rows] + self._removed_rows()

    def _guess(self) -> None:
        """Match the spans without a call id to the remaining requests with their names."""
        names = set(self._guessed)
        for call_id in self._touched:
            names.update(request.name for request in self._requests.get(call_id, ()))
            names.update(span.name for span in self._spans.get(call_id, ()) if span.name)
        spans: dict[str, list[Span]] = defaultdict(list)
        for span in [span for spans in self._spans.values() for span in spans]:
            if span.name in names:
                spans[span.name].append(span)
        if not spans:
            return
        free: dict[str, list[Request]] = defaultdict(list)
        for request in [request for requests in self._requests.values() for request in requests]:
            if request.name in spans and (request.span is None or request.span.name):
                free[request.name].append(request)
        for name, matches in spans.items():
            for span in deal(free[name], matches, self._all_parents):
                self._move(span)

    def _move(self, span: Span) -> None:
        """Move a span to the call that it now matches."""
        call_id = span.request.call_id if span.request is not None else without_call(span.data)
        self._spans[span.call_id].remove(span)
        self._spans[call_id].append(span)
        self._touched |= {span.call_id, call_id}
        span.call_id = call_id
        if span.data["id"] not in self._facts_by_span:
            self._facts_by_span[span.data["id"]] = self._facts(stored_span_data(span.data))

    def _call_rows(self, call_id: str) -> list[SpanRow]:
        requests = sorted(self._requests.get(call_id, ()), key=lambda request: request.turn)
        spans = sorted(self._spans.get(call_id, ()), key=lambda span: span.turn)
        self._inherit(call_id, [*requests, *spans])
        rows: list[SpanRow] = []
        remaining: set[int] = set()
        for span in spans:
            row = self._span_row(call_id, span)
            remaining.add(row.position or 0)
            rows.append(row)
        for request in requests:
            old = request.own_row
            if request.span is None:
                rows.append(self._request_row(call_id, request, old))
            elif old is not None and old.position not in remaining:
                self._unused_rows[call_id].append(old)
        return rows

    def _inherit(self, call_id: str, heirs: Sequence[Request | Span]) -> None:
        """Assign the rows that lost their request or span to requests and spans of the same call without a row."""
        free = self._unused_rows.pop(call_id, [])
        if call_id in self._orphans:
            free.append(self._orphans[call_id])
        for heir in heirs:
            if heir.row is None and free:
                heir.row = free.pop()
                if self._orphans.get(call_id) is heir.row:
                    del self._orphans[call_id]
        self._unused_rows[call_id] = [row for row in free if row is not self._orphans.get(call_id)]

    def _removed_rows(self) -> list[SpanRow]:
        return [SpanRow(removed(old), (), old) for left in self._unused_rows.values() for old in left]

    def _span_row(self, call_id: str, span: Span) -> SpanRow:
        piece, request = stored_span_data(span.data), span.request
        before = request.own_row if request is not None else None
        parent_id = self._parent_of(piece)
        row_id, at = self._names.span(piece["id"]), start_time(piece, self._now)
        row = new_row(piece, row_id, self._run, parent_id, span.row or before, at)
        facts = self._facts_by_span.get(piece["id"])
        if facts is None and call_id in self._recompute:
            facts = self._facts(piece)
        values, data = row.values, row.values["data"]
        values["type"], values["call_id"] = "tool_call", call_id
        if facts is None:
            # The span itself has no new data. Only its request may have changed.
            stitch = span.row
            assert stitch is not None
            values["name"], values["message"], values["status"] = stitch.name, stitch.message, stitch.status
            args = stitch.data.get("args")
        else:
            call = facts.call
            args = call.args if call else None
            values["name"] = (part(call.name) if call else None) or values["name"] or NAMELESS
            values["message"], values["status"] = _result(call_id, facts.result, piece, values["status"])
        for value in (span.row, before):
            # Messages about another call, which the span matched before, do not apply.
            if value is not None and value.call_id == call_id and call_id not in self._recompute:
                _keep_mentioned_result(row, value, piece)
        if span.name:
            data["by_name"] = True
        if request is not None:
            _set_request(row, request)
            data["asked_at"], data["asked_under"] = request.requested_at, request.asked_under
            if request.name != values["name"]:
                data["asked_name"] = request.name
        if isinstance(args, dict) and args != piece.get("inputs"):
            # Arguments in another format are stored in addition, as parsed JSON.
            data["args"] = args
        return row

    def _request_row(self, call_id: str, request: Request, old: Stitch | None) -> SpanRow:
        response = request.response
        if isinstance(response, SpanRow):
            owner, row_id = response.id, self._names.span(f"{response.id}", f"/{request.index}")
        elif old is not None:
            owner, row_id = old.parent_id or self._run.id, old.id
        else:
            owner, row_id = self._run.id, self._names.span(f"{self._run.id}", f"/{response}/{request.index}")
        row = new_row({}, row_id, self._run, owner, old, parse_time(request.requested_at))
        row.values |= {"type": "tool_call", "call_id": call_id, "name": request.name, "status": None}
        row.values["data"] = {"asked_at": request.requested_at, "asked_under": request.asked_under}
        row.order = request.order
        if old is not None and call_id not in self._recompute:
            _keep_mentioned_result(row, old, {})
        _set_request(row, request)
        return row

    def _fill(self, rows: dict[str, list[SpanRow]], at: datetime, results: Sequence[Result]) -> None:
        """Assign mentioned results to their requests. Per id, the last results go to the last requests."""
        by_id: dict[str, list[Result]] = defaultdict(list)
        for result in results:
            if call_id := part(result.call_id):
                by_id[call_id].append(result)
        for call_id, mentioned in by_id.items():
            span_rows = [row for row in rows.get(call_id, ()) if row.values["type"] == "tool_call" and _before(row, at)]
            span_rows.sort(key=lambda row: str(row.values["data"].get("asked_at") or format_time(row.at)))
            for row, result in zip(reversed(span_rows), reversed(mentioned), strict=False):
                _mentioned(row, call_id, result, at)
            if not rows.get(call_id) and not mentioned[-1].requested:
                rows[call_id] = [self._orphan(call_id, at, mentioned[-1])]

    def _orphan(self, call_id: str, at: datetime, result: Result) -> SpanRow:
        """Return the row of a mentioned result without a known request."""
        row_id = self._names.span(f"{self._run.id}", f"/result/{call_id}")
        row = new_row({}, row_id, self._run, self._run.id, self._orphans.get(call_id), at)
        row.values |= {"type": "tool_call", "call_id": call_id, "name": part(result.name) or NAMELESS}
        row.order = (at, "", call_id)
        _mentioned(row, call_id, result, at)
        return row


def _keep_mentioned_result(row: SpanRow, stitch: Stitch, piece: Mapping[str, Any]) -> None:
    """Keep the result that messages mention: the old row has it, and the messages may not arrive again."""
    values = row.values
    value, at = stitch.message, stitch.data.get("told_at")
    if value is not None and values["message"] is None:
        values["message"], values["status"] = value, values["status"] or stitch.status
    elif value is not None and _only_raised(values["message"], piece):
        values["message"] = value
    if at is not None and values["message"] == value:
        values["data"]["told_at"] = at
    if stitch.data.get("failed"):
        _fail(row)


def _set_request(row: SpanRow, request: Request) -> None:
    """Set the request that a row answers."""
    row.values["call_index"] = request.index
    if isinstance(request.response, SpanRow):
        row.requested_by = request.response
    else:
        row.values["reply_to"] = request.response


def _result(call_id: str, result: Result | None, span: SpanData, status: str | None) -> tuple[Json | None, str | None]:
    """Return the result of a tool span as a block, and the status."""
    failed = bool(status == "error" or (result is not None and result.failed))
    if result is None and not failed:
        return None, status
    content = result.content if result is not None and result.content not in (None, "") else span.get("error", "")
    return tool_result(call_id, content, is_error=failed), "error" if failed else "ok"


def _mentioned(row: SpanRow, call_id: str, result: Result, at: datetime) -> None:
    """Set a mentioned result. The earliest mention wins, because later ones may be shortened."""
    values, data, told_at = row.values, row.values["data"], format_time(at)
    earlier = told_at < str(data.get("told_at") or "")
    if values["message"] is None or earlier or _only_raised(values["message"], data):
        values["message"] = tool_result(call_id, result.content, is_error=bool(result.failed or data.get("failed")))
        values["status"] = "error" if result.failed or data.get("failed") else "ok"
        data["told_at"] = told_at
    if result.failed:
        row.values["data"]["failed"] = True
        _fail(row)


def _only_raised(message: Json | None, piece: Mapping[str, Any]) -> bool:
    """True if the only known result is the error that the tool raised, not the text that the model received."""
    return message is not None and bool(piece.get("error")) and message.get("content") == piece.get("error")


def _fail(row: SpanRow) -> None:
    """Mark a row as failed. If the caller of the tool handled the failure, only the message shows it."""
    row.values["status"] = "error"
    row.values["data"]["failed"] = True
    if row.values["message"] is not None:
        row.values["message"] = {**row.values["message"], "is_error": True}


def _before(row: SpanRow, at: datetime) -> bool:
    return str(row.values["data"].get("asked_at") or "") <= format_time(at)
