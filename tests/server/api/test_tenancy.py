"""Routes return only rows of the caller's project, and require a token and a scope.

The tests read all routes from the OpenAPI document, so new routes need no change here.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import httpx2
import pytest

from lockstitch import Entry, Feedback, File, Memory
from lockstitch.backend import Find
from lockstitch.model import Agent, AgentVersion, Run, Stitch, Thread, Token
from lockstitch.server import Settings
from lockstitch.store import Store
from tests.server.api import agents
from tests.server.api.walking import Operation, operations, sample
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio

MARK = "SECRET-OF-B"

OPEN = {"/healthz", "/readyz", "/metrics", "/info", "/api/v1/info", "/api/public/health", "/ok"}
"""Routes without data of a project. They need no token."""

LINKS = tuple(f"{prefix}/{name}/" for prefix in ("", "/api/v1", "/api/v2") for name in ("public", "attachments"))
"""Routes that read one trace or one file by the secret in their URL. They need no token."""

RUN_NAMES = {"id", "run", "run_id", "a", "b"}
"""Parameters and fields that get the id of a run."""

ADMINS = ("/api/sql", "/api/tokens", "/api/audit")


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


class Theirs(NamedTuple):
    """The ids of records of project B."""

    thread: Thread
    run: Run
    stitch: Stitch
    memory: Memory

    @property
    def ids(self) -> list[str]:
        return [str(record.id) for record in (self.thread, self.run, self.stitch, self.memory)]

    def known(self, name: str) -> Any:
        """Return a value of project B for a parameter or field of this name, or None."""
        return {
            "ref": str(self.thread.id),
            "thread": str(self.thread.id),
            "thread_id": str(self.thread.id),
            "agent_uuid": str(self.thread.id),
            "after": str(self.thread.id),
            "id": str(self.run.id),
            "run": str(self.run.id),
            "run_id": str(self.run.id),
            "a": str(self.run.id),
            "b": str(self.run.id),
            "stitch": str(self.stitch.id),
            "file_id": "file",
            "name": "theirs",
            "version": 1,
            "user_id": "bob",
            "q": "SELECT title FROM threads",
            "query": "SELECT title FROM threads",
            "until": "now",
            "project": "b",
        }.get(name)


async def fill(store: Store) -> Theirs:
    """Create records of all kinds in project B, with a marker in each text."""
    now = store.clock.now()
    head = await store.create(key="mine", title=MARK, user_id="bob", agent="theirs", extras={"x": MARK})
    run = store.new_run(head, status="failed", agent="theirs").changed(error=MARK)
    message = {"role": "user", "content": MARK}
    entries = [
        Entry(type="run_started", run_id=run.id),
        Entry(type="input", run_id=run.id, message=message),
        Entry(type="llm_call", run_id=run.id, step_number=1, message={**message, "role": "assistant"}),
        Entry(type="error", run_id=run.id, data={"message": MARK}),
    ]
    await store.append(head, entries, new_runs=[run])
    stitches = await store.stitches(head)
    memory = Memory(project="b", user_id="bob", text=MARK, created_at=now, updated_at=now)
    await store.memories.put(memory)
    await store.feedback.put(
        Feedback(project="b", thread_id=head.id, run_id=run.id, name="n", comment=MARK, created_at=now, updated_at=now)
    )
    await store.files.put(
        File(thread_id=head.id, file_id="file", filename=MARK, storage_path="/x", created_at=now, last_updated_at=now)
    )
    await store.agents.register("b", "theirs", {"name": "theirs", "instructions": MARK})
    await store.tokens.create("theirs", ["read"])
    return Theirs(head, run, stitches[2], memory)


async def everything(store: Store) -> list[Any]:
    """Return all rows of project B."""
    kinds = (Thread, Run, Stitch, Memory, Feedback, File, Agent, AgentVersion, Token)
    rows: list[Any] = []
    for kind in kinds:
        records = await store._backend.find(Find(kind, order=kind.primary_key))
        thread_ids = {row.id for row in rows if isinstance(row, Thread)}
        rows += [
            row
            for row in records
            if getattr(row, "project", "b") == "b" and getattr(row, "thread_id", None) in {*thread_ids, None}
        ]
    return rows


class Door(NamedTuple):
    http: httpx2.AsyncClient
    schema: dict[str, Any]
    theirs: Theirs
    store: Store

    async def call(
        self, operation: Operation, token: str | None, known_value: Any, *, bare: bool = False
    ) -> httpx2.Response:
        """Call an operation with known values. With `bare`, omit optional parameters."""
        path, query = operation.path, {}
        for parameter in operation.parameters:
            name = parameter["name"]
            value = known_value(name)
            if parameter["in"] == "path":
                value = "x" if value is None else value
                path = path.replace(f"{{{name}}}", str(value)).replace(f"{{{name}:path}}", str(value))
            elif parameter["in"] == "query" and (
                parameter.get("required") or name == "until" or (value is not None and not bare)
            ):
                query[name] = (
                    value if value is not None else sample(parameter["schema"], self.schema, known_value, name)
                )
        body = sample(operation.body, self.schema, known_value) if operation.body is not None else None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # The token selects the project. The header is ignored.
        headers["Lockstitch-Project"] = "b"
        return await self.http.request(operation.method, path, params=query, json=body, headers=headers)


@pytest.fixture
async def door(store: Store) -> AsyncIterator[Door]:
    other_records = await fill(store.in_project("b"))
    settings = Settings(tokens_needed=True, work=False)
    async with (
        serving(store, agents.app(), settings) as url,
        caller(url, cookies={"lockstitch_project": "b"}) as http,
    ):
        _, secret = await store.tokens.create("any", ["read"])
        answer = await http.get("/api/openapi.json", headers={"Authorization": f"Bearer {secret}"})
        yield Door(http, answer.json(), other_records, store)


def noting(known_value: Callable[[str], Any], names: set[str]) -> Callable[[str], Any]:
    """Return a function that also adds each requested name to `names`."""

    def known(name: str) -> Any:
        names.add(name)
        return known_value(name)

    return known


async def test_no_route_reads_or_changes_another_project(door: Door) -> None:
    _, secret = await door.store.in_project("a").tokens.create("a", ["read", "write", "ingest"])
    before = await everything(door.store)
    other_records = door.theirs
    walked = 0
    ways = [(other_records, False), (other_records, True)]
    ways += [
        (other_records._replace(run=other_records.stitch), True),
        (other_records._replace(run=other_records.memory), True),
    ]
    requested: defaultdict[str, set[str]] = defaultdict(set)
    for ids, bare in ways:
        for operation in operations(door.schema):
            names = requested[str(operation)]
            if ids is not other_records and names.isdisjoint(RUN_NAMES):
                continue  # the same request as before
            answer = await door.call(operation, secret, noting(ids.known, names), bare=bare)
            walked += 1
            assert answer.status_code < 500, (str(operation), answer.text)
            assert MARK not in answer.text, (str(operation), answer.text)
            if answer.status_code < 300:
                assert not [record_id for record_id in other_records.ids if record_id in answer.text], (
                    str(operation),
                    answer.text,
                )
    assert walked > 150
    assert await everything(door.store) == before


async def test_every_route_requires_a_token(door: Door) -> None:
    for token in (None, "lst_wrong"):
        for operation in operations(door.schema):
            if operation.path in OPEN:
                continue
            if operation.path.startswith(LINKS):
                answer = await door.call(operation, token, door.theirs.known)
                assert answer.status_code in (401, 404, 422), str(operation)
                continue
            answer = await door.call(operation, token, door.theirs.known)
            assert answer.status_code == 401, str(operation)
            assert MARK not in answer.text


async def test_every_route_requires_its_scope(door: Door) -> None:
    tokens = door.store.in_project("b").tokens
    _, reads = await tokens.create("reads", ["read"])
    _, writes = await tokens.create("writes", ["write"])
    _, sends = await tokens.create("sends", ["ingest"])
    _, acts = await tokens.create("acts", ["read", "write"])
    for operation in operations(door.schema):
        others = ("/api/v1", "/api/v2", "/api/public")
        if not operation.path.startswith(("/api/", "/agent/")) or operation.path.startswith(others):
            continue
        wrong = [sends]
        wrong.append(writes if operation.method == "get" else reads)
        wrong += [acts] if operation.path.startswith(ADMINS) else []
        for token in wrong:
            answer = await door.call(operation, token, door.theirs.known)
            assert answer.status_code == 403, str(operation)
            assert MARK not in answer.text
