"""The pages of plans. Needs the extra `server`."""

from lockstitch.apps.prioritizer.pages.routes import router

__all__ = ["router"]
