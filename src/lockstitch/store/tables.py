"""`RecordTable`: typed get, find, put, delete; agent versions, API tokens, audit log, extension tables."""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from lockstitch.backend import Find, FullBackend, SupportsExtensions, Where
from lockstitch.errors import Conflict, NotFound, Refused
from lockstitch.extension import Extension, known, register
from lockstitch.model import Agent, AgentVersion, Clock, Json, Record, TeamMember, codec
from lockstitch.model.side_records import Audit, Token

R = TypeVar("R", bound=Record)

Rows = list[R]
"""The method `list` of a table hides the type of that name."""


class RecordTable(Generic[R]):
    """Records of one kind, of all projects: pass a condition on `project` where a table has one."""

    def __init__(self, backend: FullBackend, kind: type[R]) -> None:
        self._backend = backend
        self._kind = kind

    async def put(self, *records: R, new: bool = False) -> None:
        """Write records, all or none. Each replaces the record with the same key; if `new`, Conflict is raised."""
        await self._backend.put(records, new=new)

    async def get(self, *key: Any) -> R:
        """The record with this primary key, or NotFound."""
        record = await self.get_or_none(*key)
        if record is None:
            raise NotFound(f"There is no {self._kind.__name__.lower()} {' '.join(map(str, key))} in this store.")
        return record

    async def get_or_none(self, *key: Any) -> R | None:
        """The record with this primary key, or None."""
        return await self._backend.get(self._kind, key)

    async def find(
        self,
        *where: Where,
        order: Sequence[str] = (),
        after: Sequence[Any] | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> Rows[R]:
        """The records that meet all conditions; see `Find` for the order and the page."""
        return await self._backend.find(Find(self._kind, where, order, after, limit, offset))

    async def first(self, *where: Where, order: Sequence[str] = ()) -> R | None:
        """The first record that meets all conditions, or None."""
        records = await self.find(*where, order=order, limit=1)
        return records[0] if records else None

    async def count(self, *where: Where) -> int:
        """The number of records that meet all conditions."""
        return await self._backend.count(Find(self._kind, where))

    async def list(self, *, limit: int | None = None, **equal: Any) -> Sequence[R]:
        """The records whose fields equal these, in the order of their keys."""
        return await self._backend.find(Find(self._kind, _where(equal), order=self._kind.primary_key, limit=limit))

    async def delete(self, *where: Where, **equal: Any) -> int:
        """Delete the records that meet all conditions and whose fields equal these; how many."""
        return await self._backend.delete(Find(self._kind, (*where, *_where(equal))))


def _where(equal: dict[str, Any]) -> list[Where]:
    return [Where(field, "is null") if value is None else Where(field, "=", value) for field, value in equal.items()]


class Agents(RecordTable[Agent]):
    """Agents by project and name, each with its versions."""

    def __init__(self, backend: FullBackend, clock: Clock) -> None:
        super().__init__(backend, Agent)
        self._clock = clock
        self.registered: dict[tuple[str, str, str], AgentVersion] = {}
        """The versions that this process has registered, by project, name and digest of the definition."""

    async def register(
        self,
        project: str,
        name: str,
        definition: Json,
        *,
        role: str = "agent",
        members: Sequence[tuple[str, int]] = (),
    ) -> AgentVersion:
        """The version of this definition: the newest one if it is the same, else a new one, with links to the members
        of a team as they are now."""
        digest = codec.digest(definition)
        while True:
            agent_versions = await self.versions(project, name)
            for version in reversed(agent_versions):
                if version.digest == digest:
                    await self._link(version, members)
                    self.registered[project, name, digest] = version
                    return version
            now = self._clock.now()
            newest = agent_versions[-1].version if agent_versions else 0
            agent = await self._agent(project, name, role, now)
            version = AgentVersion(
                project=project, name=name, version=newest + 1, digest=digest, definition=definition, created_at=now
            )
            try:
                await self._backend.put([version], new=True)
            except Conflict:
                # Somebody else has just got this number, with another definition or with the same.
                continue
            await self._link(version, members)
            await self._backend.put([agent.changed(version=version.version)])
            self.registered[project, name, digest] = version
            return version

    async def _link(self, team: AgentVersion, members: Sequence[tuple[str, int]]) -> None:
        """Write down who is in this version of a team, unless somebody has."""
        where = (
            Where("project", "=", team.project),
            Where("team", "=", team.name),
            Where("version", "=", team.version),
        )
        if not members or await self._backend.count(Find(TeamMember, where)) == len(members):
            return
        about: Json = {"project": team.project, "team": team.name, "version": team.version}
        await self._backend.put(
            [
                TeamMember(**about, place=place, member=name, member_version=version)
                for place, (name, version) in enumerate(members, start=1)
            ]
        )

    async def version(self, project: str, name: str, version: int) -> AgentVersion:
        """One version of a definition, or NotFound."""
        agent_version = await self._backend.get(AgentVersion, (project, name, version))
        if agent_version is None:
            raise NotFound(f"There is no version {version} of agent {name} in this store.")
        return agent_version

    async def versions(self, project: str, name: str) -> list[AgentVersion]:
        where = (Where("project", "=", project), Where("name", "=", name))
        return await self._backend.find(Find(AgentVersion, where, order=("version",)))

    async def _agent(self, project: str, name: str, role: str, now: datetime) -> Agent:
        """The agent as it will be, with what people noted of it."""
        values: dict[str, Any] = {"project": project, "name": name, "role": role, "updated_at": now}
        agent = await self._backend.get(Agent, (project, name))
        if agent is None:
            return Agent(**values, created_at=now)
        return Agent(**values, created_at=agent.created_at, metadata=agent.metadata)


SCOPES: Final = ("read", "write", "ingest", "admin")
"""What a token may allow: to look, to act, to send traces in, and everything."""

PREFIX: Final = "lst_"
"""What every token begins with, so that scanners for secrets know one when they see it."""


class Tokens:
    """The tokens of one project of a store."""

    def __init__(self, backend: FullBackend, clock: Clock, project: str) -> None:
        self._backend = backend
        self._clock = clock
        self._project = project

    async def create(
        self, name: str, scopes: Iterable[str], *, expires_at: datetime | None = None
    ) -> tuple[Token, str]:
        """A new token, and its secret, which is never to be had again."""
        fromkeys = list(dict.fromkeys(scopes))
        wrong = [scope for scope in fromkeys if scope not in SCOPES]
        if wrong or not fromkeys:
            raise Refused(f"A token's scopes are some of {', '.join(SCOPES)}; not {', '.join(wrong) or 'none'}.")
        if any(token.name == name for token in await self.valid()):
            raise Refused(f"Project {self._project} has a token {name} already; revoke it, or choose another name.")
        secret = PREFIX + secrets.token_urlsafe(32)
        token = Token(
            sha256=_digest(secret),
            project=self._project,
            name=name,
            scopes=fromkeys,
            created_at=self._clock.now(),
            expires_at=expires_at,
        )
        await self._backend.put([token])
        return token, secret

    async def all(self) -> list[Token]:
        """All tokens of the project, the oldest first, revoked ones too."""
        tokens = await self._backend.find(Find(Token, (Where("project", "=", self._project),)))
        return sorted(tokens, key=lambda token: (token.created_at, token.name))

    async def valid(self) -> list[Token]:
        """The tokens that open something now."""
        return [token for token in await self.all() if self._valid(token)]

    async def revoke(self, name: str) -> Token:
        """Have a token open nothing any more, from the next request on."""
        for token in await self.valid():
            if token.name == name:
                revoked = token.changed(revoked_at=self._clock.now())
                await self._backend.put([revoked])
                return revoked
        raise NotFound(f"Project {self._project} has no token {name} that is not revoked or expired.")

    async def find(self, secret: str) -> Token | None:
        """The token of a secret, whatever its project; None if it opens nothing."""
        token = await self._backend.get(Token, (_digest(secret),))
        return token if token is not None and self._valid(token) else None

    async def any_valid(self) -> bool:
        """Whether any project has a token that opens something."""
        return any(self._valid(token) for token in await self._backend.find(Find(Token)))

    def _valid(self, token: Token) -> bool:
        now = self._clock.now()
        return token.revoked_at is None and (token.expires_at is None or token.expires_at > now)


def _digest(secret: str) -> str:
    # Long and random, so a plain hash is enough: there is nothing to guess.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


async def extend(backend: FullBackend, extension: Extension) -> None:
    register(extension)
    await require_extensions(backend, extension).extend(extension)


async def ask(
    backend: FullBackend,
    extension: Extension,
    name: str,
    parameters: dict[str, Any],
    into: type[R] | None = None,
    *,
    writes: bool = False,
) -> list[Any]:
    return await require_extensions(backend, extension).run_query(extension, name, parameters, into, writes=writes)


async def installed_extensions(backend: FullBackend) -> list[Extension]:
    """The extensions that a store has, as far as their code is here."""
    return known(await backend.extensions()) if isinstance(backend, SupportsExtensions) else []


async def missing_extensions(backend: FullBackend) -> list[str]:
    """The names of those that a store has and whose code is not here."""
    names = await backend.extensions() if isinstance(backend, SupportsExtensions) else []
    return sorted({*names} - {extension.name for extension in known(names)})


def require_extensions(backend: FullBackend, extension: Extension) -> SupportsExtensions:
    if not isinstance(backend, SupportsExtensions):
        raise Refused(
            f"{extension.name} keeps tables of its own, which a store of files has none of. Use SQLite or PostgreSQL."
        )
    return backend


class Audits:
    """What was done in one project, newest first."""

    def __init__(self, backend: FullBackend, clock: Clock, project: str) -> None:
        self._backend = backend
        self._clock = clock
        self._project = project

    async def record(self, actor: str, act: str, subject: str, **data: Any) -> None:
        await self._backend.put(
            [Audit(project=self._project, actor=actor, act=act, subject=subject, data=data, at=self._clock.now())]
        )

    async def latest(self, limit: int = 50) -> list[Audit]:
        where = (Where("project", "=", self._project),)
        return await self._backend.find(Find(Audit, where, order=("-id",), limit=limit))
