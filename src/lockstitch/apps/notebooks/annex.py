"""What a server shows of notebooks: routes for programs, and pages."""

from typing import Final

from lockstitch.apps.notebooks import api, pages
from lockstitch.server import Annex, Section

ANNEX: Final = Annex(
    api=(api.router,),
    pages=pages.routers(),
    sections=(Section("Notebooks", "/notebooks", "n"),),
    package="lockstitch.apps.notebooks",
)
