"""Claiming as scripts: limits are locked and counted first, then threads are chosen and taken in one statement."""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from lockstitch.backends.sql.dialect import Dialect
from lockstitch.backends.sql.script import Rows, Script, Statement
from lockstitch.records import ColumnKind, Limit, Thread, codec
from lockstitch.records.claim import Wish, in_turns, rooms


def claim_one(dialect: Dialect, wish: Wish, thread_id: UUID) -> Script[list[Thread]]:
    """Take this thread. The order of locks is limits, then threads, for everyone who claims."""
    limits = yield from _locked(dialect, wish.limits)
    named = {"id": dialect.encode_id(thread_id)}
    agents = yield dialect.statement("thread_hold", named)
    if limits and agents:
        # A thread that is taken over from the dead is held already, and not counted against itself.
        held = yield from _held(dialect, " AND id <> :id", named)
        if rooms(limits, held).get(agents[0][0], 1) <= 0:
            return []
    parameters = {**named, "worker_id": dialect.encode_id(wish.worker_id)}
    rows = yield dialect.statement("claim_one", parameters, columns=dialect.names(Thread))
    return [dialect.decode(Thread, row) for row in rows]


def choosing(dialect: Dialect, wish: Wish, spare: int = 0) -> Script[Statement | None]:
    """The statement that chooses and takes what is wished for, or None when there can be nothing.

    `spare` is how many candidates more than wanted are looked at.
    """
    limits = yield from _locked(dialect, wish.limits)
    yield dialect.statement("claim_due", {})
    if limits:
        held = yield from _held(dialect)
        ready = yield from _ready_agents(dialect, wish)
        wish = wish._replace(limits=limits).within(held, ready)
    if wish.agents is not None and not wish.agents:
        return None
    if wish.suspects:
        return _suspect(dialect, wish)
    parameters: dict[str, Any] = {
        "worker_id": dialect.encode_id(wish.worker_id),
        "after": wish.after,
        "limit": wish.limit,
    }
    agents, lanes = "claim_any_agent", "claim_turns"
    if wish.agents is not None:
        agents = "claim_agents"
        parameters["agents"] = codec.dumps(sorted(set(wish.agents))).decode()
    if wish.project is not None:
        lanes = "claim_project"
        parameters["project"] = wish.project
    return dialect.statement(
        "claim",
        parameters,
        agents=dialect.queries[agents],
        lanes=dialect.queries[lanes],
        suspects="" if wish.suspects is None else "AND lost_by IS NULL",
        # As a number in the text: a planner that does not know how few are wanted may sort all that there are.
        most=str(wish.limit + spare),
        columns=dialect.names(Thread),
    )


def _suspect(dialect: Dialect, wish: Wish) -> Statement:
    """Return the statement that claims one suspect."""
    parameters: dict[str, Any] = {"worker_id": dialect.encode_id(wish.worker_id)}
    chosen = ""
    if wish.agents is not None:
        chosen += f" AND coalesce(agent, '') IN ({dialect.queries['claim_agents']})"
        parameters["agents"] = codec.dumps(sorted(set(wish.agents))).decode()
    if wish.project is not None:
        chosen += " AND project = :project"
        parameters["project"] = wish.project
    alone = "true" if wish.alone else "false"
    return dialect.statement("claim_suspect", parameters, chosen=chosen, alone=alone, columns=dialect.names(Thread))


def taken(dialect: Dialect, wish: Wish, rows: Rows) -> list[Thread]:
    """The threads of rows that came back, in turn: no database promises an order for what it has changed."""
    return in_turns((dialect.decode(Thread, row) for row in rows), wish.after)


def _locked(dialect: Dialect, limits: Sequence[Limit]) -> Script[list[Limit]]:
    """The limits as they are stored, which are nobody else's until this transaction ends."""
    if not limits:
        return []
    marks, named = dialect.among(sorted(limit.name for limit in limits), "name", ColumnKind.TEXT)
    rows = yield dialect.statement("limits_lock", named, columns=dialect.names(Limit), names=marks)
    return [dialect.decode(Limit, row) for row in rows]


def _held(dialect: Dialect, others: str = "", parameters: dict[str, Any] | None = None) -> Script[dict[str, int]]:
    """How many threads of each agent are held by anybody."""
    rows = yield dialect.statement("held", parameters or {}, others=others)
    return {agent: int(number) for agent, number in rows}


def _ready_agents(dialect: Dialect, wish: Wish) -> Script[Iterable[str]]:
    if wish.agents is not None:
        return wish.agents
    rows = yield dialect.statement("ready_agents", {}, agents=dialect.queries["claim_any_agent"])
    return [row[0] for row in rows]
