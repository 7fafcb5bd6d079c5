"""What a server shows of notebooks: routes for programs, and pages."""

from lockstitch.apps.notebooks import api, pages
from lockstitch.server import Annex, Section


def annex() -> Annex:
    return Annex(
        api=(api.router,),
        pages=pages.routers(),
        sections=(Section("Notebooks", "/notebooks", "n"),),
        package="lockstitch.apps.notebooks",
    )
