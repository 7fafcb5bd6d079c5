"""`StoreLookup`: read the stored data of a trace that new spans can affect.

Some results depend on several spans. So the lookup reads every row that may change: rows that started with or after the
first new span, and rows with the ids or names of its calls. If a trace arrives in order, these are few.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from lockstitch.integrations.spans.rows import MirrorIds, at_of, part, start_time, stored_span_data
from lockstitch.integrations.spans.span import NewSpan, SpanFacts, TraceSource
from lockstitch.integrations.spans.tool_calls import MentionedResult
from lockstitch.integrations.spans.tool_matches import (
    SpanTree,
    is_guessed,
    name_of,
    requested_at,
    requested_calls,
    stated_call_id,
    without_call,
)
from lockstitch.integrations.spans.trace import StoredTrace
from lockstitch.model import Stitch
from lockstitch.store.writes.mirrors import MirrorStore


class StoreLookup:
    """Reads stored traces of one source and project."""

    def __init__(self, mirrors: MirrorStore, trace_source: TraceSource, names: MirrorIds) -> None:
        self._mirrors = mirrors
        self._source = trace_source
        self._names = names

    async def load(self, stored_trace: StoredTrace, changed: Sequence[NewSpan], now: datetime) -> None:
        """Read the stored data that these spans can affect into `known`."""
        run_id = stored_trace.run.id
        call_ids: set[str] = set()
        guessed: set[str] = set()
        requested: set[str] = set()
        renewed: Counter[str] = Counter()
        starts: list[datetime] = []
        relinked: list[datetime] = []
        asked: set[tuple[str, UUID | int, int]] = set()
        ran: set[tuple[str, UUID]] = set()
        for new_span in changed:
            span, facts = new_span.data, new_span.facts
            row_id = self._names.span(span["id"])
            old = stored_trace.rows.get(row_id)
            parent = span.get("parent_id")
            if (old.parent_id if old else run_id) != (self._names.span(parent) if parent else run_id):
                relinked.append(start_time(span, now))
            starts += [at_of(old)] if old is not None and old.type != "span" else []
            mentioned = {call_id for result in facts.results if (call_id := part(result.call_id))}
            call_ids |= mentioned
            if mentioned and old is not None and at_of(old) != start_time(span, now):
                # The start time of the span changed, so it mentions the results of other requests.
                starts += [at_of(old), start_time(span, now)]
                renewed.update(mentioned)
            if facts.role == "llm":
                starts.append(start_time(span, now))
                responses = [row_id, *further(self._names, span["id"], facts)]
                for response_id, generation in zip(responses, facts.generations, strict=False):
                    for index, (call_id, name) in enumerate(requested_calls(generation.message, response_id)):
                        asked.add((call_id, response_id, index))
                        renewed[call_id] += 1
                        requested.add(name)
            elif facts.role == "tool":
                starts.append(start_time(span, now))
                call_id = stated_call_id(facts) or without_call(span)
                ran.add((call_id, row_id))
                renewed.update({call_id, (old.call_id if old else None) or ""})
                if stated_call_id(facts) is None:
                    guessed |= {name_of(span, facts), (old.name if old else None) or ""}
        answers = [
            row_id for new_span in changed for row_id in further(self._names, new_span.data["id"], new_span.facts)
        ]
        stored_trace.rows |= await self._mirrors.stitches(answers)
        if relinked:
            tools = await self._relinked(run_id, min(relinked))
            stored_trace.relinked = frozenset(tool.call_id or "" for tool in tools)
            renewed.update(dict.fromkeys(stored_trace.relinked, 0))
            guessed |= {tool.name or "" for tool in tools if is_guessed(tool) or "id" not in tool.data}
            starts += [requested_at(tool) for tool in tools]
        since = min(starts, default=None)
        call_ids |= renewed.keys()
        stored_trace.tools = await self._tools(run_id, call_ids, guessed, since)
        if since is None:
            return
        if requested - guessed:
            # Requests that spans release for the new spans are free for other spans too.
            left = [
                requested_at(tool) for tool in stored_trace.tools if at_of(tool) >= since and tool.call_id in renewed
            ]
            later = await self._mirrors.tools_since(run_id, min([since, *left]), requested - guessed)
            if new_names := {tool.name or "" for tool in later if is_guessed(tool)} - guessed:
                guessed |= new_names
                stored_trace.tools = await self._tools(run_id, call_ids, guessed, since)
        if guessed or _has_choice(stored_trace, asked, ran):
            stored_trace.tree = await self._tree(run_id)
        await self._remember(stored_trace, changed, renewed, since)

    async def _relinked(self, run_id: UUID, since: datetime) -> list[Stitch]:
        """Return the tool calls that can match another request if a span since this time has a new ancestor.

        A span and its request with the same parent stay together. Other calls matter only if there is a choice.
        """
        tools = [tool for tool in await self._mirrors.tools_since(run_id, since) if not _is_near(tool)]
        if not tools:
            return []
        names = {tool.name or "" for tool in tools if is_guessed(tool) or "id" not in tool.data}
        others = await self._mirrors.tool_calls(run_id, {tool.call_id or "" for tool in tools}, names)
        of_id = Counter(tool.call_id for tool in others)
        of_name = Counter(tool.name for tool in others)
        guessed = {tool.name for tool in others if is_guessed(tool)}
        return [
            tool
            for tool in tools
            if of_id[tool.call_id] > 1 or (tool.name in guessed & names and of_name[tool.name] > 1)
        ]

    async def _tree(self, run_id: UUID) -> SpanTree:
        rows = await self._mirrors.outline(run_id)
        parents = {row.id: row.parent_id for row in rows if row.parent_id is not None}
        return SpanTree(parents, {row.position: row.id for row in rows if row.type == "llm_call"})

    async def _tools(self, run_id: UUID, call_ids: set[str], names: set[str], since: datetime | None) -> list[Stitch]:
        """Return the tool calls with these ids and names, and all calls that new spans since a time can match.

        A span without a call id can match any call with its name, and a mentioned result any call with its id.
        """
        while True:
            tools = await self._mirrors.tool_calls(run_id, call_ids, names)
            guessed = {tool.name or "" for tool in tools if is_guessed(tool)}
            guessed |= {str(tool.data["asked_name"]) for tool in tools if "asked_name" in tool.data}
            matches = {
                tool.call_id or ""
                for tool in tools
                if "id" not in tool.data or (since is not None and at_of(tool) >= since)
            }
            if since is None or (guessed <= names and matches <= call_ids):
                return tools
            call_ids, names = call_ids | matches, names | guessed

    async def _remember(
        self, stored_trace: StoredTrace, changed: Sequence[NewSpan], renewed: Counter[str], since: datetime
    ) -> None:
        """Read the rows that started later, and the results that they mention.

        A mention assigns the results of a reused id to the last requests before it. A new request before it shifts
        them, so they are assigned again. That needs all mentions since the first of these requests.
        """
        rows = await self._mirrors.rows_since(stored_trace.run.id, since)
        arrived = {self._names.span(new_span.data["id"]) for new_span in changed}
        stored_trace.mentions = self._mentions(rows, arrived)
        messages = [mention.results for mention in stored_trace.mentions]
        messages += [
            new_span.facts.results for new_span in changed if self._names.span(new_span.data["id"]) in stored_trace.rows
        ]
        mentioned = {part(result.call_id) for results in messages for result in results}
        stored = [tool for tool in stored_trace.tools if tool.call_id in mentioned]
        often = renewed + Counter(tool.call_id or "" for tool in stored)
        stored_trace.recompute = frozenset(
            call_id for call_id in renewed if call_id in mentioned and often[call_id] > 1
        )
        first = min((requested_at(tool) for tool in stored if tool.call_id in stored_trace.recompute), default=since)
        if first < since:
            rows = await self._mirrors.rows_since(stored_trace.run.id, first)
            stored_trace.mentions = self._mentions(rows, arrived)
        stored_trace.later = [row for row in rows if row.type == "llm_call"]

    def _mentions(self, rows: Iterable[Stitch], arrived: set[UUID]) -> list[MentionedResult]:
        stitches = [row for row in rows if row.id not in arrived and "id" in row.data]
        meant = ((row, self._source.facts(stored_span_data(row.data)).results) for row in stitches)
        return [MentionedResult(at_of(row), row.data["id"], results) for row, results in meant if results]


def _has_choice(stored_trace: StoredTrace, asked: set[tuple[str, UUID | int, int]], ran: set[tuple[str, UUID]]) -> bool:
    """True if a stored or new span can match several requests with its call id, or a request several spans."""
    rows = {row.position: row.id for row in stored_trace.rows.values()}
    for tool in stored_trace.tools:
        call_id = tool.call_id or ""
        if tool.reply_to is not None:
            asked.add((call_id, rows.get(tool.reply_to, tool.reply_to), tool.call_index or 0))
        if "id" in tool.data:
            ran.add((call_id, tool.id))
    requests, spans = Counter(call_id for call_id, *_ in asked), Counter(call_id for call_id, _ in ran)
    return any(requests[call_id] * number > 1 for call_id, number in spans.items())


def _is_near(tool: Stitch) -> bool:
    """True if a tool span and the response with its request have the same parent."""
    return "id" in tool.data and tool.reply_to is not None and str(tool.parent_id) == tool.data.get("asked_under")


def further(names: MirrorIds, span_id: str, facts: SpanFacts) -> list[UUID]:
    """Return the row ids of the further generations of a model call."""
    return [names.span(span_id, f"#{number}") for number in range(1, len(facts.generations))]
