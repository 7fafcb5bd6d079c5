"""Share links: a token of a link reads exactly one trace."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langsmith.utils import LangSmithNotFoundError

from lockstitch.model import ShareLink
from lockstitch.server import Settings
from lockstitch.store import Store, open_store
from tests.server.ingest.agents import client_of
from tests.server.ingest.langsmith.conftest import Calling
from tests.server.ingest.langsmith.sample_runs import send
from tests.server.serving import caller, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres", "files"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_link_reads_exactly_its_trace_without_a_key(store: Store, calling: Calling) -> None:
    _, secret = await store.in_project("shop").tokens.create("app", ["ingest", "read", "write"])
    async with serving(store, settings=Settings(tokens_needed=True)) as url:
        owner: Any = client_of(url, api_key=secret)
        guest: Any = client_of(url, api_key="not-a-token")

        def work() -> tuple[str, str]:
            # Two traces of one conversation are one thread. A link shows one of them.
            trace = send(owner, "shop", thread="ada-1")
            other = send(owner, "shop", minute=1, thread="ada-1", question="Another secret?")
            assert not owner.run_is_shared(trace.root)
            link = owner.share_run(trace.root)
            assert owner.run_is_shared(trace.root)
            assert owner.read_run_shared_link(trace.model) == link == owner.share_run(trace.tool)
            token = link.split("/")[-2]
            shared = guest.read_shared_run(token)
            assert (shared.id, shared.inputs) == (trace.root, {"question": "Is there tea?"})
            assert guest.read_shared_run(token, run_id=trace.tool).name == "look"
            assert {run.id for run in guest.list_shared_runs(token)} == {trace.root, trace.model, trace.tool}
            assert [run.id for run in guest.list_shared_runs(token, run_ids=[str(trace.model)])] == [trace.model]
            for ref in (other.root, other.model, uuid4()):
                with pytest.raises(LangSmithNotFoundError):
                    guest.read_shared_run(token, run_id=ref)
            with pytest.raises(LangSmithNotFoundError):
                guest.read_shared_run(uuid4())
            with pytest.raises(Exception, match="401"):
                guest.read_run(trace.root)
            return token, str(trace.root)

        token, root = await calling(work)
        async with caller(url) as http:
            answer = await http.get(f"/public/{token}/r")
            assert (answer.status_code, len(answer.json()["runs"])) == (200, 3)
            assert "Another secret?" not in answer.text
            answer = await http.post(f"/api/v2/public/{token}/runs/query", json={"selects": ["NAME"]})
            assert [run["name"] for run in answer.json()["items"]] == ["answer", "model", "look"]
            for path in ("/sessions", "/feedback", f"/runs/{root}", f"/runs/{root}/share"):
                assert (await http.get(path, headers={"x-api-key": token})).status_code == 401

        def unshare() -> None:
            owner.unshare_run(root)
            assert not owner.run_is_shared(root)
            with pytest.raises(LangSmithNotFoundError):
                guest.read_shared_run(token)
            owner.close()
            guest.close()

        await calling(unshare)


async def test_javascript_client_sends_no_content_type(store: Store, calling: Calling) -> None:
    """`shareRun` of version 0.10 passes a string to fetch, which adds text/plain."""
    async with serving(store) as url, caller(url) as http:
        client: Any = client_of(url)
        trace = await calling(lambda: send(client, "shop"))
        client.close()
        body = f'{{"run_id":"{trace.root}","share_token":"567830e2-5574-4c82-9859-3a764cc65bab"}}'
        plain = {"content-type": "text/plain;charset=UTF-8"}
        answer = await http.put(f"/runs/{trace.root}/share", content=body, headers=plain)
        assert (answer.status_code, answer.json()["share_token"]) == (200, "567830e2-5574-4c82-9859-3a764cc65bab")
        for wrong in ("{", "[]", "\xff"):
            answer = await http.put(f"/runs/{trace.root}/share", content=wrong.encode("latin-1"), headers=plain)
            assert answer.status_code == 422


async def test_link_needs_the_scope_write_and_ends_with_its_thread(
    store: Store, calling: Calling, tmp_path: Path
) -> None:
    _, secret = await store.tokens.create("app", ["ingest", "read"])
    async with serving(store, settings=Settings(tokens_needed=True)) as url:
        client: Any = client_of(url, api_key=secret)

        def work() -> str:
            trace = send(client, "shop")
            with pytest.raises(Exception, match="403"):
                client.share_run(trace.root)
            client.close()
            return str(trace.root)

        root = await calling(work)
    run = await store.run(root)
    link = ShareLink(token=uuid4(), thread_id=run.thread_id, run_id=run.id, actor="ada", created_at=run.started_at)
    await store.table(ShareLink).put(link)
    async with open_store(f"file://{tmp_path}/tree") as tree, open_store(f"file://{tmp_path}/whole") as whole:
        # A copy of one thread, such as a bundle for another person, gives no access to this store.
        await store.copy_to(tree, tree=run.thread_id)
        assert await tree.table(ShareLink).count() == 0
        await store.copy_to(whole)
        assert await whole.table(ShareLink).list() == [link]
    await store.delete(run.thread_id)
    assert await store.table(ShareLink).count() == 0


async def test_chosen_token_cannot_replace_another_link(client: Any, calling: Calling) -> None:
    def work() -> None:
        first, second = send(client, "shop"), send(client, "shop", minute=1)
        token = uuid4()
        assert str(token) in client.share_run(first.root, share_id=str(token))
        with pytest.raises(Exception, match="already used"):
            client.share_run(second.root, share_id=str(token))
        assert client.read_shared_run(token).id == first.root

    await calling(work)
