"""The pages of notebooks: the list, a notebook with its chats, its sources, and the memories of the team."""

from fastapi import APIRouter

from lockstitch.apps.notebooks.pages import actions, notebook, sources


def routers() -> tuple[APIRouter, ...]:
    """Return the routers. Fixed paths come before those with the id of a notebook."""
    return (actions.list_router, notebook.router, actions.router, sources.router, actions.memories_router)
