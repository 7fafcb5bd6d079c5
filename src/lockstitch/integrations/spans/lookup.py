"""`StoreLookup`: read the stored data of a trace that new spans can affect.

Some results depend on several spans. So the lookup reads every row that may change: rows that started with or after the
first new span, and rows with the ids or names of its calls. If a trace arrives in order, these are few.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from lockstitch.integrations.spans.matching import asked, asked_at, given_id, is_guessed, name_of, without_call
from lockstitch.integrations.spans.rows import MirrorIds, at_of, begun, part, piece_of
from lockstitch.integrations.spans.span import SpanFacts, TraceSource
from lockstitch.integrations.spans.tool_calls import MentionedResult
from lockstitch.integrations.spans.trace import NewSpan, StoredTrace
from lockstitch.model import Stitch
from lockstitch.store.writes.mirrors import MirrorStore


class StoreLookup:
    """Reads stored traces of one source and project."""

    def __init__(self, mirrors: MirrorStore, bridge: TraceSource, names: MirrorIds) -> None:
        self._mirrors = mirrors
        self._bridge = bridge
        self._names = names

    async def load(self, known: StoredTrace, changed: Sequence[NewSpan], now: datetime) -> None:
        """Read the stored data that these spans can affect into `known`."""
        call_ids: set[str] = set()
        guessed: set[str] = set()
        requested: set[str] = set()
        renewed: Counter[str] = Counter()
        starts: list[datetime] = []
        for one in changed:
            piece, meaning = one.piece, one.meaning
            row_id = self._names.span(piece["id"])
            old = known.rows.get(row_id)
            starts += [at_of(old)] if old is not None and old.type != "span" else []
            mentioned = {call_id for result in meaning.results if (call_id := part(result.call_id))}
            call_ids |= mentioned
            if mentioned and old is not None and at_of(old) != begun(piece, now):
                # The start time of the span changed, so it mentions the results of other requests.
                starts += [at_of(old), begun(piece, now)]
                renewed.update(mentioned)
            if meaning.role == "llm":
                starts.append(begun(piece, now))
                responses = [row_id, *further(self._names, piece["id"], meaning)]
                for response_id, generation in zip(responses, meaning.generations, strict=False):
                    for call_id, name in asked(generation.message, response_id):
                        renewed[call_id] += 1
                        requested.add(name)
            elif meaning.role == "tool":
                starts.append(begun(piece, now))
                renewed.update({given_id(meaning) or without_call(piece), (old.call_id if old else None) or ""})
                if given_id(meaning) is None:
                    guessed |= {name_of(piece, meaning), (old.name if old else None) or ""}
        answers = [row_id for one in changed for row_id in further(self._names, one.piece["id"], one.meaning)]
        known.rows |= await self._mirrors.stitches(answers)
        since = min(starts, default=None)
        call_ids |= renewed.keys()
        known.tools = await self._tools(known.run.id, call_ids, guessed, since)
        if since is None:
            return
        if requested - guessed:
            # Requests that spans release for the new spans are free for other spans too.
            left = [asked_at(tool) for tool in known.tools if at_of(tool) >= since and tool.call_id in renewed]
            later = await self._mirrors.tools_since(known.run.id, requested - guessed, min([since, *left]))
            if more := {tool.name or "" for tool in later if is_guessed(tool)} - guessed:
                known.tools = await self._tools(known.run.id, call_ids, guessed | more, since)
        await self._remember(known, changed, renewed, since)

    async def _tools(self, run_id: UUID, call_ids: set[str], names: set[str], since: datetime | None) -> list[Stitch]:
        """Return the tool calls with these ids and names, and all calls that new spans since a time can match.

        A span without a call id can match any call with its name, and a mentioned result any call with its id.
        """
        while True:
            tools = await self._mirrors.tool_calls(run_id, call_ids, names)
            guessed = {tool.name or "" for tool in tools if is_guessed(tool)}
            guessed |= {str(tool.data["asked_name"]) for tool in tools if "asked_name" in tool.data}
            found = {
                tool.call_id or ""
                for tool in tools
                if "id" not in tool.data or (since is not None and at_of(tool) >= since)
            }
            if since is None or (guessed <= names and found <= call_ids):
                return tools
            call_ids, names = call_ids | found, names | guessed

    async def _remember(
        self, known: StoredTrace, changed: Sequence[NewSpan], renewed: Counter[str], since: datetime
    ) -> None:
        """Read the rows that started later, and the results that they mention.

        A mention assigns the results of a reused id to the last requests before it. A new request before it shifts
        them, so they are assigned again. That needs all mentions since the first of these requests.
        """
        rows = await self._mirrors.rows_since(known.run.id, since)
        arrived = {self._names.span(one.piece["id"]) for one in changed}
        known.mentions = self._mentions(rows, arrived)
        told = [mention.results for mention in known.mentions]
        told += [one.meaning.results for one in changed if self._names.span(one.piece["id"]) in known.rows]
        mentioned = {part(result.call_id) for results in told for result in results}
        stored = [tool for tool in known.tools if tool.call_id in mentioned]
        often = renewed + Counter(tool.call_id or "" for tool in stored)
        known.anew = frozenset(call_id for call_id in renewed if call_id in mentioned and often[call_id] > 1)
        first = min((asked_at(tool) for tool in stored if tool.call_id in known.anew), default=since)
        if first < since:
            rows = await self._mirrors.rows_since(known.run.id, first)
            known.mentions = self._mentions(rows, arrived)
        known.later = [row for row in rows if row.type == "llm_call"]

    def _mentions(self, rows: Iterable[Stitch], arrived: set[UUID]) -> list[MentionedResult]:
        said = [row for row in rows if row.id not in arrived and "id" in row.data]
        meant = ((row, self._bridge.facts(piece_of(row.data)).results) for row in said)
        return [MentionedResult(at_of(row), row.data["id"], results) for row, results in meant if results]


def further(names: MirrorIds, span_id: str, meaning: SpanFacts) -> list[UUID]:
    """Return the row ids of the further generations of a model call."""
    return [names.span(span_id, f"#{number}") for number in range(1, len(meaning.generations))]
