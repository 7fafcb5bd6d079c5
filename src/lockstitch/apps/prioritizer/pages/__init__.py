"""The pages of plans. Needs the extra `server`."""

from lockstitch.apps.prioritizer.pages.plans import router

__all__ = ["router"]
