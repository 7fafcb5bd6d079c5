"""`RecordTable`: records of one kind. Also agent versions, API tokens, the audit log and tables of extensions."""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from lockstitch.backend import Condition, Find, FullBackend, Where
from lockstitch.errors import Conflict, NotFound, Refused
from lockstitch.extension import Extension, known
from lockstitch.model import Agent, AgentVersion, Clock, Json, Record, TeamMember, codec
from lockstitch.model.side_records import Audit, Token

R = TypeVar("R", bound=Record)

Rows = list[R]
"""Alias for `list[R]`: inside the class, the method `list` hides the type."""


class RecordTable(Generic[R]):
    """Records of one kind, of all projects. Add a condition on `project` if the table has that column.

    Safe to use from many tasks. `put` and `delete` are one transaction each; the last writer of a record wins.
    """

    def __init__(self, backend: FullBackend, kind: type[R]) -> None:
        self._backend = backend
        self._kind = kind

    async def put(self, *records: R, new: bool = False) -> None:
        """Write records, all or none. A record replaces the stored record with the same key.

        Args:
            records: The records.
            new: Do not replace records.

        Raises:
            Conflict: If `new` is True and a record with the same key exists.
        """
        await self._backend.put(records, new=new)

    async def get(self, *key: Any) -> R:
        """Return the record with this primary key.

        Args:
            key: Values of the primary key, in its order.

        Raises:
            NotFound: If there is none.
        """
        record = await self.get_or_none(*key)
        if record is None:
            raise NotFound(f"{self._kind.__name__} {' '.join(map(str, key))} not found.")
        return record

    async def get_or_none(self, *key: Any) -> R | None:
        """Return the record with this primary key, or None.

        Args:
            key: Values of the primary key, in its order.
        """
        return await self._backend.get(self._kind, key)

    async def find(
        self,
        *where: Condition,
        order: Sequence[str] = (),
        after: Sequence[Any] | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> Rows[R]:
        """Return the records that meet all conditions.

        Args:
            where: Conditions on fields of the record.
            order: Fields to sort by. `-` before a name means descending.
            after: Values of the fields in `order` in the last record of the previous page.
            limit: Maximum number of records. None: all.
            offset: Number of records to skip.
        """
        return await self._backend.find(Find(self._kind, where, order, after, limit, offset))

    async def first(self, *where: Condition, order: Sequence[str] = ()) -> R | None:
        """Return the first record that meets all conditions, or None.

        Args:
            where: Conditions on fields of the record.
            order: Fields to sort by. `-` before a name means descending.
        """
        records = await self.find(*where, order=order, limit=1)
        return records[0] if records else None

    async def count(self, *where: Condition) -> int:
        """Return the number of records that meet all conditions.

        Args:
            where: Conditions on fields of the record.
        """
        return await self._backend.count(Find(self._kind, where))

    async def list(self, *, limit: int | None = None, **equal: Any) -> Sequence[R]:
        """Return the records with these values of fields, in the order of their keys.

        Args:
            limit: Maximum number of records. None: all.
            equal: Values, by field of the record. None matches records without a value.
        """
        return await self._backend.find(Find(self._kind, _where(equal), order=self._kind.primary_key, limit=limit))

    async def delete(self, *where: Condition, **equal: Any) -> int:
        """Delete the records that meet all conditions and have these values of fields. Return the number of records.

        Args:
            where: Conditions on fields of the record.
            equal: Values, by field of the record. None matches records without a value.
        """
        return await self._backend.delete(Find(self._kind, (*where, *_where(equal))))


def _where(equal: dict[str, Any]) -> list[Where]:
    return [Where(field, "is null") if value is None else Where(field, "=", value) for field, value in equal.items()]


class Agents(RecordTable[Agent]):
    """Agents by project and name, each with its versions."""

    def __init__(self, backend: FullBackend, clock: Clock) -> None:
        super().__init__(backend, Agent)
        self._clock = clock
        self.registered: dict[tuple[str, str, str], AgentVersion] = {}
        """Versions that this process has registered, by project, name and digest of the definition."""

    async def register(
        self,
        project: str,
        name: str,
        definition: Json,
        *,
        role: str = "agent",
        members: Sequence[tuple[str, int]] = (),
        current: bool = True,
    ) -> AgentVersion:
        """Return the version of an agent that has this definition. If there is none, create the next version.

        Safe to call from many processes: equal definitions get the same version.

        Args:
            project: Project of the agent.
            name: Name of the agent.
            definition: Definition of the agent as JSON.
            role: `agent` or `team`.
            members: Names and versions of the members of a team. The version of the team is linked to them.
            current: True if the version becomes the current version of the agent.
        """
        stored = await self.get_or_none(project, name)
        now = self._clock.now()
        created_at, metadata = (now, {}) if stored is None else (stored.created_at, stored.metadata)
        values: dict[str, Any] = {"project": project, "name": name, "role": role, "metadata": metadata}
        agent = Agent(**values, created_at=created_at, updated_at=now)
        version = await self._find_or_create(project, name, definition)
        await self._link(version, members)
        if current and (stored is None or (stored.version, stored.role) != (version.version, role)):
            await self._backend.put([agent.changed(version=version.version)])
        self.registered[project, name, version.digest] = version
        return version

    async def _find_or_create(self, project: str, name: str, definition: Json) -> AgentVersion:
        digest = codec.digest(definition)
        while True:
            agent_versions = await self.versions(project, name)
            for version in reversed(agent_versions):
                if version.digest == digest:
                    return version
            newest = agent_versions[-1].version if agent_versions else 0
            about: Json = {"project": project, "name": name, "digest": digest, "definition": definition}
            version = AgentVersion(**about, version=newest + 1, created_at=self._clock.now())
            try:
                await self._backend.put([version], new=True)
            except Conflict:
                # Another process has just created this version, with the same definition or with another one.
                continue
            return version

    async def _link(self, team: AgentVersion, members: Sequence[tuple[str, int]]) -> None:
        """Write the members of this version of a team, if they are not stored yet."""
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
        """Return one version of an agent.

        Args:
            project: Project of the agent.
            name: Name of the agent.
            version: Number of the version.

        Raises:
            NotFound: If there is none.
        """
        agent_version = await self._backend.get(AgentVersion, (project, name, version))
        if agent_version is None:
            raise NotFound(f"Version {version} of agent {name} not found.")
        return agent_version

    async def versions(
        self, project: str, name: str, *, newest: int | None = None, before: int | None = None
    ) -> Rows[AgentVersion]:
        """Return versions of an agent, oldest first.

        Args:
            project: Project of the agent.
            name: Name of the agent.
            newest: Maximum number of versions, the newest ones. None: all.
            before: Only versions with a lower number.
        """
        where = [Where("project", "=", project), Where("name", "=", name)]
        where += [] if before is None else [Where("version", "<", before)]
        return (await self._backend.find(Find(AgentVersion, where, order=("-version",), limit=newest)))[::-1]

    async def current_versions(self, agents: Sequence[Agent]) -> Rows[AgentVersion]:
        """Return the current versions of agents of one project, in one query and in any order.

        Args:
            agents: The agents.
        """
        if not agents:
            return []
        current = [(agent.name, agent.version) for agent in agents]
        where = (Where("project", "=", agents[0].project), Where(("name", "version"), "in", current))
        return await self._backend.find(Find(AgentVersion, where))


SCOPES: Final = ("read", "write", "ingest", "admin")
"""Permissions of a token: to read, to write, to send traces, and everything."""

PREFIX: Final = "lst_"
"""Prefix of every token, so that secret scanners recognise it."""


class Tokens:
    """The API tokens of one project."""

    def __init__(self, backend: FullBackend, clock: Clock, project: str) -> None:
        self._backend = backend
        self._clock = clock
        self._project = project

    async def create(
        self, name: str, scopes: Iterable[str], *, expires_at: datetime | None = None
    ) -> tuple[Token, str]:
        """Create a token. Return it and its secret, which is not stored and cannot be read later.

        Raises `Refused` if a scope is unknown, or if the project has a valid token with this name.
        """
        unique_scopes = list(dict.fromkeys(scopes))
        wrong = [scope for scope in unique_scopes if scope not in SCOPES]
        if wrong or not unique_scopes:
            raise Refused(f"Token scopes must be some of {', '.join(SCOPES)}, not {', '.join(wrong) or 'none'}.")
        if any(token.name == name for token in await self.valid()):
            raise Refused(f"Project {self._project} already has a token {name}. Revoke it, or choose another name.")
        secret = PREFIX + secrets.token_urlsafe(32)
        token = Token(
            sha256=_digest(secret),
            project=self._project,
            name=name,
            scopes=unique_scopes,
            created_at=self._clock.now(),
            expires_at=expires_at,
        )
        await self._backend.put([token])
        return token, secret

    async def all(self) -> list[Token]:
        """Return all tokens of the project, oldest first, also expired and revoked ones."""
        tokens = await self._backend.find(Find(Token, (Where("project", "=", self._project),)))
        return sorted(tokens, key=lambda token: (token.created_at, token.name))

    async def valid(self) -> list[Token]:
        """Return the tokens that are neither expired nor revoked."""
        return [token for token in await self.all() if self._valid(token)]

    async def revoke(self, name: str) -> Token:
        """Revoke a token by its name and return it. Servers reject it from the next request on.

        Raises `NotFound` if the project has no valid token with this name.
        """
        for token in await self.valid():
            if token.name == name:
                revoked = token.changed(revoked_at=self._clock.now())
                await self._backend.put([revoked])
                return revoked
        raise NotFound(f"Valid token {name} not found in project {self._project}.")

    async def find(self, secret: str) -> Token | None:
        """Return the valid token with this secret, of any project, or None."""
        token = await self._backend.get(Token, (_digest(secret),))
        return token if token is not None and self._valid(token) else None

    async def any_valid(self) -> bool:
        """True if any project has a valid token."""
        return any(self._valid(token) for token in await self._backend.find(Find(Token)))

    def _valid(self, token: Token) -> bool:
        now = self._clock.now()
        return token.revoked_at is None and (token.expires_at is None or token.expires_at > now)


def _digest(secret: str) -> str:
    # The secret is long and random and cannot be guessed, so a plain hash is enough.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


async def installed_extensions(backend: FullBackend) -> list[Extension]:
    """Return the extensions of a store that this process has the code of."""
    return known(await backend.extensions())


async def missing_extensions(backend: FullBackend) -> list[str]:
    """Return the names of the extensions of a store that this process does not have the code of."""
    names = await backend.extensions()
    return sorted({*names} - {extension.name for extension in known(names)})


class Audits:
    """The audit log of one project."""

    def __init__(self, backend: FullBackend, clock: Clock, project: str) -> None:
        self._backend = backend
        self._clock = clock
        self._project = project

    async def record(self, actor: str, act: str, subject: str, **data: Any) -> None:
        """Add an entry: this actor did this to this subject now. `data` has further details."""
        await self._backend.put(
            [Audit(project=self._project, actor=actor, act=act, subject=subject, data=data, at=self._clock.now())]
        )

    async def latest(self, limit: int = 50) -> list[Audit]:
        """Return the latest entries, newest first."""
        where = (Where("project", "=", self._project),)
        return await self._backend.find(Find(Audit, where, order=("-id",), limit=limit))
