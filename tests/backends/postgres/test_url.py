"""URLs: options of Lockstitch, options of libpq, and passwords that are never shown."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from lockstitch.backends.postgres.backend import PostgresBackend
from lockstitch.backends.postgres.pool import POOL, parse
from lockstitch.errors import Refused
from lockstitch.model import SystemClock


def test_own_options_are_removed_from_conninfo() -> None:
    address = parse("postgresql://ada:se%40cret@db:5433/agents?pool=3&sslmode=require&prepare=off")
    parts = conninfo_to_dict(address.conninfo)
    assert (address.pool, address.prepare) == (3, False)
    assert not {"pool", "prepare", "listen"} & parts.keys()
    assert (parts["password"], parts["host"], parts["port"]) == ("se@cret", "db", "5433")
    assert (parts["dbname"], parts["sslmode"]) == ("agents", "require")


def test_missing_options_get_defaults() -> None:
    address = parse("postgresql:///agents")
    assert (address.pool, address.prepare) == (POOL, True)
    parts = conninfo_to_dict(address.conninfo)
    assert (parts["client_encoding"], parts["application_name"]) == ("utf8", "lockstitch")
    assert address.listening == address.conninfo


def test_options_of_libpq_override_defaults() -> None:
    parts = conninfo_to_dict(parse("postgresql:///agents?connect_timeout=2&application_name=mine").conninfo)
    assert (parts["connect_timeout"], parts["application_name"]) == ("2", "mine")


def test_listen_option_sets_address_for_listen() -> None:
    address = parse("postgresql://ada@pooler:6432/agents?listen=db.internal:5432")
    parts = conninfo_to_dict(address.listening)
    assert (parts["host"], parts["port"], parts["user"]) == ("db.internal", "5432", "ada")
    assert conninfo_to_dict(address.conninfo)["host"] == "pooler"


def test_password_is_not_shown() -> None:
    assert parse("postgresql://ada:secret@db:5433/agents").shown == "postgresql://ada@db:5433/agents"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///agents?pool=0",
        "postgresql:///agents?pool=many",
        "postgresql:///agents?pool=-1",
        "postgresql:///agents?pool=10000",
        "postgresql:///agents?prepare=perhaps",
        "postgresql:///agents?listen=nowhere",
        "postgresql:///agents?unheard_of=1",
        "postgresql://ada:secret%zz@db/agents",
    ],
)
def test_rejects_invalid_options(url: str) -> None:
    with pytest.raises(Refused) as refused:
        PostgresBackend(url, SystemClock())
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None or "secret" not in str(refused.value.__cause__)
