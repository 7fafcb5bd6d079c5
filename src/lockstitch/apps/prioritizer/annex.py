"""What the prioritiser adds to a server. Imported by servers alone, since it needs the web framework."""

from typing import Final

from lockstitch.apps.prioritizer import api, pages
from lockstitch.server import Annex, Section

ANNEX: Final = Annex(
    api=[api.router],
    pages=[pages.router],
    sections=[Section("Plans", "/plans", "p")],
    package="lockstitch.apps.prioritizer.pages",
)
