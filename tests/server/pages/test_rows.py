"""The rows of the list of threads."""

import pytest

from lockstitch.server.pages.common.rows import rows
from lockstitch.store import Store
from tests.samples import begin_turn

pytestmark = pytest.mark.anyio


async def test_cost_has_all_open_runs_of_a_team(store: Store) -> None:
    begun, lead = await begin_turn(store, await store.create(), "q", total_cost=2.0)
    member = lead.changed(id=store.new_thread().id, parent_run_id=lead.id, sequence=2, total_cost=0.5)
    head = (await store.append(begun.head, [], new_runs=[member])).head
    assert [row.cost for row in await rows(store, [head])] == [2.5]
    # The run of the member stays the last one.
    ended = {"status": "completed", "completed_at": store.clock.now(), "output_position": 1}
    head = (await store.append(head, [], run_updates=[(member, ended)])).head
    assert [row.cost for row in await rows(store, [head])] == [2.5]
