"""Tokens: who may call a server, for which project and for what. Only their hashes are kept."""

import hashlib
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from lockstitch.backend import Find, FullBackend, Where
from lockstitch.errors import NotFound, Refused
from lockstitch.records import Clock
from lockstitch.records.shelves import Token

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

    async def make(self, name: str, scopes: Iterable[str], *, expires_at: datetime | None = None) -> tuple[Token, str]:
        """A new token, and its secret, which is never to be had again."""
        wanted = list(dict.fromkeys(scopes))
        wrong = [scope for scope in wanted if scope not in SCOPES]
        if wrong or not wanted:
            raise Refused(f"A token's scopes are some of {', '.join(SCOPES)}; not {', '.join(wrong) or 'none'}.")
        if any(one.name == name for one in await self.live()):
            raise Refused(f"Project {self._project} has a token {name} already; revoke it, or choose another name.")
        secret = PREFIX + secrets.token_urlsafe(32)
        token = Token(
            sha256=_digest(secret),
            project=self._project,
            name=name,
            scopes=wanted,
            created_at=self._clock.now(),
            expires_at=expires_at,
        )
        await self._backend.put([token])
        return token, secret

    async def listed(self) -> list[Token]:
        """All tokens of the project, the oldest first, revoked ones too."""
        found = await self._backend.find(Find(Token, (Where("project", "=", self._project),)))
        return sorted(found, key=lambda token: (token.created_at, token.name))

    async def live(self) -> list[Token]:
        """The tokens that open something now."""
        return [token for token in await self.listed() if self._valid(token)]

    async def revoke(self, name: str) -> Token:
        """Have a token open nothing any more, from the next request on."""
        for token in await self.live():
            if token.name == name:
                revoked = token.changed(revoked_at=self._clock.now())
                await self._backend.put([revoked])
                return revoked
        raise NotFound(f"Project {self._project} has no token {name} that is not revoked or expired.")

    async def find(self, secret: str) -> Token | None:
        """The token of a secret, whatever its project; None if it opens nothing."""
        token = await self._backend.get(Token, (_digest(secret),))
        return token if token is not None and self._valid(token) else None

    async def any_live(self) -> bool:
        """Whether any project has a token that opens something."""
        return any(self._valid(token) for token in await self._backend.find(Find(Token)))

    def _valid(self, token: Token) -> bool:
        now = self._clock.now()
        return token.revoked_at is None and (token.expires_at is None or token.expires_at > now)


def _digest(secret: str) -> str:
    # Long and random, so a plain hash is enough: there is nothing to guess.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
