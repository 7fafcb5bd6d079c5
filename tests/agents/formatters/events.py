"""Streams of events, fixed and random."""

from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from lockstitch.engine.events import Event

THREAD = UUID("0192f0c1-2345-7890-8abc-def012345678")
RUN = UUID("0192f0c1-2345-7890-8abc-def012345679")
MEMBER = UUID("0192f0c1-2345-7890-8abc-def01234567a")

PNG = "iVBORw0KGgo" * 400
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
HISTORY = [{"role": "user", "content": [{"type": "text", "text": "Look"}, IMAGE]}]
FILE = {"file_id": "f", "filename": "a.csv", "storage_path": "/x", "size": 3, "mime_type": "text/csv", "step": 1}
PENDING = {"tool_use_id": "c9", "name": "confirm", "input": {"text": "Sure?"}}


def event(type: Any, data: Any = None, *, run: UUID = RUN, agent: str = "helper", step: int = 1) -> Event:
    return Event(type, THREAD, run, agent, step, data or {})


def one_of_each() -> list[Event]:
    """Return one event of each type."""
    return [
        event("started", {"agent": "helper", "model": "m", "user_message": "Look", "messages": HISTORY}, step=0),
        event("raw", {"type": "message_start"}),
        event("thinking", {"text": "Hm"}),
        event("thinking", {"text": "m."}),
        event("text", {"text": "Let me "}),
        event("raw", {"type": "content_block_delta", "index": 1}),
        event("text", {"text": "look."}),
        event("citation", {"url": "https://example.org", "cited_text": "<so>"}),
        event("tool_call", {"id": "c1", "name": "look", "input": {"at": "it & <that>"}}),
        event("server_tool_call", {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}}),
        event(
            "server_tool_result",
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": "T"}, IMAGE]},
        ),
        event("tool_result", {"id": "c1", "name": "look", "content": "seen", "is_error": False}),
        event("tool_result", {"id": "c2", "name": "draw", "content": [{"type": "text", "text": "drawn"}, IMAGE]}),
        event("tool_result", {"id": "c3", "name": "fail", "content": "no", "is_error": True}),
        event("retry", {"attempt": 1, "delay": 0.5, "error": "overloaded"}),
        event("compacted", {"tokens_before": 9, "tokens_after": 5}),
        event("files", {"files": [FILE]}),
        event("paused", {"waiting_for": [{"kind": "frontend_tools"}], "pending": [PENDING]}),
        event("failed", {"error": "It <broke>", "type": "ProviderError"}),
        event("finished", {"status": "failed", "usage": {"input_tokens": 3}, "messages": HISTORY}),
    ]


texts = (
    st.text(max_size=60)
    | st.text("<>&]\"'\r\n\t ab\x00\x1f\ufffe😀", max_size=60)
    | st.just("]]>")
    | st.just("x" * 5_000)
)
names = st.text(max_size=20) | st.text('<>&"\r\n\t\x00😀', max_size=255)
inputs = st.dictionaries(names, texts)
runs = st.sampled_from([RUN, MEMBER])


def _events(type: Any, data: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    return st.builds(lambda value, run, agent: event(type, value, run=run, agent=agent), data, runs, names)


random_events = st.lists(
    st.one_of(
        _events("text", st.fixed_dictionaries({"text": texts})),
        _events("thinking", st.fixed_dictionaries({"text": texts})),
        _events(
            "tool_call", st.fixed_dictionaries({"id": names, "name": names, "input": st.dictionaries(names, texts)})
        ),
        _events("tool_result", st.fixed_dictionaries({"id": names, "name": names, "content": texts})),
        _events("failed", st.fixed_dictionaries({"error": texts, "type": names})),
        _events("finished", st.fixed_dictionaries({"output_text": texts})),
        _events("retry", st.just({})),
    ),
    max_size=12,
)


def all_frames(formatter: Any, events: list[Event]) -> list[str]:
    return [frame for event in events for frame in formatter.feed(event)] + formatter.end()
