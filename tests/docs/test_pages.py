"""Every page of Start and How-to: its code and its commands run, and print the output that the page shows."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks, run_page

PAGES: tuple[str, ...] = (
    "howto/approvals.md",
    "howto/budgets.md",
    "howto/claude-agents.md",
    "howto/debugging.md",
    "howto/deploying.md",
    "howto/fastapi-chat.md",
    "howto/langfuse.md",
    "howto/langsmith.md",
    "howto/leaving-langsmith.md",
    "howto/local-models.md",
    "howto/mcp.md",
    "howto/memory.md",
    "howto/morning-after.md",
    "howto/otlp-out.md",
    "howto/otlp.md",
    "howto/own-loop.md",
    "howto/schedules.md",
    "howto/sub-agents.md",
    "howto/testing-agents.md",
    "reference/api/testing.md",
    "reference/events.md",
    "start/install.md",
    "start/tutorial.md",
)
"""Pages whose blocks all run. The remaining pages have their own test modules."""

NEEDS = ("needs ",)


@pytest.mark.parametrize("name", PAGES)
def test_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    run_page(DOCS / name, tmp_path)


@pytest.mark.parametrize("name", PAGES)
def test_skipped_blocks_have_a_reason(name: str) -> None:
    reasons = [block.notes["skip"] for block in blocks(DOCS / name) if "skip" in block.notes]
    assert all(reason.startswith(NEEDS) for reason in reasons), reasons
