"""Unknown options are rejected everywhere."""

import pytest

from lockstitch import Agent, Refused, Team, open_store
from lockstitch.agents.providers.scripted import Scripted

pytestmark = pytest.mark.anyio


def helper(**settings: object) -> Agent:
    return Agent("helper", model=Scripted(["Hello."]), title=False, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_step": 5}, "Agent 'helper' has no option 'max_step'. Did you mean max_steps?"),
        ({"colour": "red"}, "Agent 'helper' has no option 'colour'. Options: api_key, api_kwargs, "),
    ],
)
def test_agent_rejects_unknown_option(options: dict[str, object], message: str):
    with pytest.raises(Refused) as refused:
        helper(**options)
    assert str(refused.value).startswith(message)


def test_team_rejects_unknown_option():
    with pytest.raises(Refused, match=r"Agent 'team' has no option 'max_step'\. Did you mean max_steps"):
        Team("team", model=Scripted(["Hello."]), members=[helper()], max_step=5)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="Team 'team' is not valid: mode: Input should be 'sequence' or 'paral"):
        Team("team", model=Scripted(["Hello."]), members=[helper()], mode="both")  # type: ignore[arg-type]


async def test_run_rejects_unknown_option_and_creates_no_thread():
    async with open_store("sqlite:///:memory:") as store:
        with pytest.raises(Refused, match="A run has no option 'thred'"):
            await helper().run("Hello?", store=store, thred="k")  # type: ignore[call-arg]
        assert await store.threads() == []
