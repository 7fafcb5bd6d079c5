"""What a PostgreSQL URL says: where the server is, and how it is used."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lockstitch.errors import Refused

POOL = 20
"""Connections of one process at most, unless the URL says otherwise. They are opened as they are needed."""

MOST = 500

# A server that vanished without a word is noticed in about half a minute, not after the two hours of TCP.
_DEFAULTS = {
    "application_name": "lockstitch",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


@dataclass(frozen=True, slots=True)
class Address:
    """`conninfo` is for the driver; `shown` is for people and never holds a password."""

    conninfo: str
    listening: str
    """Where LISTEN is said: the same server, past a pooler."""
    shown: str
    pool: int
    prepare: bool
    reader: str | None = None
    """The login that asks SQL of users, if the URL names one: the same database with another user."""


def parse(url: str) -> Address:
    """Read a URL. Our own options are pool=N, prepare=off, listen=host:port and
    reader=user:password; the others are libpq's."""
    base, _, query = url.partition("?")
    options: dict[str, str] = {}
    others: list[str] = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name in ("pool", "prepare", "listen", "reader"):
            options[name] = unquote(value)
        else:
            others.append(part)
    try:
        parts = conninfo_to_dict(f"{base}?{'&'.join(others)}" if others else base)
    except psycopg.Error:
        # The driver's own words may quote a part of the password.
        raise Refused("This is no PostgreSQL URL. Write postgresql://user:password@host:5432/database.") from None
    parts = {**_DEFAULTS, **parts, "client_encoding": "utf8"}
    conninfo = make_conninfo("", **parts)
    listening = make_conninfo(conninfo, **_place(options["listen"])) if "listen" in options else conninfo
    return Address(
        conninfo=conninfo,
        listening=listening,
        shown=_shown(parts),
        pool=_pool(options.get("pool", str(POOL))),
        prepare=_prepare(options.get("prepare", "on")),
        reader=make_conninfo(listening, **_login(options["reader"])) if "reader" in options else None,
    )


def _shown(parts: dict[str, Any]) -> str:
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{parts.get('host') or 'localhost'}{port}/{parts.get('dbname', '')}"


def _pool(value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= MOST:
        raise Refused(f"pool={value} is not a number of connections from 1 to {MOST}.")
    return int(value)


def _prepare(value: str) -> bool:
    if value not in ("on", "off"):
        raise Refused(f"prepare={value} is neither on nor off.")
    return value == "on"


def _login(value: str) -> dict[str, str]:
    user, _, password = value.partition(":")
    if not user:
        # The value may be a password, so it is not shown.
        raise Refused("The option reader= of this URL is not user:password.")
    return {"user": user, "password": password}


def _place(value: str) -> dict[str, str]:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal():
        raise Refused(f"listen={value} is not host:port.")
    return {"host": host, "port": port}
