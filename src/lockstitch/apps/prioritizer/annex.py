"""What the prioritiser adds to a server. Imported by servers alone, since it needs the web framework."""

from lockstitch.apps.prioritizer import api, pages
from lockstitch.server import Annex, Section


def annex() -> Annex:
    return Annex(
        api=[api.router],
        pages=[pages.router],
        sections=[Section("Plans", "/plans", "p")],
        package="lockstitch.apps.prioritizer.pages",
    )
