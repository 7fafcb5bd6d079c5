"""The pages of notebooks: the list, a notebook with its chats, its sources, and what the team remembers."""

from fastapi import APIRouter

from lockstitch.apps.notebooks.pages import acts, listing, memories, notebook, sources


def routers() -> tuple[APIRouter, ...]:
    """What is named stands before what a notebook's number could be taken for."""
    return (listing.list_router, notebook.router, acts.router, sources.router, memories.memories_router)
