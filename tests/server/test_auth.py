"""Authentication: tokens, scopes and projects."""

from datetime import timedelta

import httpx2
import pytest

from lockstitch.errors import NotFound, Refused
from lockstitch.model import FakeClock
from lockstitch.server import Settings
from lockstitch.store import Store
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio

LOCKED = Settings(tokens_needed=True)


async def ask(url: str, token: str | None = None, **headers: str) -> httpx2.Response:
    authorization = {"Authorization": f"Bearer {token}"} if token else {}
    async with caller(url, headers={**authorization, **headers}) as http:
        return await http.get("/api/threads/secret")


async def test_token_gives_access_to_its_own_project(store: Store) -> None:
    await store.in_project("acme").create(key="secret")
    _, of_acme = await store.in_project("acme").tokens.create("ada", ["read"])
    _, of_other = await store.in_project("other").tokens.create("bo", ["admin"])
    async with serving(store, settings=LOCKED) as url:
        assert (await ask(url, of_acme)).status_code == 200
        assert (await ask(url, of_other)).status_code == 404
        response = await ask(url, of_other, **{"Lockstitch-Project": "acme"})
        assert response.status_code == 404
        for none in (None, "lst_nonsense", of_acme[:-1]):
            refused = await ask(url, none)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="lockstitch"')
        by_key = await ask(url, **{"X-Api-Key": of_acme})
        assert by_key.status_code == 200


async def test_webhook_of_an_alert_needs_an_administrator(store: Store) -> None:
    """The server calls webhooks, so a token of a tenant must not choose their address."""
    secrets = {
        scope: (await store.tokens.create(scope, sorted({"read", scope})))[1] for scope in ("read", "write", "admin")
    }
    alert = {"measure": "cost", "above": 1}
    async with serving(store, settings=LOCKED) as url:

        async def put(scope: str, name: str, **fields: str) -> int:
            headers = {"Authorization": f"Bearer {secrets[scope]}"}
            async with caller(url, headers=headers) as http:
                return (await http.put(f"/api/alerts/{name}", json={**alert, **fields})).status_code

        hook = "https://hooks.example.com/secret"
        assert await put("read", "spent") == 403
        assert await put("write", "spent", webhook=hook) == 403
        assert await put("write", "spent") == 200
        assert await put("admin", "reported", webhook=hook) == 200
        shown = {}
        for scope in secrets:
            async with caller(url, headers={"Authorization": f"Bearer {secrets[scope]}"}) as http:
                shown[scope] = [row["webhook"] for row in (await http.get("/api/alerts")).json()]
    assert shown == {
        "read": ["hooks.example.com", None],
        "write": ["hooks.example.com", None],
        "admin": [hook, None],
    }


async def test_store_keeps_only_the_hash_of_a_token(store: Store) -> None:
    token, secret = await store.tokens.create("ci", ["ingest"])
    assert secret.startswith("lst_")
    assert len(secret) > 40
    assert secret not in str((await store.tokens.all())[0].as_json())
    assert await store.tokens.find(secret) == token


async def test_revoked_token_is_rejected(store: Store) -> None:
    await store.create(key="secret")
    _, secret = await store.tokens.create("ci", ["read"])
    async with serving(store, settings=LOCKED) as url:
        assert (await ask(url, secret)).status_code == 200
        await store.tokens.revoke("ci")
        assert (await ask(url, secret)).status_code == 401
    with pytest.raises(NotFound):
        await store.tokens.revoke("ci")
    second_token, _ = await store.tokens.create("ci", ["read"])
    assert [token.name for token in await store.tokens.valid()] == [second_token.name]


async def test_expired_token_is_rejected(timed_store: Store, clock: FakeClock) -> None:
    until = clock.now() + timedelta(hours=1)
    _, secret = await timed_store.tokens.create("short", ["read"], expires_at=until)
    assert await timed_store.tokens.find(secret) is not None
    clock.advance(3600)
    assert await timed_store.tokens.find(secret) is None
    assert not await timed_store.tokens.any_valid()


async def test_request_is_rejected_without_the_scope(store: Store) -> None:
    await store.create(key="secret")
    _, ingest_only = await store.tokens.create("ci", ["ingest"])
    _, everything = await store.tokens.create("root", ["admin"])
    async with serving(store, settings=LOCKED) as url:
        refused = await ask(url, ingest_only)
        assert refused.status_code == 403
        assert "needs read" in refused.json()["detail"]
        assert (await ask(url, everything)).status_code == 200
        async with caller(url) as http:
            assert (await http.get("/metrics")).status_code == 401
            assert (await http.get("/healthz")).status_code == 200
            assert (await http.get("/readyz")).status_code == 200


@pytest.mark.parametrize("scopes", [[], ["everything"], ["read", ""]])
async def test_unknown_scope_is_rejected(store: Store, scopes: list[str]) -> None:
    with pytest.raises(Refused):
        await store.tokens.create("x", scopes)


async def test_server_without_tokens_uses_the_named_project(store: Store) -> None:
    """Without tokens, keys that clients send are ignored."""
    await store.in_project("acme").create(key="secret")
    async with serving(store) as url:
        assert (await ask(url)).status_code == 404
        assert (await ask(url, **{"Lockstitch-Project": "acme"})).status_code == 200
        assert (await ask(url, "lsv2_habit", **{"Lockstitch-Project": "acme"})).status_code == 200
        _, secret = await store.in_project("acme").tokens.create("ada", ["read"])
        assert (await ask(url, secret)).status_code == 200


async def test_form_is_rejected_without_a_valid_csrf_token(store: Store) -> None:
    """A form without the CSRF token of the browser is rejected, also with valid cookies."""
    thread = await store.create(key="secret", title="Before")
    _, reading = await store.tokens.create("reader", ["read"])
    path = f"/threads/{thread.id}/title"
    async with serving(store) as url, caller(url) as http:
        for wrong in ({}, {"csrf": "guessed"}):
            refused = await http.post(path, data={"title": "After", **wrong})
            assert (refused.status_code, refused.json()["title"]) == (403, "Cross-site request")
        await http.get(f"/threads/{thread.id}", headers={"Accept": "text/html"})
        proof = http.cookies["lockstitch_csrf"]
        assert (await http.post(path, data={"title": "After", "csrf": proof + "x"})).status_code == 403
        assert (await store.thread("secret")).title == "Before"
        allowed = {"title": "After", "csrf": proof}
        assert (await http.post(path, data=allowed, headers={"X-Api-Key": reading})).status_code == 403
        assert (await http.post(path, data=allowed)).status_code in (200, 303)
    assert (await store.thread("secret")).title == "After"
