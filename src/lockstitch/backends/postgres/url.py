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


def parse(url: str) -> Address:
    """Read a URL. Our own options are pool=N, prepare=off and listen=host:port; the others are libpq's."""
    base, _, query = url.partition("?")
    options: dict[str, str] = {}
    others: list[str] = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name in ("pool", "prepare", "listen"):
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
    return Address(
        conninfo=conninfo,
        listening=make_conninfo(conninfo, **_place(options["listen"])) if "listen" in options else conninfo,
        shown=_shown(parts),
        pool=_pool(options.get("pool", str(POOL))),
        prepare=_prepare(options.get("prepare", "on")),
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


def _place(value: str) -> dict[str, str]:
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal():
        raise Refused(f"listen={value} is not host:port.")
    return {"host": host, "port": port}
